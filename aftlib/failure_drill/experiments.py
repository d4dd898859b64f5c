"""What notebook 07 runs: every scheme through one drill, a row each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.core.paths import data_dir
from aftlib.failure_drill.coordinators import COORDINATORS
from aftlib.failure_drill.drill import Drill, Run, drill, tallied
from aftlib.failure_drill.drivers import METHODS, PROPOSED, replay
from aftlib.failure_drill.nodes import REAL, STANDBY, Stood, simulated, stand_by
from aftlib.failure_drill.pace import WARM, Pace, overhead, pace
from aftlib.failure_drill.schedule import Strike, drawn
from aftlib.failure_drill.stages import SHARED, share
from aftlib.reports.parameter_model import ParameterModel, parameter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Drilled", "NotebookParameters", "drill", "drilled", "last_soak", "schedule_table"]

SCHEMES = (
    *("no fault tolerance", "at most once", "at least once", "exactly once"),
    *("D1 by model", "D1 by guard", *METHODS, SHARED, *COORDINATORS),
)
BUDGET = 0.15
"""Of a window's samples, what D2 may read again within T_SLA."""
SOAK = "soak.json"
"""Name of the file in ``data`` that holds the last soak's result (`make soak`)."""
LEAST_OF_D2 = 7
"""Steps of a window of which D2 may read one again whole, within its budget."""


@dataclass(frozen=True)
class Drilled:
    """What came of a drill, a row of the table a scheme; missing is what does not apply.

    Counts are of (window, sensor): due, lost, doubled, estimated, wrong; within, share_low,
    share_high: of the estimates, those within ε; largest_error in ε; audited, wrong_promises,
    bound: the guard's own account; rows, again: samples read, and read again; planned, read: shares
    of what an exact recovery reads of the same kills; restart_ms, rework_ms, recovery_ms: medians;
    latency_s, throughput_s: medians until normal again; worst: longest latency meanwhile over the
    normal one; unsteady; kept_bytes, sent_bytes; overhead, overhead_low, overhead_high;
    checkpoint_ms: median time of one of D2's.
    """

    drill: Drill
    table: pd.DataFrame
    paces: Mapping[str, Pace]  # of the schemes that have micro-batches


class NotebookParameters(ParameterModel):
    """What notebook 07 runs with."""

    sensors: int = parameter(24, "in three groups that go together", least=12)
    workers: int = parameter(4, least=2)
    width: int = parameter(20, "window, steps", least=4, smoke=10, full=100)
    windows: int = parameter(440, "of the stream", least=40, smoke=110, full=1600)
    batch_windows: int = parameter(20, "of a micro-batch", least=5, smoke=10)
    calm: float = parameter(
        0.55,
        "share of the stream before the first strike; the guard learns in it",
        above=0,
        below=1,
        smoke=0.4,
        full=0.3,
    )
    strikes: int = parameter(6, "at least; the last event is whole", least=1, smoke=3, full=36)
    epsilon_sd: float = parameter(
        0.8, "largest error ε, standard deviations of a window's mean", above=0
    )
    delta: float = parameter(0.05, "share δ of the estimates that may be wrong", above=0, below=1)
    stall_s: float = parameter(
        0.5, "how long a process that is stopped stands still", above=0, most=60
    )
    schemes: list[str] = parameter(
        [*SCHEMES],
        "in the order of the table",
        smoke=[*SCHEMES[:5], PROPOSED, SHARED],
    )
    seed: int = parameter(1, "of the stream and the schedule", least=0)

    @model_validator(mode="after")
    def fit_together(self) -> Self:
        """Refuse what the notebook could not run to its end with."""
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
        drawn(self.strikes, self.workers, int(self.calm * steps), steps, every, self.seed)
        return self


def last_soak() -> dict | None:
    """Return the result that `make soak` stored last; None where there is none."""
    path = data_dir() / SOAK
    return json.loads(path.read_text()) if path.exists() else None


def schedule_table(drill: Drill) -> pd.DataFrame:
    """The schedule, a row an event: form, signal, micro-batch, steps, workers."""
    rows = [
        {
            "event": one[0].number + 1,
            "form": one[0].form,
            "signal": one[0].signal.name,
            "micro-batch": drill.batch_of(one[0].step),
            "at steps": ", ".join(str(s.step) for s in one),
            "workers": ", ".join(str(s.worker) for s in one),
        }
        for one in events_of(drill)
    ]
    return pd.DataFrame(rows).set_index("event")


def events_of(drill: Drill) -> list[list[Strike]]:
    """The strikes of each event."""
    return [list(one) for _, one in groupby(drill.strikes, key=lambda strike: strike.number)]


