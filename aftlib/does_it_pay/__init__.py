"""Does it pay? Recoveries with limited or priced input, and a cost model that predicts them.

The modules, in the order in which data pass through them:

1. `cases` makes a stream of real or generated sensors, and the guarantee of its estimates.
2. `operator` is D1's input on Spark. `spark_recoveries` kills a worker of D1's pipeline at the end
   of a window, and measures until all due windows are emitted: exact recovery, D1 by model, D1
   by guard. `process_recoveries` does so with D2's process: exact, proposed and adaptive. Both
   limit the log's readers and count their samples.
3. `break_even` takes four constants from unlimited recoveries and predicts all others.
4. `experiments` runs all of it, `figures` draw it, `claims` judge P-1 … P-8.

`aftlib.core.recovery_costs` has the cost model and the cost of a month of a user's failures.
"""
