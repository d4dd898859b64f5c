"""Does approximate recovery pay? Every way to recover under the same kills, and a cost model.

The modules, in the order in which data pass through them:

1. `schemes` names the schemes of recovery, and has the `Case` that each gets: a stream of sensors
   with its guarantee. `SCHEMES` takes further ones.
2. `recoveries` has the schedule of the kills. It kills D1's worker processes: nothing is recovered,
   replayed, or estimated; and D2's process. Replacements read again at a limited rate.
3. `accuracy` counts the results within ε without processes: the schemes' estimates over all windows
   of the data, and what AF-Stream's backups restore under the same kills.
   `normal` measures throughput and latency while nothing fails (D1-7).
4. `break_even` takes the constants of the cost model from the shortest windows and predicts the
   recoveries at limited rates.
5. `experiments` reads a case of real sensors and runs every scheme under the same kills.
6. `figures` draws the results, as tables too, and for a user's operation. `captions` describes
   them, and `claims` judges them.

`aftlib.core.recovery_costs` has the cost model and the monthly cost of a user's failures.
"""
