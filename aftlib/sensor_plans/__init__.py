"""From a table of sensors to a plan and a back-test of its guarantee.

The unit is a window's result of one sensor: ε, the guard and the back-test are about these, not
about samples. Models are fitted to the first half of the windows; the second half judges.

Modules, in the order in which data pass through them:

1. `sensor_file` reads Parquet, and CSV as texts, into numbers; `sensor_times` reads their times;
   `sensor_checks` refuses what is no measurement, and puts the samples on an even grid.
2. `question`: ε, δ, T_SLA, windows, workers, read rate, and a grouping that is given.
3. `window_results` aggregates the windows and fits the models; `backtest` walks forward through the
   second half with the `guard` and with other methods.
4. `plan` puts the parts together: assignment, `recovery` (checkpoints and replay sets after a
   failure of all machines; what pays after a failure of one), back-test, one outage, `cautions`.
5. `sensor_plan` has the result, `SensorPlan`, which plan.json holds; `plan_text` prints it. The
   command line `aft plan` is in `aftlib.command`.
6. `experiments`, `followed` (a plan in a stream), `figures` and `claims` are notebook 06's.
"""

from importlib.util import find_spec

from aftlib.core.checks import explain_missing

for _name in ("click", "jinja2", "plotly", "pyarrow", "pydantic", "threadpoolctl", "tqdm"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(
            explain_missing("aftlib.sensor_plans", _name, "notebooks"), name=_name
        )
