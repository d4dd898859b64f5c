"""The experiments of notebook 03: table 1, throughput by skew, growth, kills, flushes (D3)."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.core.windows import Windows
from aftlib.documents.shared_state.parsing import TupleSource
from aftlib.documents.shared_state.server import Job, read_journal
from aftlib.documents.shared_state.sums import Partials, SliceSums, window_sums
from aftlib.documents.shared_state.table import GlobalTable, Segments, SqliteTable
from aftlib.documents.shared_state.tuples import (
    UNIFORM,
    TupleLog,
    TupleStream,
    draw_log,
    write_tuples,
)
from aftlib.notebook.parameters import ParameterModel, parameter
from aftlib.spark.faults import Fault, Injector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 8
UPFRONT, LATE_LOCAL, LATE_GLOBAL = STRATEGIES = ("upfront", "late local", "late global")
SKEWS: Any = {"full": [0.0, 1.2, 1.4, 1.6, 1.8, 2.0], "smoke": [0.0, 1.4]}


class NotebookParameters(ParameterModel):
    """Parameters of notebook 03."""

    skews: list[int | float] = parameter(
        [0.0, 1.4, 2.0], "Zipf's parameter; 0 is uniform", least=0, **SKEWS
    )
    tuples: int = parameter(
        4_000_000, "of each measured stream", least=10_000, smoke=200_000, full=10_000_000
    )
    keys: int = parameter(100_000, "that may occur", least=1)
    seed: int = parameter(1, "of all streams", least=0)
    tasks: int = parameter(2, "parallelism that is measured", least=2)
    turns: int = parameter(5, "counted runs of each case", least=1, smoke=1, full=20)
    growth_tuples: int = parameter(
        10_000_000, "that one server sums with one task and with `tasks`", least=1, smoke=200_000
    )
    kill_tuples: int = parameter(400_000, "of the stream for the kills", least=200_000)
    kill_turns: int = parameter(2, "repetitions of all kills", least=1, smoke=1, full=20)
    flush_rows: int = parameter(10_000, "sums of a batch", least=1, smoke=1_000)
    key_counts: list[int] = parameter(
        [10_000, 100_000, 1_000_000],
        "keys among which the gain of skew is searched",
        least=10,
        smoke=[1_000, 10_000],
        full=[1_000, 10_000, 100_000, 1_000_000],
    )

    @model_validator(mode="after")
    def check_skews(self) -> Self:
        """Refuse skews among which nothing can be compared."""
        if UNIFORM not in self.skews or max(self.skews) < 1.4:
            raise ValueError(
                f"skews must hold 0 (uniform) and one of 1.4 or more, got {self.skews}: add them"
            )
        return self

    @property
    def streams(self) -> list[TupleStream]:
        """A stream for each skew."""
        return [TupleStream(self.tuples, self.keys, skew, self.seed) for skew in self.skews]


def sources(
    spark: SparkSession, directory: Path, streams: Sequence[TupleStream]
) -> dict[float, TupleSource]:
    """Draw a log of each stream, or reuse it; one window over everything, as in the document."""
    return {
        stream.skew: TupleSource(
            write_tuples(spark, stream, PARTITIONS, directory),
            Windows(stream.ticks, stream.ticks),
        )
        for stream in streams
    }


TABLE_WINDOWS = Windows(10, 5)
#: Our tuples (timestamp, key, value) of two partitions; the document's table gives no numbers.
TABLE_TUPLES = (
    ((1, 0, 10), (3, 1, 20), (8, 0, 30), (6, 1, 40), (14, 0, 50)),
    ((2, 1, 1), (7, 0, 2), (4, 0, 3), (11, 1, 4), (19, 1, 5)),
)


def table_1(spark: SparkSession, directory: Path) -> pd.DataFrame:
    """Return D3 table 1 (window id, key, value) of two tasks that share a table: w = 10, l = 5."""
    from aftlib.documents.shared_state.strategies import late_global

    texts = ["".join(f"{t},{k},{v}\n" for t, k, v in part).encode() for part in TABLE_TUPLES]
    source = TupleSource(TupleLog.write(directory / "log", texts), TABLE_WINDOWS)
    slices = late_global(spark, source, 2, partial(SqliteTable, directory / "table.sqlite"))
    sums = window_sums(slices, TABLE_WINDOWS)
    spans = [f"[{start}, {start + TABLE_WINDOWS.width})" for start in sums.windows.tolist()]
    return pd.DataFrame({"window id": spans, "key": sums.keys, "value": sums.values})


def measure(
    spark: SparkSession, inputs: Mapping[float, TupleSource], tasks: int, turns: int
) -> pd.DataFrame:
    """Time each strategy on each input in turns, after one uncounted turn on the first input.

    RuntimeError if the sums of two runs on an input differ. Columns skew, strategy, turn; states:
    number of sums; tuples, seconds, throughput: tuples per second; sender_s, receiver_s: run time
    of the tasks before and behind the shuffle, NaN without a shuffle.
    """
    from aftlib.documents.shared_state import strategies

    methods: dict[str, Callable[..., Partials]] = {
        UPFRONT: strategies.upfront,
        LATE_LOCAL: strategies.late_local,
        LATE_GLOBAL: strategies.late_global,
    }
    first, rows = dict[float, Partials](), list[tuple[Any, ...]]()
    cases = [(-1, next(iter(inputs)))] + [(turn, skew) for turn in range(turns) for skew in inputs]
    for turn, skew in cases:
        for name, run in methods.items():
            with shared_table() as table, stage_seconds(spark) as stages:
                begin = time.perf_counter()
                options = {"table": table} if name == LATE_GLOBAL else {}
                sums = run(spark, inputs[skew], tasks, **options)
                seconds = time.perf_counter() - begin
            if not np.array_equal(first.setdefault(skew, sums).rows, sums.rows):
                raise RuntimeError(f"{name} must give the sums of {UPFRONT}: report this as a bug")
            tuples = int(sums.counts.sum())
            times = seconds, tuples / seconds, *(stages if name == UPFRONT else (np.nan, np.nan))
            rows.append((skew, name, turn, len(sums), tuples, *times))
    columns = ["skew", "strategy", "turn", "states", "tuples", "seconds", "throughput"]
    frame = pd.DataFrame(rows, columns=[*columns, "sender_s", "receiver_s"])
    return frame[frame["turn"] >= 0].reset_index(drop=True)


def receivers_share(measured: pd.DataFrame) -> float:
    """Return the share b of a tuple's cost that receivers bear behind the shuffle: uniform keys."""
    runs = measured[(measured["strategy"] == UPFRONT) & (measured["skew"] == UNIFORM)]
    return float((runs["receiver_s"] / (runs["sender_s"] + runs["receiver_s"])).median())


