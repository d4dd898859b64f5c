"""The question that a plan answers: one model for `aft plan`, notebook 06 and plan.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.core.checks import listed, require_choice, require_number
from aftlib.core.windows import AGGREGATES
from aftlib.documents.checkpoint_planning.plan import DOCUMENT_RECOVERY_TIME, RecoveryTime
from aftlib.guard.estimator import limits_of
from aftlib.notebook.parameters import ParameterModel, parameter
from aftlib.sensor_plans.sensor_times import as_duration

#: Fewest windows of a plan, four in each half; ours: fewer show nothing.
LEAST_WINDOWS = 8


class Question(ParameterModel):
    """The requirement that a plan must meet, and the operation for which it must pay."""

    epsilon: float | dict[str, float] | None = parameter(
        None, "largest error of a window's result in the sensors' units, one for all or by sensor"
    )
    epsilon_sd: float | None = parameter(
        0.5,
        "where epsilon is null: in standard deviations of each sensor's window results",
        above=0,
    )
    delta: float = parameter(0.05, "share δ of the guarantees that may be wrong", above=0, below=1)
    t_sla: str = parameter("2s", "longest recovery permitted")
    window: int | str = parameter(10, "samples, or a duration such as 6h")
    query: str = parameter("mean", f"of a window's samples: {' or '.join(AGGREGATES)}")
    workers: int | None = parameter(None, "machines; null: one per sensor", least=1)
    fixed_ms: float = parameter(
        DOCUMENT_RECOVERY_TIME.fixed_ms,
        "start of a recovery, ms; the default is document D2's measurement",
        least=0,
    )
    read_rate: float | None = parameter(
        None, "samples per second that can be read in all, live ones included", above=0
    )
    failures_per_month: float = parameter(
        1.0, "machine failures per month, counted over all machines", least=0
    )

    @model_validator(mode="after")
    def require_limits(self) -> Self:
        """Refuse a question without ε, an unknown query, and a T_SLA that is no duration."""
        if self.epsilon is None and self.epsilon_sd is None:
            raise ValueError("epsilon or epsilon_sd must be given, got none: give one of them")
        require_choice("query", self.query, AGGREGATES)
        as_duration("t_sla", self.t_sla)
        return self

    @classmethod
    def of_texts(cls, texts: Mapping[str, str | None]) -> Self:
        """Return the question of options; None is not given, and ε may name a file by sensor."""
        values = cls.parse({name: text for name, text in texts.items() if text is not None})
        if isinstance(epsilon := values.get("epsilon"), str):
            values["epsilon"] = read_by_sensor("epsilon", epsilon, float)
        return cls(**values)

    @property
    def t_sla_ms(self) -> float:
        """T_SLA in milliseconds."""
        return as_duration("t_sla", self.t_sla) / pd.Timedelta(1, "ms")

    def width(self, steps: int, step: pd.Timedelta | None) -> int:
        """Steps of a window; ValueError for too few windows, or where `step` must not be None."""
        width: Any = self.window
        if not str(width).strip().isdigit():
            if step is None:
                raise ValueError(f"window must be samples where FILE has no times, got {width!r}")
            width = as_duration("window", str(width)) / step
            if width < 1 or width % 1:
                window = self.window
                raise ValueError(f"window must be a multiple of the step {step}, got {window!r}")
        width = int(width)
        require_number("window", width, least=1)
        if steps // width < LEAST_WINDOWS:
            raise ValueError(
                f"window must leave at least {LEAST_WINDOWS} windows, got {steps // width} of "
                f"{width} steps in {steps} steps; give more rows or a smaller window"
            )
        if self.read_rate is not None and step is None:
            raise ValueError(
                f"read_rate must be given with data that have times, got {self.read_rate}: add a "
                "column of times"
            )
        return width

    def limits(self, names: Sequence[str], spread: np.ndarray) -> np.ndarray:
        """ε of each sensor, shape (n,), from the spread of its window results."""
        given: Any = self.epsilon
        if given is None:
            given = float(self.epsilon_sd or 0) * spread
        return limits_of(given, len(names), names)

    def recovery_time(self, samples_per_s: float) -> RecoveryTime:
        """The one recovery time of the plan; `samples_per_s` of the running stream are read, too.

        ValueError if the read rate leaves nothing for recovery.
        """
        per_tuple = DOCUMENT_RECOVERY_TIME.per_tuple_ms
        if self.read_rate is not None:
            fix = "recovery needs the rest: raise it or plan fewer sensors"
            require_number("read_rate", self.read_rate, above=samples_per_s, fix=fix)
            per_tuple += 1000 / (self.read_rate - samples_per_s)
        return RecoveryTime(self.fixed_ms, per_tuple)


def read_by_sensor(name: str, file: str, kind: Callable[[str], Any]) -> dict[str, Any]:
    """Return the value of each sensor, a `kind`, from a JSON object or lines ``sensor,value``.

    ValueError, with `name`, for no file, another file or a repeated sensor.
    """
    path = Path(file)
    try:
        if path.suffix.lower() == ".json":
            rows = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=list)
        else:
            rows = pd.read_csv(path, header=None, dtype=str, keep_default_na=False).values.tolist()
            rows = rows[rows[0][0].strip().lower() == "sensor" :]
        pairs = [(str(sensor).strip(), kind(str(value).strip())) for sensor, value in rows]
    except (OSError, ValueError, TypeError, IndexError) as error:
        raise ValueError(
            f"{name} must be a file with a JSON object by sensor or CSV lines of a sensor and a "
            f"value, got {file!r} ({str(error).splitlines()[0]})"
        ) from error
    sensors = [sensor for sensor, _ in pairs]
    if twice := [sensor for sensor in sensors if sensors.count(sensor) > 1]:
        raise ValueError(f"{name} must name each sensor once, got {twice[0]!r} twice in {file!r}")
    return dict(pairs)


def group_sensors(assignment: Any, names: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """Return the workers' names and their sensors' numbers of a given assignment.

    `assignment` is a mapping or Series from sensor to worker, or a list of the sensors of each
    worker. Each of `names` must be in it once.
    """
    if isinstance(assignment, pd.Series):
        assignment = assignment.to_dict()
    if not isinstance(assignment, Mapping):
        pairs = [(sensor, i) for i, part in enumerate(assignment) for sensor in part]
        assignment = dict(pairs)
        if len(assignment) < len(pairs):
            raise ValueError(f"assignment must name each sensor once, got some twice in {pairs!r}")
    if {*assignment} != {*names}:
        unknown = {*assignment} - {*names}
        without = {*names} - {*assignment}
        raise ValueError(
            "assignment must name each sensor once, got no worker for "
            f"{listed(sorted(without)) or 'none'}; not in FILE: {listed(sorted(unknown)) or 'none'}"
        )
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        groups.setdefault(str(assignment[name]), []).append(i)
    return list(groups), list(groups.values())
