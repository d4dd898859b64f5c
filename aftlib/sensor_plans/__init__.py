"""From a file of sensors to a plan, and whether its guarantee would have held.

Modules, in the order in which data pass through them:

1. `sensor_file` reads a user's file, wide or long, into memory; `large_file` reads it in pieces.
2. `survey`: the question (ε, δ, T_SLA, windows and workers), and the results of all windows.
3. `answer` makes the plan by the documents' algorithms: assignment, checkpoints, replay sets.
4. `backtest` walks forward through the second half with the `guard`, compared with other methods.
5. `refresh` makes assignment and replay sets again as sensors change. `worth` compares exact
   recovery with the guard at the user's read rate.
6. `command` is `aft plan`. It prints the plan and writes plan.json (`core.planfile`) and the report
   of notebook 06.
7. `experiments`: what that notebook runs, on files, generated sets and troubled streams; `figures`
   draw, `claims` judge the claims G-1 … G-3.
"""
