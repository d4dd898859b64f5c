"""Does it pay? Recoveries with limited or priced input, and a cost model that predicts them.

The modules, in the order in which data pass through them:

1. `cases` makes a stream of real or generated sensors, and the guarantee of its estimates.
2. `spark_recoveries` kills a worker of D1's pipeline on Spark at the end of a window, and measures
   the time until all due windows are emitted: exact recovery, D1 by model, D1 by guard.
   `process_recoveries` measures D2's process in the same way: exact, proposed and adaptive. Both
   limit the log's readers and count their samples.
3. `break_even` takes four constants from unlimited recoveries and predicts the limited ones.
4. `experiments` runs these modules, `figures` draws the results, `claims` judges P-1 … P-8.

`aftlib.core.recovery_costs` has the cost model and the monthly cost of a user's failures.
"""
