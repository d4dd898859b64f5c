"""Throughput of D3's strategies: measured on this machine, and computed for more tasks.

The document does not name its hash function. It is a population here: `HASHES` are drawn at random.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from aftlib.documents.shared_state.experiments import sources
from aftlib.documents.shared_state.parsing import TupleSource
from aftlib.documents.shared_state.server import Job
from aftlib.documents.shared_state.strategies import late_global, late_local, run_job, upfront
from aftlib.documents.shared_state.sums import Partials, SliceSums
from aftlib.documents.shared_state.table import GlobalTable, SqliteTable
from aftlib.documents.shared_state.tuples import UNIFORM, TupleStream

UPFRONT = "upfront"
LATE_LOCAL = "late local"
LATE_GLOBAL = "late global"
STRATEGIES = (UPFRONT, LATE_LOCAL, LATE_GLOBAL)
#: Ways to flush sums that are merged.
TEN = "ten transactions"
ONE = "one transaction"
BARRIER = "one transaction, merged in memory first"
NEVER = "never"
FLUSHES = (TEN, ONE, BARRIER, NEVER)
#: Skews that `search_keys` compares with uniform keys: D3's least one, and that of its sentence.
SEARCHED_SKEWS = (1.2, 1.4)
#: Most turns of `search_keys`, because it is a sensitivity of D3-4 and decides nothing.
MOST_TURNS = 3
#: Number of hash functions that are drawn.
HASHES = 200
#: Numbers of tasks for which growth is computed.
MODELLED_TASKS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96)
DOCUMENTS_TUPLES = 100_000_000


def measure(
    spark: SparkSession,
    inputs: Mapping[float, TupleSource],
    tasks: int,
    turns: int,
    chosen: Sequence[str] = STRATEGIES,
) -> pd.DataFrame:
    """Time chosen strategies on each input in turns, after one uncounted turn on the first input.

    RuntimeError if the sums of two runs on an input differ. Columns skew, strategy, turn; states:
    number of sums; tuples; throughput: tuples per second; sender_s, receiver_s: run time of the
    tasks before and behind the shuffle, NaN without a shuffle.
    """
    first: dict[float, Partials] = {}
    rows = []
    cases = [(-1, next(iter(inputs))), *product(range(turns), inputs)]
    for (turn, skew), name in product(cases, chosen):
        source = inputs[skew]
        with shared_table() as table, stage_seconds(spark) as stages:
            runs = {
                UPFRONT: partial(upfront, spark, source, tasks),
                LATE_LOCAL: partial(late_local, spark, source, tasks),
                LATE_GLOBAL: partial(late_global, spark, source, tasks, table),
            }
            sums, throughput = time_run(runs[name])
        if not np.array_equal(first.setdefault(skew, sums).rows, sums.rows):
            raise RuntimeError(f"{name} must give the sums of {UPFRONT}: report this as a bug")
        row = {"skew": skew, "strategy": name, "turn": turn, "throughput": throughput}
        row |= {"states": len(sums), "tuples": int(sums.counts.sum())}
        if name == UPFRONT:
            row |= dict(zip(("sender_s", "receiver_s"), stages, strict=True))
        rows.append(row)
    return counted_turns(rows)


def time_run(run: Callable[[], Partials]) -> tuple[Partials, float]:
    """Return the sums of a run, and its throughput in tuples per second."""
    begin = time.perf_counter()
    sums = run()
    seconds = time.perf_counter() - begin
    return sums, int(sums.counts.sum()) / seconds


def counted_turns(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a frame, without those of the first, uncounted turn −1."""
    frame = pd.DataFrame(rows)
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
    context = spark.sparkContext
    group = uuid.uuid4().hex
    seconds: list[float] = []
    context.setJobGroup(group, "timed")
    try:
        yield seconds
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    tracker = context.statusTracker()
    spark_context = context._jsc.sc()
    spark_context.listenerBus().waitUntilEmpty()  # else the last stage may not be booked yet
    store = spark_context.statusStore()
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
    rows = []
    for turn, number in product(range(-1, turns), (1, tasks)):
        with tempfile.TemporaryDirectory(prefix="aft-") as folder:
            table = partial(SqliteTable, Path(folder) / "shared.sqlite")
            # one batch per partition, no barrier before the end
            job = Job(source, Path(folder), table, 1, number, batch=10**12, checkpoint_s=1e6)
            seconds = float(run_job(spark, job)["seconds"].max())
        rows.append({"tasks": number, "turn": turn, "throughput": tuples / seconds})
    return counted_turns(rows)


