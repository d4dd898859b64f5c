"""D2's process under kills, which reads few sensors again or, for comparison, all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.gaussian import GaussianModel
from aftlib.documents.checkpoint_planning.drivers import DriverRun, run_driver
from aftlib.documents.checkpoint_planning.operator import ReplayQuery
from aftlib.documents.checkpoint_planning.plan import RecoveryTime
from aftlib.documents.checkpoint_planning.state import CheckpointStore
from aftlib.recovery_comparison.cases import Case, Kill
from aftlib.recovery_comparison.workers import PARTS

SAMPLES = RecoveryTime(0, 1)
"""Counts samples instead of milliseconds: T_SLA is then the number that may be read again."""


def replay_query(case: Case) -> ReplayQuery:
    """Return D2's query.

    Its model is one of steps: the mean of `width` independent ones has the case's covariance. So
    windows have the case's model, even if the real steps depend on each other.
    """
    width = case.windows.width
    model = case.model
    step = GaussianModel(model.mean, model.covariance * width, model.names)
    budget = max(model.size, int(case.budget * width * model.size))
    return ReplayQuery(step, width, case.requirement, SAMPLES, budget)


def recover_partially(
    case: Case, directory: Path, schedule: Sequence[Kill], *, replays_all: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stream a case by D2's process under a schedule of kills; the frames of `recover_workers`.

    It is killed in the interval with most samples to read again, when the interval is read but not
    committed, or after the commit. Each process but the first recovers from the kill of the one
    before it, at that kill's rate. It reads its replay set, or all sensors if `replays_all`.
    """
    query = replay_query(case)
    width = case.windows.width
    log = case.write_log(directory / "log")
    state = directory / "state"
    worst = query.first_plan.times[int(np.argmax(query.first_plan.tuples))]
    runs = list[DriverRun]()
    rate = np.inf
    for kill in schedule:
        point = "committed" if kill.emitted else "replayed"
        place = (point, kill.window * width + worst)
        runs.append(run_driver(state, query, log, place, rate, replays_all=replays_all))
        rate = kill.rate
    runs.append(run_driver(state, query, log, None, rate, replays_all=replays_all))

    with CheckpointStore(state) as store:
        rows = recovery_rows(runs, schedule, store.records())
        results = store.results()
    # a process's first commit ends the recovery
    commits = [batch.committed - batch.estimated for run in runs for batch in run.batches[1:]]
    calm = pd.DataFrame({"rate": np.nan, "emitted": False, "commit_s": commits})
    emitted = results[["value"]].assign(
        window=results["start"] // width,
        sensor=results["key"].map(case.model.names.index),
        estimated=results["half_width"] > 0,
        writes=1,
    )
    return pd.concat([rows, calm], ignore_index=True), emitted


def recovery_rows(
    runs: Sequence[DriverRun], schedule: Sequence[Kill], records: pd.DataFrame
) -> pd.DataFrame:
    """Return one row per kill with its times: the columns of `Coordinator.process`.

    Each process but the first recovers from the kill of the one before it.
    """
    batches = pd.DataFrame([vars(run.recovered) for run in runs[1:]])
    at = batches.merge(records, on="batch")
    at["killed"] = [run.killed for run in runs[:-1]]
    rows = pd.DataFrame(map(vars, schedule))
    rows[PARTS] = np.diff(at[["killed", "restored", "replayed", "estimated", "committed"]])
    rows["seconds"] = at["committed"] - at["killed"]
    rows["again"] = at["tuples"].where(~rows["emitted"], 0)
    return rows
