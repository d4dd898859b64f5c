"""From a table of sensors to a plan and a back-test of its guarantee.

The unit is a window's result of one sensor: ε, the guard and the back-test are about these, not
about samples. Models are fitted to the first half of the windows; the second half judges.

Modules, in the order in which data pass through them:

1. `sensor_plan` has the result, `SensorPlan`, as plan.json holds it and `aft plan` prints it. All
   other modules fill its parts.
2. `sensor_file` reads Parquet, and CSV as texts, into numbers; `sensor_checks` refuses what is no
   measurement; `sensor_times` reads times, and puts the samples on an even grid.
3. `question`: ε, δ, T_SLA, windows, workers, read rate, and a grouping that is given.
4. `window_results` aggregates the windows and fits the models. `backtest` gives the second half to
   `Guard.replay`, which scores each window as if it was lost, and to other methods.
5. `recovery`: checkpoints and replay sets after a failure of all machines; what pays after a
   failure of one. `cautions`: reasons to trust the plan less.
6. `plan` calls all of these, and shows one outage. The command `aft plan` is in `aftlib.command`.
7. `experiments`, `followed` (a plan in a stream), `figures` and `claims` are notebook 06's.
"""

from importlib.util import find_spec

from aftlib.core.checks import explain_missing

for _name in ("click", "jinja2", "plotly", "pyarrow", "pydantic", "threadpoolctl", "tqdm"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(
            explain_missing("aftlib.sensor_plans", _name, "notebooks"), name=_name
        )
