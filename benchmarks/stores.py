"""State tables: merges per second, what a barrier costs, and what local checkpoints take away."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from aftlib.aggregates import SUM, Partials
from aftlib.sharing.driver import run as run_job
from aftlib.sharing.job import Job
from aftlib.sharing.source import END
from aftlib.statestore.opening import open_table
from aftlib.statestore.tables import FLUSHES, Progress, StateTable
from aftlib.windows import Windows
from tests.postgres import any_server, fresh_schema

STORES = ("memory", "rocksdb", "sqlite", "postgresql")
KEYS = (10_000, 100_000, 1_000_000)
BATCH, BATCHES = 10_000, 10
"""Rows a merge, and merges between two barriers."""
BUDGET_S, MOST_ROWS = 2.0, 1_000_000
"""Seconds and rows that the merges of one store, size and mode may take."""
STREAMS = {"rocksdb": (5, 50_000_000), "sqlite": (3, 50_000_000)}
"""Runs and tuples of a stream over each store of a server's own, in each mode in turn."""
TASKS, KEYS_OF_STREAM, STREAM_BATCH = 2, 100_000, 250_000
NEVER_S = 1e9
MODES = {
    "without": (NEVER_S, NEVER_S),
    "local": (1.0, NEVER_S),
    "local_and_global": (1.0, 0.0),
}
"""Seconds between barriers and between hand-overs; at the end comes one of each anyway."""


def run() -> dict[str, Any]:
    """All figures of this benchmark."""
    cases = [
        (store, keys, flush)
        for store in STORES
        for keys in KEYS
        for flush in FLUSHES
        if store != "memory" or flush == "barrier"
    ]
    steps = len(cases) + len(MODES) * sum(runs for runs, _ in STREAMS.values())
    with any_server() as url, tqdm(total=steps, file=sys.stderr) as bar:
        merges = [measured(*case, url, bar) for case in cases]
        losses = [loss(own, *stream, bar) for own, stream in STREAMS.items()]
    return {
        "batch_rows": BATCH,
        "batches": BATCHES,
        "merges": merges,
        "barriers_every_second": losses,
    }


def measured(store: str, keys: int, flush: str, url: str, bar: tqdm) -> dict[str, Any]:
    """Merges per second into a table that holds all keys, and seconds of barriers between them."""
    bar.set_description(f"{store}, {keys:,} keys, flush at every {flush}")
    rng, size = np.random.default_rng(1), min(BATCH, keys)
    merged, spent, barriers = 0, 0.0, []
    with opened(store, url, flush) as table:
        table.merge(batch(np.arange(keys)), {0: Progress(0)})
        timed(table.barrier)
        while spent < BUDGET_S and merged < MOST_ROWS:
            for _ in range(BATCHES):
                rows = batch(np.sort(rng.choice(keys, size, replace=False)))
                spent += timed(table.merge, rows, {0: Progress(merged)})
                merged += len(rows)
            barriers.append(timed(table.barrier))
    bar.update()
    return {
        "store": store,
        "keys": keys,
        "flush": flush,
        "merges_per_s": merged / spent,
        "barrier_median_s": statistics.median(barriers),
        "barrier_most_s": max(barriers),
    }


def batch(keys: np.ndarray) -> Partials:
    """One to be added to each key."""
    return Partials(np.zeros(len(keys), int), keys, np.ones(len(keys), int))


def timed(work: Callable[..., Any], *args: Any) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    work(*args)
    return time.perf_counter() - begin


@contextmanager
def opened(store: str, url: str, flush: str) -> Iterator[StateTable]:
    """A new table of a store, of which nothing is left behind."""
    if store == "postgresql":
        with fresh_schema(url) as schema, open_table(url, SUM, flush, schema=schema.name) as table:
            yield table
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        open_table(f"{store}:{folder}/table", SUM, flush) as table,
    ):
        yield table


@dataclass(frozen=True)
class Stream:
    """A source as fast as memory: what is measured is the sharing alone, nothing is parsed."""

    tuples: int
    keys: int
    partitions: int = TASKS

    def batches(self, partition: int, progress: Progress | None, rows: int) -> Iterator[Any]:
        """Batches of the same drawn tuples over and over."""
        rng = np.random.default_rng(partition)
        keys, values = rng.integers(0, self.keys, 2 * rows), rng.integers(0, 100, 2 * rows)
        length, offset = self.tuples // self.partitions, progress.offset if progress else 0
        while offset < length:
            size, at = min(rows, length - offset), offset % rows
            block = (np.zeros(size, int), keys[at : at + size], values[at : at + size])
            since, offset = offset, offset + size
            yield block, Progress(offset, END if offset == length else 0, 0, since)


def loss(own: str, runs: int, tuples: int, bar: tqdm) -> dict[str, Any]:
    """Tuples per second without barriers, with one a second, and with one handed over a second."""
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    cpu: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(runs):
        for mode, (checkpoint_s, handover_s) in MODES.items():
            bar.set_description(f"{own}, {mode}")
            rate, seconds = streamed(own, tuples, checkpoint_s, handover_s)
            rates[mode].append(rate)
            cpu[mode].append(seconds)
            bar.update()
    return {
        "own": own,
        "keys": KEYS_OF_STREAM,
        "tuples": tuples,
        "tuples_per_s": rates,
        "cpu_s": cpu,
        **{f"loss_{mode}": spread(rates, cpu, mode) for mode in MODES if mode != "without"},
    }


def spread(rates: dict[str, list[float]], cpu: dict[str, list[float]], mode: str) -> dict[str, Any]:
    """Loss of throughput, run by run against the one before it without barriers.

    CPU seconds are of the whole run; with hand-overs put off they hold one large one at the end.
    """
    lost = [1 - b / a for a, b in zip(rates["without"], rates[mode], strict=True)]
    more = [b / a - 1 for a, b in zip(cpu["without"], cpu[mode], strict=True)]
    return {
        "median": statistics.median(lost),
        "least": min(lost),
        "most": max(lost),
        "more_cpu_median": statistics.median(more),
    }


def streamed(own: str, tuples: int, checkpoint_s: float, handover_s: float) -> tuple[float, float]:
    """Tuples per second, and CPU seconds of all processes."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            Stream(tuples, KEYS_OF_STREAM),
            Path(folder),
            Windows(1, 1),
            servers=1,
            tasks=TASKS,
            own=own,
            batch=STREAM_BATCH,
            checkpoint_s=checkpoint_s,
            handover_s=handover_s,
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        account = run_job(job)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return account.units / account.seconds, cpu


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
