"""Does approximate recovery pay? Every way to recover under the same kills, and a cost model.

The modules, in the order in which data pass through them:

1. `cases` has one stream of sensors with its guarantee, and the schedule of the kills in it.
2. `schemes` names the schemes of recovery; `SCHEMES` takes further ones.
3. `workers` kills D1's worker processes: nothing is recovered, replayed, or estimated. `partial`
   kills D2's process. Replacements read again at a limited rate.
4. `accuracy` counts the estimates within ε over all windows of the data, without processes.
   `thresholds` restores results from AF-Stream's backups, under the same kills.
   `normal` measures throughput and latency while nothing fails (D1-7).
5. `break_even` takes the constants of the cost model from the shortest windows and predicts the
   recoveries at limited rates.
6. `experiments` reads a case of real sensors and runs every scheme under the same kills. `tables`
   summarizes the measurements, also for a user's operation.
7. `figures` draws the results, `captions` describes them, and `claims` judges them.

`aftlib.core.recovery_costs` has the cost model and the monthly cost of a user's failures.
"""
