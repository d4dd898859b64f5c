"""Kills of a task, of servers, and of a broken control: wrong sums, and tuples read again (D3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from aftlib.core.intervals import share_interval
from aftlib.core.windows import Windows
from aftlib.documents.shared_state.parsing import TupleSource
from aftlib.documents.shared_state.server import Job, read_journal
from aftlib.documents.shared_state.strategies import run_job
from aftlib.documents.shared_state.sums import Partials
from aftlib.documents.shared_state.table import Segments, SqliteTable
from aftlib.documents.shared_state.tuples import TupleStream, draw_log
from aftlib.notebook.texts import percent
from aftlib.spark.faults import Fault, Injector

#: What is killed; the last is the broken control (`OffsetsApart`).
TASK = "task"
SERVER = "server"
BROKEN = "server, offsets apart"
#: Points of a server at which it is killed: after each step of a checkpoint.
POINTS = ("merged", "flushed", "committed", "dropped")
#: What is killed, and the point of its work at which it is.
CASES = ((TASK, "read"), *((SERVER, point) for point in POINTS), (BROKEN, "between"))
KILL_WINDOWS = Windows(100, 50)
KILL_DISORDER = 10
SERVERS = 2
TASKS_EACH = 2
BATCH = 2_000


class OffsetsApart(SqliteTable):
    """The broken control: it commits an epoch's sums, and then its offsets apart from them."""

    def __init__(self, path: Path, injector: Injector) -> None:
        super().__init__(path)
        self.injector = injector

    def commit(self, server: str, epoch: int, partials: Partials, segments: Segments) -> bool:
        """Merge an epoch in two transactions, between which the server may be killed."""
        with self._transaction():
            self._merge(partials)
        self.injector.reach(server, epoch, "between")
        return super().commit(server, epoch, partials[:0], segments)


class Missed(RuntimeError):
    """The fault did not hit a process, because the job ended before."""


def run_kills(
    spark: SparkSession, directory: Path, tuples: int, seed: int, turns: int
) -> pd.DataFrame:
    """Kill a task's thread, and a server at four points, of two servers with two tasks each.

    Columns killed: what; point; turn; wrong: sums that are missing or differ from those of the
    stream (`true_sums`); again: tuples read again; disturbed: healthy tasks that started or read
    again; behind_a_shuffle: tuples that healthy tasks would get twice if the tuples read again
    passed a shuffle (fig. 1), computed: the share of keys that healthy tasks have.
    """
    rng = np.random.default_rng([seed, 3])
    stream = TupleStream(tuples, 1_000, 1.2, seed, rate=1_000, disorder=KILL_DISORDER)
    log = draw_log(directory / "log", stream, SERVERS * TASKS_EACH)
    source = TupleSource(log, KILL_WINDOWS, KILL_DISORDER)
    true = true_sums(stream)
    rows = []
    for turn, (killed, point) in product(range(turns), CASES):
        steps = sorted({int(rng.integers(1, 3)), 1}, reverse=True)
        if killed == TASK:
            steps = [int(rng.integers(1, 20))]
        for step in steps:  # on a busy machine a server may have one checkpoint only, its last
            place = directory / f"{turn}-{point}-{step}"
            try:
                row = run_killed(spark, job_to_kill(source, place, killed, point, step), true)
                break
            except Missed:
                if step == steps[-1]:
                    raise
        rows.append({"killed": killed, "point": point, "turn": turn} | row)
    return pd.DataFrame(rows)


def job_to_kill(source: TupleSource, place: Path, killed: str, point: str, step: int) -> Job:
    """Return a job with one fault; that of the broken control commits offsets apart from sums."""
    path = place / "shared.sqlite"
    fault = Fault("kill", "server-0", step, point)
    if killed == TASK:
        fault = Fault("stop", "task-0-1", step, point)
    job = Job(
        source,
        place,
        partial(SqliteTable, path),
        servers=SERVERS,
        tasks=TASKS_EACH,
        batch=BATCH,
        checkpoint_s=0.0,
        faults=(fault,),
        journal=True,
    )
    if killed == BROKEN:
        return replace(job, table=partial(OffsetsApart, path, job.injector))
    return job


def run_killed(
    spark: SparkSession, job: Job, true: Mapping[tuple[int, int], int]
) -> dict[str, int]:
    """Run a job with one fault; count wrong sums, tuples read again, and disturbed tasks."""
    run_job(spark, job)
    (fault,) = job.faults
    if not job.injector.injected(fault):
        raise Missed(f"{fault} must hit a process, but the job ended before: take more tuples")
    with job.table() as shared:
        results = shared.results().itertuples(index=False)
        progress = shared.progress()
    sums = {(window, key): value for window, key, value in results}
    journal = pd.DataFrame(read_journal(job.directory)).groupby("task")
    # one partition per task
    due = {f"task-{p // job.tasks}-{p % job.tasks}": now.tuples for p, now in progress.items()}
    again = journal["tuples"].sum() - pd.Series(due)
    restarted = journal["process"].agg(set).map(len) > 1
    healthy = ~again.index.str.startswith(fault.target.replace("server", "task"))
    share = int(healthy.sum()) / len(due)  # of the keys, which a hash function spreads evenly
    return {
        "wrong": len(set(sums.items()) ^ set(true.items())),
        "again": int(again.sum()),
        "disturbed": int(((again > 0) | restarted)[healthy].sum()),
        "behind_a_shuffle": round(int(again.sum()) * share),
    }


def true_sums(stream: TupleStream) -> dict[tuple[int, int], int]:
    """Sums by window and key of a stream, which pandas adds up without a log."""
    rows = np.concatenate([np.stack(stream.draw(i)) for i in range(stream.ranges)], axis=1)
    frame = pd.DataFrame(rows.T, columns=["time", "key", "value"])
    sums = {}
    for start in range(0, stream.ticks, KILL_WINDOWS.slide):
        inside = frame["time"].between(start, start + KILL_WINDOWS.width, inclusive="left")
        for key, value in frame[inside].groupby("key")["value"].sum().items():
            sums[start, int(str(key))] = int(value)
    return sums


def count_kills(killed: pd.DataFrame) -> str:
    """Text: what was killed, such as ``kills: 20 stopped threads, 80 killed servers``."""
    threads = int((killed["killed"] == TASK).sum())
    return f"kills: {threads:,} stopped threads, {len(killed) - threads:,} killed servers"


def bound_kills(wrong: int, kills: int) -> str:
    """Text: how many kills did harm, with the share that is not excluded."""
    _, most = share_interval(wrong, kills)
    return f"{wrong:,} of {kills:,} kills wrong (at most {percent(most, 1)})"
