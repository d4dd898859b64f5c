"""Every scheme under one schedule of failures, on one stream of sensors.

What goes through the package, in order:

1. `schedule` draws who is struck, when and how; `drill` the stream, its true windows, the promise.
2. `pipeline` runs what is on Spark: no fault tolerance, at most once, at least once, exactly once,
   and D1 by its model and by its guard.
3. `drivers` does so with D2's processes, `stages` with D3's, `nodes` with D4's, and simulates D4;
   `coordinators` kills D1's driver and D3's supervisor.
4. `pace`: how long the latency takes to be normal again, from how far each had come by when.
5. `experiments` puts it into one table, `figures` draw it, `claims` settle F-1 … F-7.

`make soak` (in `benchmarks`) runs D1, D2, D3 and D5 under faults for half an hour.
"""
