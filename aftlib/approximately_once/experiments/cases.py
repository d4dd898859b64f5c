"""What D1's grid is run on: the document's block data, or somebody's real sensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from scipy.signal import lfilter

from aftlib.approximately_once.assignment import Assignment, assess, assign_greedy
from aftlib.approximately_once.pipeline import RECOVER, Query
from aftlib.core.checks import require_number, require_numbers, with_value
from aftlib.core.datasets import SensorTable, even_grid, read_table
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.sensorplan import SensorPlan, open_plan
from aftlib.core.windows import Windows
from aftlib.spark.sweep import write_samples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, WINDOWS = "rows are aggregates", "rows are samples"
PARTS = 10
WORKERS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)
PLANNED_WINDOWS = 1000
"""Windows that the query of a plan streams at least: its guard learns from the first hundreds."""
DOCUMENT = {
    "delta": 0.05,
    "dimensions": 120,
    "blocks": 10,
    "rows": 1000,
    "replications": 20,
    "width": 3,
    "slide": 1,
}
"""Of the document's experiment, as the notebook has them; of a plan's there are others."""
EPSILONS = (0.4, 0.5, 0.6, 0.65, 0.66, 0.67, 0.7, 0.75, 0.8, 0.9, 1.0, 1.5, 1.96)


@dataclass(frozen=True)
class Reading:
    """One way to read the data: which model the window aggregates have.

    By "rows are aggregates" it is the rows' own, by "rows are samples" it is Σ over the width.
    """

    name: str
    model: GaussianModel  # of the window aggregates
    windows: Windows


@dataclass(frozen=True)
class SensorCase:
    """A log with its readings and the grid of m and ε to try on it."""

    log: SensorLog  # evaluated; on real sensors the second half
    readings: dict[str, Reading]
    workers: tuple[int, ...]
    epsilons: tuple[float, ...]
    replications: int  # parts of the log beyond the first
    block: int | None  # consecutive windows resampled together; None for those that overlap
    about: dict[str, int]  # what a reader should see: rows, gaps, rows left out of the fit
    planned: SensorPlan | None = None  # whose workers, ε and δ a query has

    def query(self, workers: int, epsilon: float, delta: float, steps: int) -> Query:
        """Return a streaming query over the first `steps` of the log, its keys assigned greedily.

        ValueError where there is a plan, which has `planned_query`.
        """
        if self.planned is not None:
            raise ValueError(
                f"workers, epsilon and delta are the plan's, got {workers!r}, {epsilon!r} and "
                f"{delta!r}; call planned_query(steps)"
            )
        requirement = Requirement(epsilon, delta)
        model = self.readings[WINDOWS].model
        assignment = assign_greedy(model, workers, requirement, uneven=True)
        return self._query(assignment, requirement, steps)

    def planned_query(self, steps: int) -> Query:
        """Return the plan's query, with its workers, ε and δ, over `steps` or the least it needs.

        ValueError where there is no plan.
        """
        if self.planned is None:
            raise ValueError("planned must be a plan, got None; call query(workers, …)")
        requirement = Requirement(1.0, self.planned.delta)
        model, windows = self.readings[WINDOWS].model, self.readings[WINDOWS].windows
        assignment = assess(model, self.planned.workers, requirement)
        steps = max(steps, PLANNED_WINDOWS * windows.slide)
        return self._query(assignment, requirement, steps, self.planned.seasons)

    def _query(
        self,
        assignment: Assignment,
        requirement: Requirement,
        steps: int,
        seasons: tuple[float, ...] = (),
    ) -> Query:
        reading, stop = self.readings[WINDOWS], min(steps, self.log.steps)
        return Query(
            self.log,
            reading.windows,
            reading.model,
            assignment,
            requirement,
            every=-(-stop // 4),
            stop=stop,
            seasons=seasons,
        )


def check_parameters(
    *,
    workers: Sequence[int] | None,
    epsilons: Sequence[float] | None,
    delta: float,
    dimensions: int,
    blocks: int,
    rows: int,
    replications: int,
    width: int,
    slide: int,
    seed: int,
    data: str | None,
    time: str | None = None,
    resample: str | None = None,
    drop: Sequence[str] = (),
    pipeline_steps: int,
    recover: str | None = None,
    plan: str | None = None,
) -> None:
    """Raise a ValueError for what the notebook could not run to its end with."""
    if recover is not None and recover not in RECOVER:
        raise ValueError(f"recover must be one of {', '.join(RECOVER)}, got {recover!r}")
    require_number("delta", delta, above=0, below=1)
    require_number("seed", seed, least=0, whole=True)
    require_number("width", width, least=1, whole=True)
    require_number("slide", slide, least=1, most=width, whole=True)
    require_number("pipeline_steps", pipeline_steps, least=1, whole=True)
    streams = {"pipeline_steps": pipeline_steps}
    if epsilons is not None:
        require_numbers("epsilons", epsilons, above=0)
    if plan is not None:
        reading = {"data": data, "time": time, "resample": resample, "drop": drop}
        document = {"delta": delta, "dimensions": dimensions, "blocks": blocks, "rows": rows}
        document |= {"replications": replications, "width": width, "slide": slide}
        given = [name for name, value in document.items() if value != DOCUMENT[name]]
        given += [name for name, value in reading.items() if value]
        _check_plan(plan, given + ["workers"] * bool(workers) + ["epsilons"] * bool(epsilons))
        return
    if data is None:
        if time or resample or drop:
            raise ValueError(
                f"time, resample and drop are of a file, got {time!r}, {resample!r} and {drop!r}: "
                "name it by data"
            )
        require_number("dimensions", dimensions, least=2, most=5000, whole=True)
        require_number("blocks", blocks, least=1, most=dimensions, whole=True)
        require_number("replications", replications, least=1, whole=True)
        require_number("rows", rows, least=1, whole=True)
        n, streams = dimensions, streams | {"rows": rows}
        if n % blocks:
            raise ValueError(
                f"blocks must divide dimensions = {n}, got {blocks!r}; choose from {_divisors(n)}"
            )
    else:
        if not (isinstance(data, str) and Path(data).is_file()):
            raise ValueError(f"data must name a wide CSV or Parquet file, got {data!r}")
        model, test, _ = fitted(read_table(data, time, resample=resample, drop=drop))
        n, streams = model.size, streams | {f"a {PARTS}th of data": len(test.values) // PARTS}
        _require_whole("data", test, Windows(width, slide))
    for name, steps in streams.items():
        if steps < width:
            raise ValueError(
                f"{name} must hold a window of width = {width} steps, got {steps!r}; "
                "give more steps or a smaller width"
            )
    if workers is not None:
        require_numbers("workers", workers, least=1, most=n, whole=True)
        for m in workers:
            if n % m and data is None:
                raise ValueError(
                    f"workers must divide the {n} sensors, got {m!r}; choose from {_divisors(n)}"
                )


def _check_plan(plan: str, others: Sequence[str]) -> None:
    """Refuse a plan that cannot be run, or goes with what it has of its own."""
    if others:
        raise ValueError(f"plan must not go with {', '.join(others)}, got {plan!r}: it has its own")
    planned = open_plan(plan)
    _, test, _ = fitted(planned.table)
    if len(test.values) // PARTS < planned.windows.width:
        raise ValueError(
            f"plan must have data of which a {2 * PARTS}th holds a window of "
            f"{planned.windows.width} steps, got {len(planned.table.values)} steps; plan for more "
            "data, or smaller windows"
        )
    _require_whole("plan", test, planned.windows)


def _require_whole(name: str, test: SensorTable, windows: Windows) -> None:
    """Refuse real sensors that are hardly ever all there: nothing could be counted, or in one part.

    A part that is too short for any window is another matter.
    """
    part = len(test.values) // PARTS
    there = np.isfinite(test.values[: PARTS * part])
    whole = there.all(axis=1).reshape(PARTS, part)
    if part < windows.width:
        return
    runs = sliding_window_view(whole, windows.width, axis=1)[:, :: windows.slide]
    if np.any(np.all(runs, axis=2), axis=1).sum() < 2:
        rarest = test.names[int(there.mean(axis=0).argmin())]
        raise ValueError(
            f"{name} must have windows of {windows.width} steps in which no sensor misses a "
            f"sample, in two {PARTS}ths of its second half at least; {rarest!r} misses most: leave "
            "it out, take smaller windows, or resample to a longer period"
        )


def _divisors(n: int) -> list[int]:
    return [m for m in range(1, n + 1) if n % m == 0]


def block_case(
    spark: SparkSession,
    directory: Path,
    *,
    dimensions: int,
    blocks: int,
    rows: int,
    replications: int,
    seed: int,
    windows: Windows,
    workers: Sequence[int] | None = None,
    epsilons: Sequence[float] | None = None,
) -> SensorCase:
    """D1's data set (section 6.1): `rows` rows and as many for each replication.

    The log is kept under `directory`, keyed by its parameters, and reused when it is there.
    Without `workers` the document's m are tried, as far as they divide the sensors.
    """
    model, total = block_model(dimensions, blocks), rows * (1 + replications)
    name = f"blocks-n{dimensions}-b{blocks}-rows{total}-seed{seed}"
    log = write_samples(spark, model, total, seed, directory / name)
    usual = [m for m in WORKERS if dimensions % m == 0] or _divisors(dimensions)[1:]
    return SensorCase(
        log=log,
        readings=_readings(model, windows),
        workers=tuple(int(m) for m in with_value(usual if workers is None else workers)),
        epsilons=tuple(with_value(EPSILONS if epsilons is None else epsilons)),
        replications=replications,
        block=None,
        about={"rows": total, "sensors": dimensions},
    )


def sensor_case(
    file: Path | str,
    directory: Path,
    windows: Windows,
    workers: Sequence[int] | None = None,
    epsilons: Sequence[float] | None = None,
    *,
    time: str | None = None,
    resample: str | None = None,
    drop: Sequence[str] = (),
) -> SensorCase:
    """Real sensors: a model fitted on the first half of a wide file, the second half as log.

    `file`, `time`, `resample`, `drop` and what is refused are as in `datasets.read_table`. The log
    is kept under `directory`, keyed by the file's contents and how it is read. Any number of
    workers up to that of sensors will do: where it does not divide them, some have one sensor more.
    Default are up to ten numbers from 2 on, in about equal ratios; for `epsilons`, fractions of the
    median standard deviation. The intervals come from ten equal stretches of time.
    """
    table = read_table(file, time, resample=resample, drop=drop)
    how = repr((time, resample, list(drop))).encode()
    contents = sha256(Path(file).read_bytes() + how).hexdigest()[:12]
    path = directory / f"{Path(file).stem}-{contents}-second-half"
    return _table_case(table, path, windows, workers, epsilons)


def planned_case(file: Path | str, directory: Path) -> SensorCase:
    """The sensors of a plan.json in units of ε, so that the plan's own ε is 1; see `open_plan`.

    The log, kept under `directory`, is the second half. `query` follows the plan.
    """
    plan = open_plan(file)
    samples, _, left_out = fitted(plan.table)
    over, log = Reading(WINDOWS, plan.model, plan.windows), plan.write_log(directory)
    return SensorCase(
        log=log,
        readings={ROWS: Reading(ROWS, samples, Windows(1, 1)), WINDOWS: over},
        workers=tuple(_divisors(samples.size)[1:] or [1]),
        epsilons=(0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
        replications=PARTS - 1,
        block=max(1, log.steps // 200),
        about={"sensors": samples.size, **plan.table.quality.as_dict()}
        | {"incomplete rows left out of the fit": left_out},
        planned=plan,
    )


def drifting_case(directory: Path, windows: Windows, steps: int, seed: int) -> SensorCase:
    """Generated sensors that behave like real ones, with a log of `steps`, or 1000 if that is more.

    Twelve in two groups follow a slow common signal, each with a slow error of its own; halfway
    through the log the errors of three grow threefold. A model of single samples knows of neither.
    """
    rng, n, steps = np.random.default_rng(seed), 12, max(steps, 1000)
    common = lfilter([0.2], [1, -0.98], rng.normal(size=(2 * steps, 2)), axis=0)
    own = lfilter([0.15], [1, -0.9], rng.normal(size=(2 * steps, n)), axis=0)
    own[2 * steps - steps // 2 :, :3] *= 3
    values = common[:, np.arange(n) % 2] + own
    frame = pd.DataFrame(values, columns=[f"s{i + 1}" for i in range(n)])
    path = directory / f"drifting-{steps}-seed{seed}"
    return _table_case(even_grid(frame), path, windows, _divisors(n)[1:], None)


def _table_case(
    table: SensorTable,
    path: Path,
    windows: Windows,
    workers: Sequence[int] | None,
    epsilons: Sequence[float] | None,
) -> SensorCase:
    model, test, left_out = fitted(table)
    log = SensorLog.open(path) if path.exists() else test.write_log(path)
    deviation = float(np.sqrt(np.median(np.diag(model.covariance))))
    scale = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
    fractions = [float(f"{f * deviation:.2g}") for f in scale]
    counts = {"sensors": model.size, **table.quality.as_dict()}
    n = model.size
    usual = np.unique(np.geomspace(min(2, n), n, 10).round().astype(int)).tolist()
    return SensorCase(
        log=log,
        readings=_readings(model, windows),
        workers=tuple(int(m) for m in with_value(usual if workers is None else workers)),
        epsilons=tuple(with_value(fractions if epsilons is None else epsilons)),
        replications=PARTS - 1,
        block=max(1, log.steps // 200),
        about=counts | {"incomplete rows left out of the fit": left_out},
    )


def fitted(table: SensorTable) -> tuple[GaussianModel, SensorTable, int]:
    """Model of single samples from the first half of real sensors, and the second half.

    The model is of the complete rows. Where these are fewer than ten a sensor, all rows serve, each
    covariance by those that have it, and very few rows by shrinkage. Last comes the number of rows
    that could not serve. A ValueError tells of a sensor without a value in one of the halves, or
    that does not vary in the first.
    """
    first, test = table.split()
    complete, n = np.isfinite(first.values).all(axis=1), len(table.names)
    rows = first.values[complete] if complete.sum() > 10 * n else first.values
    frame = pd.DataFrame(rows, columns=list(table.names))
    shrinkage = "auto" if len(rows) <= 2 * n else 0.0
    model = GaussianModel.fit(frame, missing="pairwise", shrinkage=shrinkage)
    return model, test, len(first.values) - len(rows)


def _readings(model: GaussianModel, windows: Windows) -> dict[str, Reading]:
    over = model.aggregate(windows.width, windows.query)
    rows = Reading(ROWS, model, Windows(1, 1))
    return {ROWS: rows, WINDOWS: Reading(WINDOWS, over, windows)}
