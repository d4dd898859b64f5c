"""From a table of sensors to a plan and a back-test of its guarantee.

The unit is a window's result of one sensor: ε, the guard and the back-test are about these, not
about samples. The Gaussian models are fitted to the first half of the windows; the second half
judges. The guard learns on during the second half, and a stream begins with what it has learned at
the end.

Modules, in the order in which data pass through them:

1. `sensor_file` reads Parquet, and CSV as texts, into numbers; `sensor_checks` refuses what is no
   measurement; `sensor_times` reads times, and puts the samples on an even grid.
2. `question`: ε, δ, T_SLA, windows, workers, read rate, and a grouping that is given.
3. `window_results` aggregates the windows and fits the models. `backtest` gives the second half to
   `Guard.replay`, which scores each window as if it was lost, and to other methods.
4. `recovery`: checkpoints and replay sets after a failure of all machines; what pays after a
   failure of one. `cautions`: reasons to trust the plan less.
5. `plan` calls all of these, and shows one outage. The command `aft plan` is in `aftlib.command`.
6. `sensor_plan` has the result, `SensorPlan`, as plan.json holds it and `aft plan` prints it; the
   modules before fill its parts.
7. `experiments`, `followed` (a plan in a stream), `figures` and `claims` are notebook 06's.
"""

from importlib.util import find_spec

from aftlib.core.checks import explain_missing

for _name in ("click", "jinja2", "plotly", "pyarrow", "pydantic", "threadpoolctl", "tqdm"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(
            explain_missing("aftlib.sensor_plans", _name, "notebooks"), name=_name
        )