def shuffle_growth(
    spark: SparkSession, inputs: Mapping[float, TupleSource], tasks: int, turns: int
) -> pd.DataFrame:
    """Time the shuffle on each input with one task and with `tasks`, in turns.

    The first turn is not counted. Columns skew, tasks, turn, throughput: tuples per second.
    """
    rows = []
    for turn, (skew, source), number in product(range(-1, turns), inputs.items(), (1, tasks)):
        _, throughput = time_run(partial(upfront, spark, source, number))
        row = {"skew": skew, "tasks": number, "turn": turn, "throughput": throughput}
        rows.append(row)
    return counted_turns(rows)


def search_keys(
    spark: SparkSession,
    directory: Path,
    stream: TupleStream,
    key_counts: Sequence[int],
    tasks: int,
    turns: int,
) -> pd.DataFrame:
    """Time the shared table on streams that differ from `stream` in the number of keys and skew.

    D3-4 asks how many keys a stream needs so that skew speeds up a shared table. Each number of
    keys has one uncounted turn, and at most `MOST_TURNS` counted ones. Columns keys, skew, turn,
    throughput: tuples per second.
    """
    rows = []
    for keys in sorted(key_counts):
        skews = (UNIFORM, *SEARCHED_SKEWS)
        streams = [replace(stream, keys=keys, skew=skew) for skew in skews]
        inputs = sources(spark, directory, streams)
        for turn, skew in product(range(-1, min(turns, MOST_TURNS)), skews):
            with shared_table() as table:
                run = partial(late_global, spark, inputs[skew], tasks, table)
                _, throughput = time_run(run)
            row = {"keys": keys, "skew": skew, "turn": turn, "throughput": throughput}
            rows.append(row)
    return counted_turns(rows)


def gains_of_skew(runs: pd.DataFrame, by: str = "keys") -> pd.DataFrame:
    """Return throughput over that of uniform keys: a row per value of `by`, a column per skew.

    The geometric mean of the turns is returned, as claims compare them.
    """
    return gains_of_turns(runs, by).groupby(by).agg(geometric_mean)


def combiner_over_proposal(measured: pd.DataFrame) -> pd.Series:
    """Return, by skew, the throughput of a plain combiner (late local) over late global's."""
    wide = measured.pivot_table(index=["skew", "turn"], columns="strategy", values="throughput")
    ratios: pd.Series = (wide[LATE_LOCAL] / wide[LATE_GLOBAL]).groupby("skew").median()
    return ratios


def gains_of_flushes(flushes: pd.DataFrame) -> tuple[float, float]:
    """Return how much faster one transaction is than ten, and merging in memory first than that.

    Both are geometric means of the ratios within turns.
    """
    rates = flushes.groupby("flush")["per_s"].agg(geometric_mean)
    return float(rates[ONE] / rates[TEN]), float(rates[BARRIER] / rates[ONE])


def geometric_mean(speeds: pd.Series) -> float:
    """Return the mean speed of the turns whose ratios are those that claims compare.

    >>> round(geometric_mean(pd.Series([1.0, 4.0])), 6)
    2.0
    """
    return float(np.exp(np.log(speeds).mean()))


def gains_of_turns(runs: pd.DataFrame, by: str = "keys") -> pd.DataFrame:
    """Return throughput over that of uniform keys: a row per `by` and turn, a column per skew."""
    wide: Any = runs.pivot_table(index=[by, "turn"], columns="skew", values="throughput")
    gains: pd.DataFrame = wide.div(wide[UNIFORM], axis=0).drop(columns=UNIFORM)
    return gains


