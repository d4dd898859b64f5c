"""Notebook 01's parameters, and their sensors: generated, from a file, or from a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import model_validator

from aftlib.approximately_once.assignment import assess, assign_greedy
from aftlib.approximately_once.pipeline import RECOVER, Query
from aftlib.core.checks import require_choice, require_number, require_numbers, with_value
from aftlib.core.datasets import read_table
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import COVARIANCES, generated_model
from aftlib.core.paths import beijing_pm25
from aftlib.core.planfile import SensorPlan, open_plan
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.sensortable import SensorTable
from aftlib.core.windows import Windows
from aftlib.spark.sweep import write_samples
from aftlib.workbench.parameters import ParameterModel, parameter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, WINDOWS, UNSCALED = "rows are aggregates", "rows are samples", "rows are samples, Σ unscaled"
PARTS = 10
"""Equal segments of time into which real data are cut, to compute intervals over segments."""
BLOCK_WORKERS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)
BLOCK_EPSILONS = (0.4, 0.5, 0.6, 0.65, 0.66, 0.67, 0.7, 0.75, 0.8, 0.9, 1.0, 1.5, 1.96)
PLAN_EPSILONS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
FRACTIONS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
"""Tolerances of real sensors, in median standard deviations."""
PLANNED_WINDOWS = 1000
"""Fewest windows that a plan's query streams, because its guard learns from the first hundreds."""
_OF_A_FILE = ("time", "resample", "drop")
_WITH_A_PLAN = {"seed", "pipeline_steps", "kills", "recover", "plan"}