@contextmanager
def shared_table() -> Iterator[Callable[[], GlobalTable]]:
    """Yield a function that opens a new global table: a SQLite file in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="aft-") as folder:
        yield partial(SqliteTable, Path(folder) / "shared.sqlite")


@contextmanager
def stage_seconds(spark: SparkSession) -> Iterator[list[float]]:
    """Yield a list that holds, after the block, the run time of each Spark stage in the block.

    A run time is in seconds, summed over the stage's tasks, in the order of the stages.
    """
    context, group = spark.sparkContext, uuid.uuid4().hex
    seconds = list[float]()
    context.setJobGroup(group, "timed")
    try:
        yield seconds
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup(group))]
    stages = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
    attempts = [store.lastStageAttempt(stage) for stage in stages]
    seconds += [a.executorRunTime() / 1e3 for a in attempts if a.status().toString() == "COMPLETE"]


def growth(
    spark: SparkSession, source: TupleSource, tuples: int, tasks: int, turns: int
) -> pd.DataFrame:
    """Time one server whose tasks share a table in memory, with one task and with `tasks`.

    Columns tasks, turn, throughput: of `tuples` tuples per second, until all are merged in memory.
    """
    from aftlib.documents.shared_state.strategies import run_job

    rows = []
    for turn, number in product(range(-1, turns), (1, tasks)):
        with tempfile.TemporaryDirectory(prefix="aft-") as folder:
            table = partial(SqliteTable, Path(folder) / "shared.sqlite")
            # one batch per partition, no barrier before the end
            job = Job(source, Path(folder), table, 1, number, batch=10**12, checkpoint_s=1e6)
            seconds = float(run_job(spark, job)["seconds"].max())
        if turn >= 0:
            rows.append({"tasks": number, "turn": turn, "throughput": tuples / seconds})
    return pd.DataFrame(rows)


def shuffle_growth(
    spark: SparkSession, inputs: Mapping[float, TupleSource], tasks: int, turns: int
) -> pd.DataFrame:
    """Time the shuffle on each input with one task and with `tasks`, in turns.

    The first turn is not counted. Columns skew, tasks, turn, throughput: tuples per second.
    """
    from aftlib.documents.shared_state.strategies import upfront

    rows = []
    for turn, (skew, source), number in product(range(-1, turns), inputs.items(), (1, tasks)):
        begin = time.perf_counter()
        sums = upfront(spark, source, number)
        speed = int(sums.counts.sum()) / (time.perf_counter() - begin)
        rows.append({"skew": skew, "tasks": number, "turn": turn, "throughput": speed})
    frame = pd.DataFrame(rows)
    return frame[frame["turn"] >= 0].reset_index(drop=True)


#: What is killed; the last is the broken control (`OffsetsApart`).
TASK, SERVER, BROKEN = "task", "server", "server, offsets apart"
#: Points of a server at which it is killed: after each step of a checkpoint.
POINTS = ("merged", "flushed", "committed", "dropped")
KILL_WINDOWS, KILL_DISORDER = Windows(100, 50), 10
SERVERS, TASKS_EACH, BATCH = 2, 2, 2_000


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


def kills(spark: SparkSession, directory: Path, tuples: int, seed: int, turns: int) -> pd.DataFrame:
    """Kill a task's thread, and a server at four points, of two servers with two tasks each.

    Columns killed: what; point; turn; wrong: sums that are missing or differ from those of the
    stream (`true_sums`); again: tuples read again; disturbed: healthy tasks that started or read
    again; behind_a_shuffle: tuples that healthy tasks would get twice if the tuples read again
    passed a shuffle (fig. 1), computed: the share of keys that healthy tasks have.
    """
    chance = np.random.default_rng([seed, 3])
    stream = TupleStream(tuples, 1_000, 1.2, seed, rate=1_000, disorder=KILL_DISORDER)
    log = draw_log(directory / "log", stream, SERVERS * TASKS_EACH)
    source, true = TupleSource(log, KILL_WINDOWS, KILL_DISORDER), true_sums(stream)
    cases = [(TASK, "read"), *((SERVER, point) for point in POINTS), (BROKEN, "between")]
    rows = []
    for turn, (killed, point) in product(range(turns), cases):
        steps = sorted({int(chance.integers(1, 3)), 1}, reverse=True)
        if killed == TASK:
            steps = [int(chance.integers(1, 20))]
        for step in steps:  # on a busy machine a server may have one checkpoint only, its last
            place = directory / f"{turn}-{point}-{step}"
            fault = Fault("kill", "server-0", step, point)
            if killed == TASK:
                fault = Fault("stop", "task-0-1", step, point)
            table: Callable[[], GlobalTable] = partial(SqliteTable, place / "shared.sqlite")
            job = Job(source, place, table, SERVERS, TASKS_EACH, BATCH, 0.0, (fault,), journal=True)
            if killed == BROKEN:
                apart = partial(OffsetsApart, place / "shared.sqlite", job.injector)
                job = replace(job, table=apart)
            try:
                row = run_killed(spark, job, true)
                break
            except Missed:
                if step == steps[-1]:
                    raise
        rows.append({"killed": killed, "point": point, "turn": turn} | row)
    return pd.DataFrame(rows)


class Missed(RuntimeError):
    """The fault did not hit a process, because the job ended before."""


def run_killed(
    spark: SparkSession, job: Job, true: Mapping[tuple[int, int], int]
) -> dict[str, int]:
    """Run a job with one fault; count wrong sums, tuples read again, and disturbed tasks."""
    from aftlib.documents.shared_state.strategies import run_job

    run_job(spark, job)
    (fault,) = job.faults
    if job.injector.injected(fault) is None:
        raise Missed(f"{fault} must hit a process, but the job ended before: take more tuples")
    with job.table() as shared:
        frame, progress = shared.results(), shared.progress()
    sums = {(w, k): v for w, k, v in frame.itertuples(index=False)}
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
    frame, sums = pd.DataFrame(rows.T, columns=["time", "key", "value"]), {}
    for start in range(0, stream.ticks, KILL_WINDOWS.slide):
        inside = frame["time"].between(start, start + KILL_WINDOWS.width, inclusive="left")
        for key, value in frame[inside].groupby("key")["value"].sum().items():
            sums[start, int(str(key))] = int(value)
    return sums


TEN, ONE, BARRIER, NEVER = FLUSHES = (
    "ten transactions",
    "one transaction",
    "one transaction, merged in memory first",
    "never",
)


def flush_costs(keys: int, rows: int, turns: int, seed: int) -> pd.DataFrame:
    """Merge ten batches of `rows` sums into a table with `keys` keys, with ten flushes or one.

    "ten transactions" commits each batch to the SQLite file, "one transaction" the same rows at
    once. The third merges the batches in memory first, which leaves fewer rows to write, and
    "never" only merges in memory. Columns flush, turn, per_s: sums per second.
    """
    rng, speeds = np.random.default_rng([seed, 4]), []
    for turn in range(turns):
        batches = [_batch(rng.choice(keys, min(rows, keys), replace=False)) for _ in range(10)]
        for flush in FLUSHES:
            with shared_table() as table, table() as shared:
                shared.prepare(0).commit("server", 1, _batch(np.arange(keys)), {})
                begin = time.perf_counter()
                _merge_batches(shared, batches, flush)
                seconds = time.perf_counter() - begin
            per_s = sum(map(len, batches)) / seconds
            speeds.append({"flush": flush, "turn": turn, "per_s": per_s})
    return pd.DataFrame(speeds)


def _merge_batches(shared: GlobalTable, batches: Sequence[Partials], flush: str) -> None:
    """Merge batches into a table, or in memory only, as `flush` says."""
    if flush == TEN:
        for number, batch in enumerate(batches, 2):
            shared.commit("server", number, batch, {})
        return
    if flush == ONE:
        rows = np.concatenate([batch.rows for batch in batches])
        shared.commit("server", 2, Partials.of(rows), {})
        return
    sums = SliceSums(1)
    for batch in batches:
        sums.merge(batch)
    if flush == BARRIER:
        shared.commit("server", 2, sums.take(), {})


def _batch(keys: np.ndarray) -> Partials:
    keys, one = np.sort(keys), np.ones(len(keys), np.int64)
    return Partials(0 * one, keys, one, one)