def flush_costs(keys: int, rows: int, turns: int, seed: int) -> pd.DataFrame:
    """Merge ten batches of `rows` sums into a table with `keys` keys, with ten flushes or one.

    "ten transactions" commits each batch to the SQLite file, "one transaction" the same rows at
    once. The third merges the batches in memory first, which leaves fewer rows to write, and
    "never" only merges in memory. Columns flush, turn, per_s: sums per second.
    """
    rng = np.random.default_rng([seed, 4])
    speeds = []
    for turn in range(turns):
        batches = [one_each(rng.choice(keys, min(rows, keys), replace=False)) for _ in range(10)]
        for flush in FLUSHES:
            with shared_table() as table, table() as shared:
                shared.prepare(0).commit("server", 1, one_each(np.arange(keys)), {})
                begin = time.perf_counter()
                merge_batches(shared, batches, flush)
                seconds = time.perf_counter() - begin
            per_s = sum(map(len, batches)) / seconds
            speeds.append({"flush": flush, "turn": turn, "per_s": per_s})
    return pd.DataFrame(speeds)


def merge_batches(shared: GlobalTable, batches: Sequence[Partials], flush: str) -> None:
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


def one_each(keys: np.ndarray) -> Partials:
    """Return partials of slice 0 with the value 1 and the count 1 for each key."""
    one = np.ones(len(keys), np.int64)
    return Partials(0 * one, np.sort(keys), one, one)


@cache
def busiest_shares(keys: int, skew: float, tasks: int, hashes: int = HASHES) -> np.ndarray:
    """Share of tuples that the busiest of `tasks` receivers gets, by hash function: q_p."""
    shares = TupleStream(1, keys, skew).shares
    draws = (np.random.default_rng([turn, keys]).integers(0, 2**32, keys) for turn in range(hashes))
    return np.array(
        [np.bincount(each % tasks, weights=shares, minlength=tasks).max() for each in draws]
    )


def shuffle_throughput(busiest: np.ndarray, tasks: int, receivers: float) -> np.ndarray:
    """Throughput of a pipelined shuffle: 1 / max((1 − b) / p, b·q_p), relative to one task.

    Receivers bear the share `receivers` (b) of a tuple's cost. Senders or the busiest receiver
    limit the throughput, whichever are slower.
    """
    return 1 / np.maximum((1 - receivers) / tasks, receivers * busiest)


def share_that_limits(ratios: Callable[[float], np.ndarray], bound: float) -> int:
    """Return the least whole percentage of a tuple's cost from which on receivers limit.

    Receivers that bear that share or more keep the median of `ratios`, by hash function, below
    `bound`.
    """
    too_little = [share for share in range(100) if np.median(ratios(share / 100)) >= bound]
    return max(too_little, default=-1) + 1


def merged_sums(stream: TupleStream, tasks: int) -> float:
    """Expected number of sums that `tasks` tasks hold together: keys that each has seen."""
    seen = -np.expm1(stream.tuples / tasks * np.log1p(-np.minimum(stream.shares, 1 - 1e-16)))
    return float(tasks * seen.sum())


def shared_throughput(stream: TupleStream, tasks: int, merge_ns: float, tuple_ns: float) -> float:
    """Throughput of tasks that merge their sums once, one after another, relative to one task.

    A tuple costs a task `tuple_ns`, and merging a sum into the shared table `merge_ns`.
    """
    merging = merge_ns * merged_sums(stream, tasks) / stream.tuples
    return 1 / (1 / tasks + merging / tuple_ns)


def modelled_growth(
    keys: int, skews: Sequence[float], receivers: float, tuple_ns: float, merge_ns: float
) -> pd.DataFrame:
    """Compute throughput over one task's: a shuffle's (median hash function), a shared table's.

    Columns method: shuffle or shared table, skew, tasks, growth.
    """
    rows = []
    for skew, tasks in product(skews, MODELLED_TASKS):
        stream = TupleStream(DOCUMENTS_TUPLES, keys, skew)
        shares = busiest_shares(keys, skew, tasks, hashes=21)
        shuffled = float(np.median(shuffle_throughput(shares, tasks, receivers)))
        shared = shared_throughput(stream, tasks, merge_ns, tuple_ns)
        rows += [("shuffle", skew, tasks, shuffled), ("shared table", skew, tasks, shared)]
    frame = pd.DataFrame(rows, columns=["method", "skew", "tasks", "throughput"])
    first = frame.groupby(["method", "skew"])["throughput"].transform("first")
    return frame.assign(growth=frame.pop("throughput") / first)
