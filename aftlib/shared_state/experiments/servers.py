"""Experiments without Spark: servers and tasks, stores, and checkpoints."""

from __future__ import annotations

import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.checks import require_number, require_numbers
from aftlib.core.paths import project_root
from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import SUM, Partials
from aftlib.shared_state.experiments.parameters import Input
from aftlib.shared_state.experiments.strategies import measure
from aftlib.shared_state.job import Job
from aftlib.shared_state.paced import PacedRun, run_paced
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.scaling import GROWTH, SERVED
from aftlib.shared_state.stores import FILES, open_table
from aftlib.shared_state.stores.tables import FLUSHES, Progress, StateTable
from aftlib.shared_state.supervisor import run_job
from aftlib.shared_state.tuplelog import (
    UNIFORM,
    TupleLog,
    TupleStream,
    part_path,
    write_manifest,
)
from aftlib.spark.faults import Fault

TIMES = 5
"""Passes of the servers over a timed input: one pass is too short to time."""
WINDOWS = Windows(1_000, 500)
SHARED_PARTITIONS, SHARED_KEYS, BATCHES_READ = 4, 1_000, 500
"""Partitions and keys of the servers' log, and the most batches of a partition."""
BATCH, BATCHES = 10_000, 10
"""Rows per merge, and merges between two barriers."""
BUDGET_S = 2.0
"""Seconds that the merges of one store, size and mode may take."""
TASKS, STREAM_KEYS, STREAM_BATCH = 2, 100_000, 250_000
_NEVER_S = 1e9
MODES = {
    "no checkpoints": (_NEVER_S, _NEVER_S),
    "local, every second": (1.0, _NEVER_S),
    "local and global, every second": (1.0, 0.0),
}
"""Seconds between barriers, and between epoch commits; every run ends with one of each."""


def served(
    inputs: Sequence[Input], tasks: Sequence[int], repeats: int, times: int = TIMES
) -> pd.DataFrame:
    """Time the document's own design on every input: a server and its tasks, without Spark.

    Each task sums its partitions and merges them into its server's own table (RocksDB behind a
    buffer). The table is flushed and committed to SQLite at the end, after the timed part. An input
    is read `times` times, and its tuples count each time.

    Besides the columns of `measure` (strategy "servers and tasks"): states: number of keys; sum:
    over all keys; seconds: from the first task's start until the last has merged all.
    """

    def run(each: Input, _: str, number: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="aft-") as folder:
            log = repeated_log(each.log, times, Path(folder) / "log")
            settings: Any = {"servers": 1, "tasks": number, "batch": each.stream.tuples}
            job = Job(log, each.rules, Path(folder) / "job", checkpoint_s=_NEVER_S, **settings)
            account = run_job(job)
            (window,) = job.output.iterdir()
            sums = pd.read_csv(window, names=["window", "key", "sum"])["sum"]
        row = {"tuples": account.tuples, "states": len(sums), "sum": int(sums.sum())}
        return row | {"seconds": account.seconds}

    return measure(run, inputs, [SERVED], tasks, repeats)


def paced(
    skews: Sequence[float],
    keys: Sequence[int],
    tasks: Sequence[int],
    tuples: int,
    turns: int,
    slowdown: float,
    seed: int,
) -> pd.DataFrame:
    """Time the document's design and a shuffle on many emulated cores (`run_paced`), in turns.

    Uniform keys are merged late at every parallelism and number of keys. Skewed keys are merged
    late with 24 tasks. All inputs are shuffled with 8 and 24 tasks, at the largest number of keys.
    Each turn has another hash function. A shuffle merges no sums into shared state, so half of the
    tuples are enough for it.

    Columns design, skew, keys, tasks, turn, tuples, throughput, and those of `run_paced`.
    """
    few, most = GROWTH
    late = [(UNIFORM, size, number) for size in keys for number in tasks]
    late += [(skew, max(keys), most) for skew in skews if skew != UNIFORM]
    cases = [("late", *case) for case in late]
    cases += [("shuffle", skew, max(keys), number) for skew in skews for number in (few, most)]
    runs = [
        PacedRun(design, number, skew, size, tuples // (2 if design == "shuffle" else 1), slowdown,
                 turn, seed)
        for turn in range(turns)
        for design, skew, size, number in cases
    ]  # fmt: skip
    frame = pd.DataFrame([asdict(run) for run in runs]).drop(columns=["slowdown", "seed"])
    frame = pd.concat([frame, pd.DataFrame(run_paced(runs))], axis=1)
    return frame.assign(throughput=frame["tuples"] / frame["seconds"])


def repeated_log(log: TupleLog, times: int, path: Path) -> TupleLog:
    """Return a new log that has each partition of another log `times` times."""
    path.mkdir()
    for number in range(log.partitions * times):
        part_path(path, number).symlink_to(log.part(number % log.partitions).absolute())
    write_manifest(path, log.partitions * times, log.tuples * times, log.about)
    return TupleLog.open(path)


