"""Does approximate recovery pay? Every way to recover under the same kills, and a cost model.

The modules, in the order in which data pass through them:

1. `schemes` streams a case under kills. It kills D1's worker processes: nothing is recovered,
   replayed, or estimated by D1's model or by the guard. It also kills D2's process. Replacements
   read again at a limited rate.
2. `break_even` takes the constants of the cost model from the shortest windows and predicts the
   recoveries at limited rates.
3. `experiments` reads a case of real sensors, draws the kills, and runs every scheme. `figures`
   draws the results, `claims` judges them.

`aftlib.core.recovery_costs` has the cost model and the monthly cost of a user's failures.
"""
