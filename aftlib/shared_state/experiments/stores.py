"""What states, stores and checkpoints cost: sums in the cache, merges per store, barriers."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.checks import require_number, require_numbers, with_value
from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import SUM, Partials
from aftlib.shared_state.job import OWN, Job
from aftlib.shared_state.parsing import BLOCK, Rules
from aftlib.shared_state.stores.opening import open_table
from aftlib.shared_state.stores.tables import FLUSHES, Progress, StateTable
from aftlib.shared_state.sums import SliceSums
from aftlib.shared_state.supervisor import run_job
from aftlib.shared_state.tuplelog import TupleLog, TupleStream

RUN = 64
"""Tuples of the same key that come one after another in the last case."""


def states_or_locality(
    keys: Sequence[int], tuples: int, skew: float, repeats: int, seed: int = 1
) -> pd.DataFrame:
    """Nanoseconds to add a parsed tuple to its key's sum, and to take the sums, in five cases.

    *uniform*: all keys, equally often. *skewed*: Zipf, only the keys that occur have a sum.
    *skewed, all sums kept*: every key has a sum beforehand, as many as uniform. *uniform, few
    keys*: as many keys as the skewed stream has. *uniform, in runs*: the same keys one after
    another. `keys` are numbers of different keys, which set how large the table of sums is; tuples
    are in memory and parsed, so that nothing else is in the time; the fastest repeat counts.

    Columns keys, case, states: sums held, add_ns: a tuple, take_ms: for all sums.
    """
    rows = []
    for number in map(int, with_value(keys)):
        rng, nothing = np.random.default_rng([seed, number]), np.empty(0, np.int64)
        stream = TupleStream(tuples, number, skew, seed)
        skewed = stream.ids[np.searchsorted(np.cumsum(stream.shares)[:-1], rng.random(tuples))]
        occurring = rng.permutation(np.unique(skewed))
        uniform = stream.ids[rng.integers(0, number, tuples)]
        cases = {
            "uniform": (nothing, uniform),
            "skewed": (nothing, skewed),
            "skewed, all sums kept": (stream.ids, skewed),
            "uniform, few keys": (nothing, rng.choice(occurring, tuples)),
            "uniform, in runs": (nothing, np.repeat(uniform[: -(-tuples // RUN)], RUN)[:tuples]),
        }
        for case, (held, drawn) in cases.items():
            timings = [_timed(held, drawn) for _ in range(repeats)]
            states, add_s, take_s = (min(column) for column in zip(*timings, strict=True))
            at = {"keys": number, "case": case, "states": states}
            rows.append(at | {"add_ns": 1e9 * add_s / tuples, "take_ms": 1e3 * take_s})
    return pd.DataFrame(rows)


def _timed(held: np.ndarray, keys: np.ndarray) -> tuple[int, float, float]:
    """Sums at the end, seconds to add the tuples, seconds to take the sums."""
    sums, seconds = SliceSums(1), 0.0
    for each in (held, np.unique(keys), keys):  # the table has grown before the clock counts
        columns = np.stack([np.zeros_like(each), each, np.ones_like(each)])
        blocks = [columns[:, first : first + BLOCK] for first in range(0, len(each), BLOCK)]
        before = time.perf_counter()
        for block in blocks:
            sums.add(block)
        seconds = time.perf_counter() - before
    before = time.perf_counter()
    states = len(sums.take())
    return states, seconds, time.perf_counter() - before


Opener = Callable[[str], AbstractContextManager[StateTable]]
"""Opens a new table, given when it flushes, of which nothing is left behind."""

BATCH, BATCHES = 10_000, 10
"""Rows a merge, and merges between two barriers."""
BUDGET_S = 2.0
"""Seconds that the merges of one store, size and mode may take."""
TASKS, KEYS_OF_STREAM, STREAM_BATCH = 2, 100_000, 250_000
_NEVER_S = 1e9
MODES = {
    "no checkpoints": (_NEVER_S, _NEVER_S),
    "local, every second": (1.0, _NEVER_S),
    "local and global, every second": (1.0, 0.0),
}
"""Seconds between barriers and between epoch commits; at the end comes one of each anyway."""


@contextmanager
def _embedded(store: str, flush: str) -> Iterator[StateTable]:
    with (
        tempfile.TemporaryDirectory(prefix="aft-") as folder,
        open_table(f"{store}:{folder}/table", SUM, flush) as table,
    ):
        yield table


EMBEDDED: Mapping[str, Opener] = {store: partial(_embedded, store) for store in OWN}
"""Stores that need no server."""


def merges(stores: Mapping[str, Opener], keys: Sequence[int], rows: int, seed: int) -> pd.DataFrame:
    """Merge batches into tables that hold all keys already, with a barrier now and then.

    `keys` are the sizes of the tables. `rows` are merged into each, in batches of `BATCH` and ten
    of them at least; after `BUDGET_S` seconds of merging it is enough.

    Columns store, keys, flush, merges_per_s: rows, the time of barriers left out;
    with_barriers_per_s: and with it; barrier_ms, barrier_most_ms: median and most.
    """
    require_numbers("keys", keys, least=1)
    require_number("rows", rows, least=1)
    found = []
    for store, size, flush in product(stores, keys, FLUSHES):
        if store == "memory" and flush == "merge":  # nothing of it survives either way
            continue
        rng, merged, spent, barriers = np.random.default_rng(seed), 0, 0.0, list[float]()
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
        speeds = {"merges_per_s": merged / spent}
        speeds |= {"with_barriers_per_s": merged / (spent + sum(barriers))}
        ms = {"barrier_ms": 1e3 * median(barriers), "barrier_most_ms": 1e3 * max(barriers)}
        found.append({"store": store, "keys": size, "flush": flush} | speeds | ms)
    return pd.DataFrame(found)


def _ones(keys: np.ndarray) -> Partials:
    """One to be added to each key."""
    return Partials(np.zeros(len(keys), int), keys, np.ones(len(keys), int))


def checkpoints(stores: Sequence[str], tuples: int, runs: int) -> pd.DataFrame:
    """Stream through a server of two tasks in each of `MODES`, in turns that begin anywhere.

    `stores` are kinds of the server's own store; the global one is SQLite. The tuples of each
    stream are over 100,000 uniform keys; one that takes less than a few seconds meets hardly a
    barrier.

    Columns store, mode, run; seconds until the tasks have merged everything, and throughput: tuples
    a second of these; lost: share of it, against the same turn without checkpoints; cpu_s: of all
    processes, the epoch commits that are left at the end included.
    """
    require_number("stores", len(stores), least=1)
    require_number("tuples", tuples, least=TASKS)
    require_number("runs", runs, least=1)
    stream, modes, rows = TupleStream(tuples, KEYS_OF_STREAM, rate=tuples), list(MODES), []
    with tempfile.TemporaryDirectory(prefix="aft-") as folder:
        log = TupleLog.draw(Path(folder) / "log", stream, TASKS)
        for store, turn in product(stores, range(runs)):
            taken = dict[str, dict[str, Any]]()
            for i in range(len(modes)):  # whoever comes first meets another machine than the last
                mode = modes[(turn + i) % len(modes)]
                seconds, cpu_s = _streamed(log, store, *MODES[mode])
                found = {"seconds": seconds, "throughput": tuples / seconds, "cpu_s": cpu_s}
                taken[mode] = {"store": store, "mode": mode, "run": turn} | found
            without = taken[modes[0]]["seconds"]
            rows += [taken[m] | {"lost": 1 - without / taken[m]["seconds"]} for m in modes]
    return pd.DataFrame(rows)


def _streamed(log: TupleLog, own: str, checkpoint_s: float, commit_s: float) -> tuple[float, float]:
    """Seconds until all is merged, and CPU seconds of all processes."""
    with tempfile.TemporaryDirectory(prefix="aft-") as folder:
        job = Job(
            log, Rules(Windows(1, 1)), Path(folder), servers=1, tasks=TASKS, own=own,
            batch=STREAM_BATCH, checkpoint_s=checkpoint_s, commit_s=commit_s,
        )  # fmt: skip
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        account = run_job(job)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return account.seconds, cpu