def servers_and_tasks_crash(directory: Path, tuples: int, seed: int) -> pd.DataFrame:
    """Run two servers of two tasks each: undisturbed, with a task killed, with a server killed.

    The servers' own stores are RocksDB, the global store is SQLite. Task 0-0 crashes when it has
    read half of its partition, server 0 when its two tasks have merged three quarters of theirs.
    Each of four partitions has `tuples` tuples. The folder must be new.

    Columns run; task; crashed: whether the task or its server was killed; joined: how often the
    task was started; read_again: tuples that it read a second time; seconds: the whole run; error:
    windows of the run that differ from the undisturbed run's.
    """
    rng, times = np.random.default_rng(seed), np.arange(tuples) * 10 * WINDOWS.width // tuples
    texts = []
    for _ in range(SHARED_PARTITIONS):
        columns = times, rng.integers(0, SHARED_KEYS, tuples), rng.integers(0, 101, tuples)
        texts.append(b"".join(b"%d,%d,%d\n" % row for row in zip(*columns, strict=True)))
    log = TupleLog.write(directory / "log", texts)

    rules, batch = Rules(WINDOWS, WINDOWS.pane), -(-tuples // BATCHES_READ)
    batches = -(-tuples // batch)
    at_task = Fault("kill", "task-0-0", -(-batches // 2), "read")
    at_server = Fault("kill", "server-0", -(-batches * 3 // 2), "merged")
    runs: dict[str, tuple[str, tuple[Fault, ...]]] = {
        "undisturbed": ("none", ()),
        "a task crashes": ("task-0-0", (at_task,)),
        "a server crashes": ("task-0-", (at_server,)),
    }
    rows, expected = [], dict[str, str]()
    for name, (crashed, faults) in runs.items():
        job = Job(
            log, rules, directory / name.replace(" ", "-"), batch=batch, checkpoint_s=0.05,
            faults=faults,
        )  # fmt: skip
        account = run_job(job)
        if job.injector.count < len(faults):
            raise RuntimeError(f"{name}, but no process was killed: take more tuples")
        windows = {path.name: path.read_text() for path in job.output.iterdir()}
        expected = expected or windows
        error = len(dict(windows.items() ^ expected.items()))
        for task, joined in sorted(account.joined.items()):
            again = account.read_again.get(task, 0)
            hit = task.startswith(crashed)
            rows.append((name, task, hit, joined, again, account.seconds, error))
    names = ["run", "task", "crashed", "joined", "read_again", "seconds", "error"]
    return pd.DataFrame(rows, columns=names)


Opener = Callable[[str], AbstractContextManager[StateTable]]
"""Opens a new table for a flush mode (`FLUSHES`), and removes it afterwards."""


@contextmanager
def _embedded(store: str, flush: str) -> Iterator[StateTable]:
    with (
        tempfile.TemporaryDirectory(prefix="aft-") as folder,
        open_table(f"{store}:{folder}/table", SUM, flush) as table,
    ):
        yield table


EMBEDDED: Mapping[str, Opener] = {store: partial(_embedded, store) for store in FILES}
"""Stores that need no server."""


def merges(
    stores: Mapping[str, Opener], keys: Sequence[int], rows: int, seed: int, turns: int = 1
) -> pd.DataFrame:
    """Time merges into tables that hold all keys already, with a barrier after every ten merges.

    `keys` are the sizes of the tables. Each new table gets batches of `BATCH` rows until `rows`
    rows are merged or merging has taken `BUDGET_S` seconds, but at least ten batches.

    Columns store, keys, flush, turn; merges_per_s: rows per second without barriers;
    with_barriers_per_s: rows per second with barriers; barrier_ms, barrier_most_ms: median and
    longest.
    """
    require_numbers("keys", keys, least=1)
    require_number("rows", rows, least=1)
    timings = []
    for turn, store, size, flush in product(range(turns), stores, keys, FLUSHES):
        if store == "memory" and flush == "merge":  # nothing of it survives either way
            continue
        rng, merged, spent, barriers = np.random.default_rng([seed, turn]), 0, 0.0, list[float]()
        with stores[store](flush) as table:
            table.merge(_ones(np.arange(size)), {0: Progress(0)})
            table.barrier()
            while spent < BUDGET_S and merged < rows:
                for _ in range(BATCHES):
                    batch = _ones(np.sort(rng.choice(size, min(BATCH, size), replace=False)))
                    begin = time.perf_counter()
                    table.merge(batch, {0: Progress(merged)})
                    spent += time.perf_counter() - begin
                    merged += len(batch)
                begin = time.perf_counter()
                table.barrier()
                barriers.append(time.perf_counter() - begin)
        with_barriers = merged / (spent + sum(barriers))
        ms = 1e3 * median(barriers), 1e3 * max(barriers)
        timings.append((store, size, flush, turn, merged / spent, with_barriers, *ms))
    times = ["merges_per_s", "with_barriers_per_s", "barrier_ms", "barrier_most_ms"]
    return pd.DataFrame(timings, columns=["store", "keys", "flush", "turn", *times])


def _ones(keys: np.ndarray) -> Partials:
    """Rows that add one to each key."""
    return Partials(np.zeros(len(keys), int), keys, np.ones(len(keys), int))


def checkpoints(stores: Sequence[str], tuples: int, runs: int) -> pd.DataFrame:
    """Stream through a server of two tasks in each of `MODES`, in rotating order.

    `stores` are kinds of the server's own store; the global one is SQLite. A stream has 100,000
    uniform keys. A stream that takes less than a few seconds has few barriers.

    Columns store, mode, run; seconds until the tasks have merged everything; throughput: tuples
    divided by `seconds`; lost: share of the throughput lost, against the same turn without
    checkpoints; cpu_s: CPU seconds of all processes, including the last epoch commits.
    """
    require_number("stores", len(stores), least=1)
    require_number("tuples", tuples, least=TASKS)
    require_number("runs", runs, least=1)
    stream, modes, rows = TupleStream(tuples, STREAM_KEYS, rate=tuples), list(MODES), []
    with tempfile.TemporaryDirectory(prefix="aft-") as folder:
        log = TupleLog.draw(Path(folder) / "log", stream, TASKS)
        for store, turn in product(stores, range(runs)):
            times = dict[str, tuple[float, float]]()
            for i in range(len(modes)):  # rotated, because the machine's load changes
                mode = modes[(turn + i) % len(modes)]
                times[mode] = time_stream(log, store, *MODES[mode])
            for mode in modes:
                seconds, cpu_s = times[mode]
                lost = 1 - times[modes[0]][0] / seconds
                rows.append((store, mode, turn, seconds, tuples / seconds, cpu_s, lost))
    columns = ["store", "mode", "run", "seconds", "throughput", "cpu_s", "lost"]
    return pd.DataFrame(rows, columns=columns)


def time_stream(
    log: TupleLog, own: str, checkpoint_s: float, commit_s: float
) -> tuple[float, float]:
    """Return seconds until all is merged, and the CPU seconds of all processes."""
    with tempfile.TemporaryDirectory(prefix="aft-") as folder:
        settings: Any = {"checkpoint_s": checkpoint_s, "commit_s": commit_s, "batch": STREAM_BATCH}
        rules = Rules(Windows(1, 1))
        job = Job(log, rules, Path(folder), servers=1, tasks=TASKS, own=own, **settings)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        account = run_job(job)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return account.seconds, cpu_s


def other_engines() -> pd.DataFrame:
    """Throughput of the strategies and of other engines, as `benchmarks merging` stored it.

    Columns tuples; runs: number of runs; on: two tasks, one task or one core; engine; skew;
    throughput: median tuples per second. Empty if nothing is stored.
    """
    rows = []
    kinds = {
        "spark": ("Spark, ", "two tasks"),
        "flink": ("", "two tasks"),
        "flink_one_task": ("", "one task"),
        "one_core": ("", "one core"),
    }
    for stored, (kind, (prefix, on)) in product(_stored_results(), kinds.items()):
        engines = stored.get(f"{kind}_million_tuples_a_second", "not in an older result")
        if isinstance(engines, str):  # a text: why there is no result
            continue
        at = {"tuples": stored["tuples"], "runs": stored["runs"], "on": on}
        rows += [
            at | {"engine": prefix + engine, "skew": float(skew), "throughput": 1e6 * middle}
            for engine, by_skew in engines.items()
            for skew, (middle, *_) in by_skew.items()
        ]
    return pd.DataFrame(rows, columns=["tuples", "runs", "on", "engine", "skew", "throughput"])


def stored_memory() -> pd.DataFrame:
    """Peak resident gigabytes of late local merge on Spark, as `benchmarks merging` stored them.

    If two runs have the same number of tuples, the larger value is taken. Empty if nothing is
    stored.
    """
    sizes = [
        (int(tuples.replace(",", "")), gigabytes)
        for stored in _stored_results()
        for tuples, gigabytes in stored["memory_gb_at_most_by_tuples"].items()
    ]
    frame = pd.DataFrame(sizes, columns=["tuples", "gigabytes"])
    return frame.groupby("tuples", as_index=False).max()


def _stored_results() -> list[dict[str, Any]]:
    """Read the results of the merging benchmark that are in the project."""
    folder = project_root() / "benchmarks" / "results"
    return [json.loads(path.read_text()) for path in sorted(folder.glob("merging*.json"))]
