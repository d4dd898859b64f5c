"""From a file of sensors to a plan, and whether its guarantee would have held.

Modules, in the order in which data pass through them:

1. `question`: ε, δ, T_SLA, windows and workers.
2. `sensor_file` reads a user's file, wide or long, into memory; `large_file` reads it in pieces.
3. `survey`: what the file holds, its window results and their seasonal periods.
4. `answer` makes the plan by the documents' algorithms: assignment, checkpoints, replay sets.
5. `backtest` walks forward through the second half with the `guard`, beside other methods.
6. `report_text`: the plan in plain words, and cautions; `command` is `aft plan`, which writes
   plan.json (`core.planfile`) and the report of notebook 06.
7. `experiments`: what that notebook runs, on files, generated sets and troubled streams; `figures`
   draw, `claims` settle the claims G-1 … G-3.
"""
