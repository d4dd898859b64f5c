"""D1: a Gaussian model estimates a lost worker's windows from the other workers' windows.

In the order in which data pass through the modules:

1. `assignment` assigns keys to workers so that a lost worker can be estimated; `best` searches the
   best assignment and bounds the variances after several simultaneous crashes.
2. `operator`: a Spark task is a worker. It reads an input split of the sensor log, keeps windows in
   its own memory and sends each finished one to the `message_log`. Spark's retry of a killed task
   is the replacement: it proves the crash, continues from the present and names the lost windows.
3. `coordinator` holds each window until all workers have sent it, and estimates the lost ones by
   the model, or by a guard whose estimates it audits.
4. `sink` stores all windows, with estimates flagged, and the outages. `pipeline` runs the stream.
5. `experiments` run it: `cases` (data), `grid` (figs 10–13, aggregates), `streams` (fig. 8, kills).
6. `claims` settle the claims D1-1 … D1-7; `figures` draw.
"""
