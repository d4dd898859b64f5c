"""From a file of sensors to a plan, and whether its promise would have held.

What goes through the room, in order:

1. `question`: ε, δ, T_SLA, windows and workers. `sensor_file` reads a user's file, wide or long.
2. `window_results`: samples become window results, and the rhythms that they have are found.
3. `answer` makes the plan by the documents' algorithms: assignment, checkpoints, replay sets.
4. `backtest` walks forward through the second half with the `guard`, beside other methods
   (`conformal` is one of them); `cautions` say what to know of it.
5. `report_text` says it in plain words; `command` is `aft plan`, which writes plan.json
   (`core.planfile`), and whose report is notebook 06.
6. `experiments` are what that notebook runs, on files or generated sets; `troubles` are streams in
   which something goes wrong. `figures` draw, `verdicts` settle the claims G-1 … G-3.
"""
