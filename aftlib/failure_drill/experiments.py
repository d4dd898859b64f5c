"""The experiments of notebook 07: every scheme under one drill, one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.core.paths import data_dir
from aftlib.failure_drill.metrics import (
    WARM,
    RecoveryMetrics,
    Run,
    overhead,
    recovery_metrics,
    score_run,
)
from aftlib.failure_drill.schedule import (
    Drill,
    draw_drill,
    draw_schedule,
    pattern_of,
    worker_of,
)
from aftlib.failure_drill.schemes_process import (
    METHODS,
    REAL,
    SHARED,
    STANDBY,
    SUPERVISOR,
    killed_supervisor,
    partial_replay,
    shared_state,
    simulated_standby,
    standby,
)
from aftlib.workbench.parameters import ParameterModel, parameter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = "D1, its driver killed"
SCHEMES = (
    *("no fault tolerance", "at most once", "at least once", "exactly once"),
    *("D1 by model", "D1 by guard", *METHODS, SHARED, DRIVER, SUPERVISOR),
)
BUDGET = 0.15
"""Share of a window's samples that D2 may read again within T_SLA."""
CALM_BATCHES = 6
"""Micro-batches of an undisturbed run."""
LEAST_OF_D2 = 7
"""Shortest window in which the budget lets D2 read one whole step again."""
COLUMNS = [
    *("basis", "faults", "due", "lost", "doubled"),
    *("estimated", "estimated_windows", "wrong"),
    *("within", "share_low", "share_high", "largest_error", "audited", "wrong_promises", "bound"),
    *("rows", "again", "planned", "read", "restart_ms", "rework_ms", "recovery_ms"),
    *("latency_s", "throughput_s", "worst", "unsteady", "stored_bytes", "sent_bytes"),
    *("overhead", "overhead_low", "overhead_high", "checkpoint_ms"),
]


@dataclass(frozen=True)
class DrillResult:
    """The table of a drill, one row per scheme; a column that does not apply is missing.

    due, lost, doubled, estimated, wrong: counts of (window, sensor); estimated_windows: windows
    with estimates; within: share of the estimates within ε, with the interval share_low …
    share_high; largest_error: in ε; audited, wrong_promises, bound: estimates that the guard has
    checked, wrong guarantees among them, and their bound; rows, again: samples of the stream, and
    samples read again; planned, read: planned and measured samples read again, divided by those
    that an exact recovery reads after the same kills; restart_ms, rework_ms, recovery_ms: medians;
    latency_s, throughput_s: median seconds until normal again; worst: the longest latency after an
    event divided by the normal one, median over the events; unsteady: slow micro-batches
    afterwards; stored_bytes, sent_bytes; overhead, overhead_low, overhead_high: D1's by
    `calm_runs`, D4's by its traffic; checkpoint_ms: median time of a checkpoint of D2.
    """

    drill: Drill
    table: pd.DataFrame
    metrics: Mapping[str, RecoveryMetrics]  # of the schemes that have micro-batches
    turns: int = 0  # undisturbed runs of each scheme, from which its overhead follows


class NotebookParameters(ParameterModel):
    """Parameters of notebook 07."""

    sensors: int = parameter(24, "in three correlated groups", least=12)
    workers: int = parameter(4, least=2)
    width: int = parameter(20, "window, steps", least=4, smoke=10, full=100)
    windows: int = parameter(440, "of the stream", least=40, smoke=110, full=1600)
    batch_windows: int = parameter(20, "of a micro-batch", least=5, smoke=10, full=10)
    calm: float = parameter(
        0.55,
        "share of the stream before the first fault; the guard learns in it",
        above=0,
        below=1,
        smoke=0.4,
        full=0.3,
    )
    faults: int = parameter(
        6,
        "fewest faults; there may be one more, because two faults of an event stay together",
        least=1,
        smoke=3,
        full=36,
    )
    epsilon_sd: float = parameter(
        0.8, "largest error ε, standard deviations of a window's mean", above=0
    )
    delta: float = parameter(0.05, "share δ of the estimates that may be wrong", above=0, below=1)
    pause_s: float = parameter(0.5, "how long a paused process stands still", above=0, most=60)
    schemes: list[str] = parameter(
        [*SCHEMES],
        "in the order of the table",
        smoke=[*SCHEMES[:5], "D2 proposed", SHARED],
    )
    turns: int = parameter(
        3, "undisturbed runs of each scheme, for its overhead", least=2, smoke=2, quick=2, full=20
    )
    seed: int = parameter(1, "of the stream and the schedule", least=0)

    @model_validator(mode="after")
    def fit_together(self) -> Self:
        """Refuse parameters with which the notebook could not run to its end."""
        schemes = self.schemes
        if self.sensors % 3 or self.sensors % self.workers:
            raise ValueError(
                f"sensors must be a multiple of 3 and of workers = {self.workers}, "
                f"got {self.sensors}"
            )
        if self.calm * self.windows < (WARM + 2) * self.batch_windows:
            raise ValueError(
                f"calm must leave {WARM + 2} micro-batches undisturbed, got {self.calm}: raise it, "
                "or take more windows or smaller micro-batches"
            )
        if not schemes or any(SCHEMES.count(one) != schemes.count(one) for one in schemes):
            raise ValueError(
                f"schemes must be a list of some of {[*SCHEMES]}, each once, got {schemes!r}"
            )
        if schemes[0] != SCHEMES[0] or "exactly once" not in schemes:
            raise ValueError(
                f"schemes must begin with {SCHEMES[0]!r} and hold 'exactly once', which all others "
                f"are compared with, got {schemes}"
            )
        partial = [one for one in schemes if one in METHODS]
        if partial and self.width < LEAST_OF_D2:
            raise ValueError(
                f"width must be at least {LEAST_OF_D2} for {partial[0]!r}, which may read "
                f"{BUDGET:.0%} of a window again and needs a whole step, got {self.width}: raise "
                f"it, or leave out {partial}"
            )
        every, steps = self.width * self.batch_windows, self.width * self.windows
        begin = int(self.calm * steps)
        draw_schedule(self.faults, self.workers, begin, steps, every, self.pause_s, self.seed)
        return self

    @property
    def drill(self) -> Drill:
        """The drill with these parameters, its stream in the data folder."""
        return draw_drill(data_dir(), **self.model_dump(exclude={"schemes", "turns"}))