@dataclass(frozen=True)
class SensorCase:
    """A log of sensors, their model, and the grid of m and ε to try on it."""

    log: SensorLog  # on which estimates are evaluated; for real sensors, the second half
    samples: GaussianModel  # model of single samples
    windows: Windows
    delta: float
    workers: tuple[int, ...]
    epsilons: tuple[float, ...]
    replications: int  # parts of the log beyond the first
    about: dict[str, int]  # counts to show: rows, gaps, rows left out of the fit
    block: int | None = None  # windows resampled together; None: single ones
    plan: SensorPlan | None = None  # from which a query has its workers, ε and δ

    @property
    def readings(self) -> dict[str, tuple[GaussianModel, Windows]]:
        """Model of the window aggregates and their windows, for each reading of the rows.

        The last one models windows of samples by the mean and covariance of single samples.
        """
        width, query = self.windows.width, self.windows.query
        over = self.plan.model if self.plan else self.samples.aggregate(width, query)
        return {
            ROWS: (self.samples, Windows(1, 1)),
            WINDOWS: (over, self.windows),
            UNSCALED: (self.samples, self.windows),
        }

    def query(self, steps: int, workers: int, epsilon: float) -> Query:
        """Return a query over the first `steps`, its keys assigned greedily.

        With a plan, it has the plan's workers and ε, and `PLANNED_WINDOWS` windows or more.
        """
        model, windows = self.readings[WINDOWS]
        if self.plan is None:
            requirement = Requirement(epsilon, self.delta)
            assignment = assign_greedy(model, workers, requirement, uneven=True)
        else:
            requirement = Requirement(1.0, self.delta)
            assignment = assess(model, self.plan.workers, requirement)
            steps = max(steps, PLANNED_WINDOWS * windows.slide)
        stop = min(steps, self.log.steps)
        return Query(
            self.log,
            windows,
            model,
            assignment,
            requirement,
            every=-(-stop // 4),
            stop=stop,
            seasons=self.plan.seasons if self.plan else (),
        )


class NotebookParameters(ParameterModel):
    """Parameters of notebook 01."""

    workers: list[int] | None = parameter(
        None,
        "worker counts m, divisors of `dimensions`; null: the document's",
        smoke=[2, 6, 10, 24, 60],
        least=1,
    )
    epsilons: list[float] | None = parameter(
        None,
        "tolerances ε, sensor units; null: around the document's",
        smoke=[0.5, 0.65, 0.67, 0.8, 1.0, 1.96],
        above=0,
    )
    delta: float = parameter(0.05, "permitted failure probability δ", above=0, below=1)
    dimensions: int = parameter(120, "sensors of the generated data", least=2, most=5000)
    blocks: int = parameter(10, "equally large groups of correlated sensors", least=1)
    covariance: str = parameter(
        "block", "of generated sensors: block, autoregressive, factor or random"
    )
    rows: int = parameter(1000, "rows of the document's experiment", least=1)
    replications: int = parameter(
        20, "further data sets of the same size", smoke=8, quick=10, full=200, least=1
    )
    width: int = parameter(3, "window, steps", least=1)
    slide: int = parameter(1, "steps", least=1)
    seed: int = parameter(1, "of data, random assignments and resampling", least=0)
    data: str | None = parameter(
        None, "CSV or Parquet file of real sensors, instead of generated data"
    )
    time: str | None = parameter(None, "column of times; null: found by its values")
    resample: str | None = parameter(
        None, "period of the grid, such as 10min; null: the commonest distance"
    )
    drop: list[str] = parameter([], "columns to leave out")
    plan: str | None = parameter(
        None, "a plan.json of `aft plan`, with its data, workers, windows, ε and δ"
    )
    pipeline_steps: int = parameter(
        1500, "steps streamed to measure recoveries", smoke=600, full=20000, least=1
    )
    kills: int = parameter(
        5, "workers killed for each recovery measured", smoke=2, full=50, least=1, most=1000
    )
    recover: str | None = parameter(
        None, "model, guard or exact; null: the guard for a plan, else the model"
    )

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse values that do not fit together, and a file or plan that cannot be run."""
        if self.recover is not None:
            require_choice("recover", self.recover, RECOVER)
        require_choice("covariance", self.covariance, COVARIANCES)
        require_number("slide", self.slide, least=1, most=self.width, whole=True)
        if self.plan is not None:
            self._check_plan(self.plan)
        elif self.data is not None:
            self._check_data(self.data)
        else:
            self._check_blocks()
        return self

    def case(self, spark: SparkSession, directory: Path) -> SensorCase:
        """Return the sensors that the parameters name; logs are stored under `directory`.

        A log is stored under a name made of the parameters or of the file's contents, and reused.
        The sensors of a plan are in units of ε, so that the plan's own ε is 1.
        """
        if self.plan is not None:
            plan = open_plan(self.plan)
            workers = divisors(len(plan.table.names))[1:] or [1]
            settings = plan.windows, plan.delta, workers, PLAN_EPSILONS, plan
            return real_case(plan.table, plan.write_log(directory), *settings)
        if self.data is not None:
            return self._file_case(directory)
        n, total = self.dimensions, self.rows * (1 + self.replications)
        model = generated_model(self.covariance, n, self.blocks, self.seed)
        name = f"{self.covariance}-n{n}-b{self.blocks}-rows{total}-seed{self.seed}"
        path = directory / name
        usual = [m for m in BLOCK_WORKERS if n % m == 0] or divisors(n)[1:]
        return SensorCase(
            log=write_samples(spark, model, total, self.seed, path),
            samples=model,
            windows=Windows(self.width, self.slide),
            delta=self.delta,
            workers=_ascending(self.workers, usual),
            epsilons=_ascending(self.epsilons, BLOCK_EPSILONS),
            replications=self.replications,
            about={"rows": total, "sensors": n},
        )

    def real(self, case: SensorCase, directory: Path) -> SensorCase:
        """Return `case` if it has a user's sensors; otherwise a case of the stations in Beijing."""
        if not self.generated:
            return case
        own = {"data": str(beijing_pm25()), "workers": None, "epsilons": None}
        return self.model_copy(update=own)._file_case(directory)

    @property
    def generated(self) -> bool:
        """Whether the sensors are generated."""
        return not (self.data or self.plan)

    @property
    def block(self) -> int | None:
        """Number of sensors in each block of generated data; None for data without blocks."""
        blocks = self.generated and self.covariance == "block"
        return self.dimensions // self.blocks if blocks else None

    def _table(self) -> SensorTable:
        return read_table(self.data or "", self.time, resample=self.resample, drop=self.drop)

    def _file_case(self, directory: Path) -> SensorCase:
        how = repr((self.time, self.resample, list(self.drop))).encode()
        name = sha256(Path(self.data or "").read_bytes() + how).hexdigest()[:12]
        path = directory / f"{Path(self.data or '').stem}-{name}-second-half"
        table, windows = self._table(), Windows(self.width, self.slide)
        log = SensorLog.open(path) if path.exists() else table.split()[1].write_log(path)
        return real_case(table, log, windows, self.delta, self.workers, self.epsilons)

    def _check_blocks(self) -> None:
        n, given = self.dimensions, {name: getattr(self, name) for name in _OF_A_FILE}
        if any(given.values()):
            raise ValueError(
                f"time, resample and drop must be given with data, got {given}: give data=FILE"
            )
        if n % self.blocks:
            raise ValueError(
                f"blocks must divide dimensions = {n}, got {self.blocks!r}; choose from "
                f"{divisors(n)}"
            )
        self._check_width(rows=self.rows, pipeline_steps=self.pipeline_steps)
        for m in self.workers or ():
            if n % m:
                raise ValueError(
                    f"workers must divide the {n} sensors, got {m!r}; choose from {divisors(n)}"
                )

    def _check_data(self, data: str) -> None:
        if not Path(data).is_file():
            raise ValueError(f"data must name a wide CSV or Parquet file, got {data!r}")
        model, test, _ = fitted(self._table())
        require_whole_windows("data", test, Windows(self.width, self.slide))
        part = {f"a {PARTS}th of data": len(test.values) // PARTS}
        self._check_width(pipeline_steps=self.pipeline_steps, **part)
        if self.workers is not None:
            require_numbers("workers", self.workers, least=1, most=model.size, whole=True)

    def _check_plan(self, plan: str) -> None:
        given = []
        for name in type(self).model_fields.keys() - _WITH_A_PLAN:
            profiles = (type(self).profile(profile) for profile in ("smoke", "quick", "full"))
            usual = [type(self).model_fields[name].default, *(p.get(name) for p in profiles)]
            given += [name] * (getattr(self, name) not in usual)
        if names := ", ".join(sorted(given)):
            raise ValueError(
                f"{names} must be left out, because plan = {plan!r} replaces this: remove {names}"
            )
        planned = open_plan(plan)
        _, test, _ = fitted(planned.table)
        if len(test.values) // PARTS < planned.windows.width:
            raise ValueError(
                f"plan must have data of at least {2 * PARTS} windows, each of "
                f"{planned.windows.width} steps, got {len(planned.table.values)} steps; plan for "
                "more data, or smaller windows"
            )
        require_whole_windows("plan", test, planned.windows)

    def _check_width(self, **steps: int) -> None:
        for name, count in steps.items():
            if count < self.width:
                raise ValueError(
                    f"{name} must hold a window of width = {self.width} steps, got {count!r}; "
                    "give more steps or a smaller width"
                )


def require_whole_windows(name: str, test: SensorTable, windows: Windows) -> None:
    """Refuse real sensors if fewer than two parts of their data have a window without gaps.

    Parts that are too short for any window are refused elsewhere.
    """
    part = len(test.values) // PARTS
    if part < windows.width:
        return
    present = np.isfinite(test.values[: PARTS * part])
    whole = present.all(axis=1).reshape(PARTS, part)
    runs = sliding_window_view(whole, windows.width, axis=1)[:, :: windows.slide]
    count = int(np.any(np.all(runs, axis=2), axis=1).sum())
    if count < 2:
        rarest = test.names[int(present.mean(axis=0).argmin())]
        raise ValueError(
            f"{name} must have fewer missing samples: of the {PARTS} equal parts of its second "
            f"half, at least 2 must contain a window of {windows.width} steps without gaps, got "
            f"{count}. {rarest!r} misses most samples: leave it out, take smaller windows, or "
            "resample to a longer period"
        )


def divisors(n: int) -> list[int]:
    """Return the numbers that divide `n`, ascending."""
    return [m for m in range(1, n + 1) if n % m == 0]


def real_case(
    table: SensorTable,
    log: SensorLog,
    windows: Windows,
    delta: float,
    workers: Sequence[int] | None,
    epsilons: Sequence[float] | None,
    plan: SensorPlan | None = None,
) -> SensorCase:
    """Return real sensors: a model fitted on the first half of a table, and a log of the second.

    By default `workers` are up to ten numbers from 2 to n in about equal ratios, and `epsilons` are
    fractions of the median standard deviation.
    """
    model, _, left_out = fitted(table)
    n, deviation = model.size, float(np.sqrt(np.median(np.diag(model.covariance))))
    ratios = np.unique(np.geomspace(min(2, n), n, 10).round().astype(int)).tolist()
    about = {"sensors": n, **table.quality.as_dict()}
    return SensorCase(
        log=log,
        samples=model,
        windows=windows,
        delta=delta,
        workers=_ascending(workers, ratios),
        epsilons=_ascending(epsilons, [float(f"{f * deviation:.2g}") for f in FRACTIONS]),
        replications=PARTS - 1,
        about=about | {"incomplete rows left out of the fit": left_out},
        block=max(1, log.steps // 200),
        plan=plan,
    )


def fitted(table: SensorTable) -> tuple[GaussianModel, SensorTable, int]:
    """Return a model of the first half's samples, then the second half, then the rows left out.

    The model is fitted to the complete rows. If these are at most ten per sensor, each covariance
    comes from all rows that have both sensors. With very few rows the correlations are shrunk.
    ValueError for a sensor that has no value in one of the halves, or does not vary in the first.
    """
    first, test = table.split()
    complete, n = np.isfinite(first.values).all(axis=1), len(table.names)
    rows = first.values[complete] if complete.sum() > 10 * n else first.values
    frame = pd.DataFrame(rows, columns=list(table.names))
    shrinkage = "auto" if len(rows) <= 2 * n else 0.0
    model = GaussianModel.fit(frame, missing="pairwise", shrinkage=shrinkage)
    return model, test, len(first.values) - len(rows)


def _ascending(given: Sequence[Any] | None, usual: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(with_value(usual if given is None else given))
