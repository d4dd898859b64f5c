"""D1: a lost worker's windows are estimated from the others' by a multivariate Gaussian.

What goes through the room, in order:

1. `assignment` says which worker computes which key, so that a lost worker can be estimated;
   `best` as well as can be, `deaths` what is left when several die at once.
2. `source` streams a sensor log in shifts, one partition a worker and micro-batch.
3. `operator`: the task that reads a shift is the worker. It fills windows in its own memory and
   sends each that is finished to the `mailbox`; Spark carries windows only, which `delivery` puts
   side by side. Spark's retry of a killed one is the substitute: it proves the death, goes on from
   the present and names the windows lost. `pipeline` puts it all together.
4. `master` holds each window until all workers are done, and estimates what is still owed by a
   model; `guarded_master` feeds a guard instead, which says what may be estimated, and audits it.
5. `sink` takes all windows, estimates flagged, and the outages that explain them.
6. `experiments` run it: `cases` (data), `grid` (figs 10–13), `maxima`, `streams` (fig. 8, kills).
7. `claims` settle the claims D1-1 … D1-5 from the grid; `figures` draw.
"""