def schedule_table(drill: Drill) -> pd.DataFrame:
    """The schedule, one row per event: pattern, kind, micro-batch, steps, workers."""
    rows = [
        {
            "event": event[0].event + 1,
            "pattern": pattern_of(event),
            "kind": event[0].kind,
            "micro-batch": drill.batch_of(event[0].step),
            "at steps": ", ".join(str(fault.step) for fault in event),
            "workers": ", ".join(str(worker_of(fault)) for fault in event),
        }
        for event in drill.events
    ]
    return pd.DataFrame(rows).set_index("event")


def run_scheme(spark: SparkSession, name: str, drill: Drill, directory: Path) -> Run:
    """Run one of `SCHEMES` under a drill in a new directory."""
    from aftlib.failure_drill import schemes_spark

    if name in schemes_spark.ON_SPARK:
        return schemes_spark.stream(spark, name, drill, directory)
    if name in METHODS:
        budget = int(BUDGET * drill.windows.width * drill.model.size)
        return partial_replay(drill, directory, name, budget)
    schemes = {SHARED: shared_state, SUPERVISOR: killed_supervisor}
    schemes[DRIVER] = schemes_spark.killed_driver
    return schemes[name](drill, directory)


def run_drill(
    spark: SparkSession,
    drill: Drill,
    directory: Path,
    schemes: Sequence[str],
    turns: int,
    seed: int,
) -> DrillResult:
    """Run schemes of `SCHEMES` under a drill, then D4's standby schemes, then `calm_runs`.

    The directory must be new.
    """
    from aftlib.failure_drill.schemes_spark import NONE, stream

    rng = np.random.default_rng(seed)
    events, rows, metrics = drill.event_batches, dict[str, dict](), dict[str, RecoveryMetrics]()
    warm = replace(drill, schedule=())
    stream(spark, NONE, warm, directory / "warm", (WARM + 1) * drill.every)
    for name in schemes:
        run = run_scheme(spark, name, drill, directory / name.replace(" ", "-"))
        rows[name] = score_run(drill, run, rng)
        if run.progress:
            metrics[name] = recovery_metrics(run.progress, events)
            rows[name] |= metrics[name].columns
    for scheme in REAL:
        rows[f"D4 {scheme.name}"] = score_run(drill, standby(drill, scheme), rng)
    for scheme in STANDBY:
        run = simulated_standby(drill, scheme, seed)
        rows[f"D4 {scheme.name}, simulated"] = score_run(drill, run, rng)

    seconds = calm_runs(spark, drill, directory, schemes, turns)
    for name in seconds.columns.drop(NONE):
        rows[name] |= overhead(seconds[name].to_numpy(), seconds[NONE].to_numpy())
    table = pd.DataFrame.from_dict(rows, orient="index").reindex(columns=COLUMNS)
    return DrillResult(drill, table.rename_axis("scheme"), metrics, turns)


def calm_runs(
    spark: SparkSession, drill: Drill, directory: Path, schemes: Sequence[str], turns: int
) -> pd.DataFrame:
    """Median seconds of a micro-batch while nothing fails, one row per turn.

    There is one column for each of D1's schemes and for no fault tolerance. Each turn runs all of
    them and begins with another scheme, because the load of the machine changes.
    """
    from aftlib.failure_drill.schemes_spark import GUARD, MODEL, NONE, stream

    calm, names = replace(drill, schedule=()), [n for n in (NONE, MODEL, GUARD) if n in schemes]
    stop, rows = min(CALM_BATCHES * drill.every, drill.log.steps), list[dict[str, float]]()
    for turn in range(turns):
        first = turn % len(names)
        row = dict[str, float]()
        for name in names[first:] + names[:first]:
            place = directory / f"calm {turn} {name}".replace(" ", "-")
            run = stream(spark, name, calm, place, stop)
            row[name] = float(np.median(np.diff([at for _, at in run.progress])[WARM:]))
        rows.append(row)
    return pd.DataFrame(rows)[names]
