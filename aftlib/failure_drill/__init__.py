"""Every scheme under one schedule of faults, on one stream of sensors.

The modules, in the order in which data pass through them:

1. `schedule` draws the stream, its true windows and the schedule of faults.
2. `schemes_spark` runs the schemes on Spark: "no fault tolerance", "at most once", "at least
   once", "exactly once", D1 by its model and by its guard, and D1 with its driver killed.
   `schemes_process` runs D2's driver, D3's servers and tasks and D4's nodes.
3. `metrics` scores a `Run`: windows lost and doubled, errors, time until latency is normal again.
4. `experiments` makes one table of all schemes, `figures` draw it, `claims` judge F-1 … F-7.

`make soak` (in `benchmarks`) runs D1, D2, D3 and D5 under faults for half an hour.
"""
