"""Real recoveries, one after another in a running process, and whether they keep T_SLA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from aftlib.checkpoint_planning.experiments.cases import Case
from aftlib.checkpoint_planning.operator import PartialReplay, Preparation, Read, ReplayQuery
from aftlib.checkpoint_planning.pipeline import check_keys
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.sqlite import SqliteCheckpoints
from aftlib.core.intervals import CONFIDENCE
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog

TUPLES = RecoveryTime(0, 1)
"""Counts tuples instead of milliseconds, for measuring before a machine's times are known."""
_DEAD, _ALIVE = "the process that died", "the one that goes on"
_RECORDED = ("start", "stop", "sensors", "res_ms", "rep_ms", "est_ms")


def queries(
    case: Case,
    epsilon: float,
    delta: float,
    budgets: Sequence[int],
    recovery_time: RecoveryTime = TUPLES,
) -> list[ReplayQuery]:
    """The case's query with a T_SLA for each budget: what replaying so many tuples takes."""
    asked, windows = Requirement(epsilon, delta), case.windows
    return [
        ReplayQuery(
            case.model, windows.width, asked, recovery_time, recovery_time(b), query=windows.query
        )
        for b in budgets
    ]


def recoveries(
    queries: Sequence[ReplayQuery],
    log: SensorLog,
    read: Read,
    scratch: Path,
    count: int,
    seed: int,
    chance: float = 0.8,
) -> pd.DataFrame:
    """Recover `count` failed intervals under each query: restore, replay O, estimate, plan anew.

    Queries take turns; one more recovery of each comes first and is not recorded, for whatever is
    slower the first time.

    The stream runs over the log's windows, again from the start when they are through. An interval
    fails by chance: another process is on record as having begun it, as after a crash, so the
    operator treats it as it would then. What Spark needs to restart is no part of T_rec.

    Parameters
    ----------
    queries : sequence of ReplayQuery
        They share the model and differ in T_SLA.
    log : SensorLog
        Holds a window at least.
    read : callable
        `bare_read` or `spark_read` of the log.
    scratch : path
        New directory for the states.
    count, seed : int
        Recoveries of each query; of the failures.
    chance : float
        Probability that an interval fails, above 0.

    Returns
    -------
    DataFrame
        t_sla_ms, window, start, stop, sensors, tuples, res_ms, rep_ms, est_ms, total_ms; one row a
        recovery.

    Raises
    ------
    ValueError
        When the log holds no window, its keys are not the model's, or chance is not in (0, 1].
    """
    if not 0 < chance <= 1:
        raise ValueError(f"chance must lie inside (0, 1], got {chance!r}; nothing fails by 0")
    for query in queries:
        check_keys(query, log)
        if log.steps < query.window:
            raise ValueError(
                f"log must hold a window of {query.window} steps, got {log.steps}; write more rows"
            )
    streams = [
        _Stream(query, log, read, scratch / str(i), np.random.default_rng([seed, i]), chance)
        for i, query in enumerate(queries)
    ]
    # the first recovery of each warms up; taking turns spreads what else the machine does
    rows = [stream.recovery() for _ in range(count + 1) for stream in streams][len(streams) :]
    return pd.DataFrame(rows).assign(
        tuples=lambda t: t["sensors"] * (t["stop"] - t["start"]),
        total_ms=lambda t: t[["res_ms", "rep_ms", "est_ms"]].sum(axis=1),
    )


@dataclass
class _Stream:
    """One query's stream over the log, again and again; each pass has a state of its own."""

    query: ReplayQuery
    log: SensorLog
    read: Read
    scratch: Path
    rng: np.random.Generator
    chance: float
    passes: int = 0
    batch: int = 0

    def __post_init__(self) -> None:
        self._restart()

    def recovery(self) -> dict[str, float]:
        """Go on until an interval has failed and been recovered; what that took."""
        while True:
            if self.position >= self.log.steps - self.log.steps % self.query.window:
                self._restart()
            failed = self.rng.random() < self.chance
            if failed:
                self.store.begin(self.batch, self.position, _DEAD)
            self.operator.process(self.batch, self.read)
            self.batch += 1
            if failed:
                record = asdict(self.store.records()[-1])
                kept = {name: record[name] for name in _RECORDED}
                return {"t_sla_ms": self.query.t_sla_ms, "window": self.query.window} | kept

    @property
    def position(self) -> int:
        checkpoint = self.store.restore()
        return 0 if checkpoint is None else checkpoint.position

    def _restart(self) -> None:
        directory = self.scratch / str(self.passes)
        directory.mkdir(parents=True)
        self.store = SqliteCheckpoints(directory / "state.sqlite", self.query.fingerprint)
        prepared = Preparation(directory / "prepared")
        self.operator = PartialReplay(self.query, self.store, prepared, _ALIVE)
        self.passes, self.batch = self.passes + 1, 0


def t_sla_kept(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of recoveries that took at most T_SLA, with its exact binomial interval.

    Parameters
    ----------
    frame : DataFrame
        Result of `recoveries`.

    Returns
    -------
    DataFrame
        t_sla_ms, recoveries, kept, share, low, high (Clopper and Pearson), median_ms, longest_ms.
    """
    rows = []
    for t_sla, group in frame.groupby("t_sla_ms"):
        kept, total = int((group["total_ms"] <= t_sla).sum()), len(group)
        interval = binomtest(kept, total).proportion_ci(CONFIDENCE)
        times = {"median_ms": group["total_ms"].median(), "longest_ms": group["total_ms"].max()}
        share = {"share": kept / total, "low": interval.low, "high": interval.high}
        rows.append({"t_sla_ms": t_sla, "recoveries": total, "kept": kept} | share | times)
    return pd.DataFrame(rows)
