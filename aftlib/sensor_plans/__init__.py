"""From a file of sensors to a plan and a back-test of its guarantee.

Modules, in the order in which data pass through them:

1. `sensor_file` reads a user's file, wide or long, into memory; `large_file` reads it in pieces.
2. `survey`: the question (ε, δ, T_SLA, windows and workers), and the results of all windows.
3. `answer` makes the plan by the documents' algorithms: assignment, checkpoints, replay sets.
4. `backtest` walks forward through the second half with the `guard` and with other methods.
5. `worth` compares exact recovery with the guard at the user's read rate.
6. `command` is `aft plan`. It prints the plan and writes plan.json (`core.planfile`) and the report
   of notebook 06.
7. `experiments`: that notebook's experiments on files, generated sets and streams with trouble, and
   on plans that are made again as sensors change. `figures` draws their results, and `claims`
   judges the claims G-1 … G-3.
"""