def struck_batches(drill: Drill) -> list[tuple[int, int]]:
    """First and last micro-batch of each event."""
    return [(drill.batch_of(one[0].step), drill.batch_of(one[-1].step)) for one in events_of(drill)]


def drilled(
    spark: SparkSession,
    drill: Drill,
    directory: Path,
    schemes: Sequence[str],
    seed: int,
) -> Drilled:
    """Put schemes of `SCHEMES` through a drill, then D4's ways to stand by; `Drilled`.

    The `directory` is a new one. While nothing fails, no fault tolerance, at most once and at least
    once do the same: the overhead of the others on Spark is over the micro-batches of all three.
    """
    from aftlib.failure_drill.pipeline import NONE, ON_SPARK, RELAYED, stream

    rows, paces, rng = list[dict](), dict[str, Pace](), np.random.default_rng(seed)
    budget, events = int(BUDGET * drill.windows.width * drill.model.size), struck_batches(drill)
    warm = replace(drill, strikes=())
    stream(spark, NONE, warm, directory / "warm", (WARM + 1) * drill.every)
    for name in schemes:
        place = directory / name.replace(" ", "-")
        if name in ON_SPARK:
            run = stream(spark, name, drill, place)
        elif name in METHODS:
            run = replay(drill, name, budget, place)
        else:
            run = COORDINATORS.get(name, share)(drill, place)
        rows.append({"scheme": name} | run_row(drill, run, rng))
        if run.progress:
            paces[name] = pace(run.progress, events)
            rows[-1] |= measured_pace(paces[name])

    for scheme in REAL:
        rows.append(stood_row(f"D4 {scheme.name}", "measured", stand_by(drill, scheme), drill))
    for scheme in STANDBY:
        name = f"D4 {scheme.name}, simulated"
        rows.append(stood_row(name, "simulated", simulated(drill, scheme, seed), drill))
    table = pd.DataFrame(rows).set_index("scheme").reindex(columns=COLUMNS)
    calm = slice(WARM, events[0][0])
    plain = np.concatenate([paces[n].service_s[calm] for n in RELAYED if n in paces])
    for name in (n for n in schemes if n in ON_SPARK and n not in RELAYED):
        table.loc[name, [*OVERHEAD]] = overhead(paces[name].service_s[calm], plain, rng)
    return Drilled(drill, table, paces)


OVERHEAD = ("overhead", "overhead_low", "overhead_high")
COLUMNS = [
    *("basis", "strikes", "due", "lost", "doubled", "estimated", "wrong"),
    *("within", "share_low", "share_high", "largest_error", "audited", "wrong_promises", "bound"),
    *("rows", "again", "planned", "read", "restart_ms", "rework_ms", "recovery_ms"),
    *("latency_s", "throughput_s", "worst", "unsteady", "kept_bytes", "sent_bytes", *OVERHEAD),
    "checkpoint_ms",
]


def run_row(drill: Drill, run: Run, rng: np.random.Generator) -> dict[str, object]:
    """A row of what a scheme left."""
    drill = run.part or drill
    row = {"basis": "measured", "strikes": run.fallen, **asdict(tallied(drill, run.came, rng))}
    row |= {"rows": drill.rows, "again": run.rows_again, "kept_bytes": run.kept_bytes, **run.more}
    if len(run.recoveries):
        medians = run.recoveries[["restart_ms", "rework_ms"]].median()
        row |= {**medians, "recovery_ms": float(medians.sum())}
    return row


def measured_pace(found: Pace) -> dict[str, float]:
    """The medians of a pace over its events."""
    return {
        "latency_s": float(np.median(found.latency_again_s)),
        "throughput_s": float(np.median(found.throughput_again_s)),
        "worst": float(np.median(found.worst_s) / found.normal_s),
        "unsteady": found.unsteady,
    }


def stood_row(name: str, basis: str, stood: Stood, drill: Drill) -> dict[str, object]:
    """A row of D4: a window is lost, or doubled, for all of its sensors."""
    n = drill.model.size
    restart, rework = (float(np.median(p)) for p in (stood.unnoticed_ms, stood.rework_ms))
    due = stood.tuples // drill.windows.width * n
    return {
        "scheme": name, "basis": basis, "strikes": stood.fallen, "due": due,
        "lost": stood.lost * n, "doubled": stood.doubled * n, "estimated": 0, "wrong": 0,
        "rows": stood.tuples * n, "again": stood.again * n,
        "restart_ms": restart, "rework_ms": rework, "recovery_ms": restart + rework,
        "overhead": stood.sent_share,
    }  # fmt: skip
