"""D2's process under kills, which reads few sensors again or, for comparison, all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd

from aftlib.core.gaussian import GaussianModel
from aftlib.documents.checkpoint_planning.drivers import Passage, run_driver
from aftlib.documents.checkpoint_planning.operator import ReplayQuery
from aftlib.documents.checkpoint_planning.plan import RecoveryTime
from aftlib.documents.checkpoint_planning.state import CheckpointStore
from aftlib.recovery_comparison.cases import Case, Kill
from aftlib.recovery_comparison.schemes import EXACT_PROCESS
from aftlib.recovery_comparison.workers import PARTS

SAMPLES = RecoveryTime(0, 1)
"""Counts samples instead of milliseconds: T_SLA is then the number that may be read again."""


class Point(StrEnum):
    """The points of D2's process at which its times are taken."""

    BEGUN = "begun"
    RESTORED = "restored"
    REPLAYED = "replayed"
    ESTIMATED = "estimated"
    COMMITTED = "committed"


@dataclass(frozen=True)
class RecoveredBatch:
    """The first batch of a process, which recovers the batch that the last process lost.

    Times are seconds of the monotonic clock.
    """

    batch: int
    restored: float
    replayed: float
    estimated: float
    committed: float

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> Self:
        """Return the first batch that a process begins and commits; ValueError without one."""
        begun = [passage.batch for passage in passages if passage.point == Point.BEGUN]
        at = {p.point: p.at for p in passages if p.batch == begun[0]} if begun else {}
        if Point.COMMITTED not in at:
            points = [passage.point for passage in passages]
            raise ValueError(
                f"passages must hold a batch from {Point.BEGUN!s} to {Point.COMMITTED!s}, got "
                f"{points}: kill the process later"
            )
        return cls(
            batch=begun[0],
            restored=at[Point.RESTORED],
            replayed=at[Point.REPLAYED],
            estimated=at[Point.ESTIMATED],
            committed=at[Point.COMMITTED],
        )


def undisturbed_commits(passages: Sequence[Passage]) -> list[float]:
    """Return the seconds of a process's commits but the first, which ends the recovery."""
    commits = [
        after.at - before.at
        for before, after in pairwise(passages)
        if (before.point, after.point) == (Point.ESTIMATED, Point.COMMITTED)
    ]
    return commits[1:]


def replay_query(case: Case) -> ReplayQuery:
    """Return D2's query.

    Its model is one of steps: the mean of `width` independent ones has the case's covariance. So
    windows have the case's model, even if the real steps depend on each other.
    """
    width, model = case.windows.width, case.model
    step = GaussianModel(model.mean, model.covariance * width, model.names)
    budget = max(model.size, int(case.budget * width * model.size))
    return ReplayQuery(step, width, case.requirement, SAMPLES, budget)


def recover_partially(
    case: Case, scheme: str, directory: Path, schedule: Sequence[Kill]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stream a case by D2's process under a schedule of kills; the frames of `recover_workers`.

    It is killed in the interval with most samples to read again, when the interval is read but not
    committed, or after the commit. Each process but the first recovers from the kill of the one
    before it, at that kill's rate. `scheme` is `PARTIAL` or `EXACT_PROCESS`.
    """
    query, width = replay_query(case), case.windows.width
    log, state = case.write_log(directory / "log"), directory / "state"
    worst = query.first_plan.times[int(np.argmax(query.first_plan.tuples))]
    processes = list[list[Passage]]()
    rate = np.inf
    for kill in schedule:
        point = "committed" if kill.emitted else "replayed", kill.window * width + worst
        processes.append(run_driver(state, query, log, point, rate, scheme == EXACT_PROCESS))
        rate = kill.rate
    processes.append(run_driver(state, query, log, None, rate, scheme == EXACT_PROCESS))

    store = CheckpointStore(state)
    rows = recovery_rows(processes, schedule, store.records())
    commits = [seconds for passages in processes for seconds in undisturbed_commits(passages)]
    calm = pd.DataFrame({"rate": np.nan, "emitted": False, "commit_s": commits})
    results = store.results()
    number = {name: i for i, name in enumerate(case.model.names)}
    emitted = results[["value"]].assign(
        window=results["start"] // width,
        sensor=results["key"].map(number),
        estimated=results["half_width"] > 0,
        writes=1,
    )
    return pd.concat([rows, calm], ignore_index=True), emitted


def recovery_rows(
    processes: Sequence[Sequence[Passage]], schedule: Sequence[Kill], records: pd.DataFrame
) -> pd.DataFrame:
    """Return one row per kill with its times: the columns of `Coordinator.process`.

    Each process but the first recovers from the kill of the one before it.
    """
    batches = pd.DataFrame(map(vars, map(RecoveredBatch.of, processes[1:])))
    at = batches.merge(records, on="batch")
    at["killed"] = [passages[-1].at for passages in processes[:-1]]
    rows = pd.DataFrame(map(vars, schedule))
    rows[PARTS] = np.diff(at[["killed", "restored", "replayed", "estimated", "committed"]])
    rows["seconds"] = at["committed"] - at["killed"]
    rows["again"] = at["tuples"].where(~rows["emitted"], 0)
    return rows
