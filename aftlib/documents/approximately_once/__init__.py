"""D1: a Gaussian model estimates a lost worker's windows from the other workers' windows.

In the order in which data pass through the modules:

1. `assignment` assigns sensors to workers so that a lost worker can be estimated; `best` compares
   assignments and bounds the estimable workers of any.
2. `worker` is a worker process: it reads its sensors and emits each finished window.
3. `six_sensors` streams the windows of fig. 8 through Spark, the document's coordinator, which
   estimates the lost ones (`aftlib.streaming.stream.recoverable` with the model of
   `aftlib.guard.known`).
4. `error_rates` computes the estimable workers and error rates of assignments, by a model's formula
   and counted on windows. `experiments` uses it for figs 10–13, for both interpretations of the
   data's rows and on real sensors; it also has the rates of models learned from few rows.
5. `figures` draws; `claims` judges D1-1 … D1-5, and `captions` words what a run shows. D1-6 is
   measured in `aftlib.recovery_comparison`.
"""
