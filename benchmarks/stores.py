"""State tables: merges per second, what a barrier costs, and what local checkpoints take away."""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from aftlib.aggregates import SUM, Partials
from aftlib.sharing.driver import Driver
from aftlib.sharing.job import Job
from aftlib.sharing.journal import JOURNAL
from aftlib.sharing.source import ArraySource
from aftlib.statestore.opening import open_table
from aftlib.statestore.tables import Progress, StateTable
from aftlib.windows import Windows
from tests.postgres import any_server

STORES = ("memory", "rocksdb", "sqlite", "postgresql")
KEYS = (10_000, 100_000, 1_000_000)
BATCH = 10_000
"""Rows a merge."""
BUDGET_S = 3.0
"""Seconds that merges of one store, size and mode may take."""
TUPLES, TASKS, RUNS = 40_000_000, 2, 5


def run(tuples: int = TUPLES, runs: int = RUNS) -> dict[str, Any]:
    """All figures of this benchmark.

    Parameters
    ----------
    tuples : int
        Length of the stream that local checkpoints slow down.
    runs : int
        Runs with and without them, in turn.
    """
    with ExitStack() as stack, tqdm(total=len(STORES) * len(KEYS) * 2, file=sys.stderr) as bar:
        url = stack.enter_context(any_server())
        merges = [
            measured(store, url, keys, flush, bar)
            for store in STORES
            for keys in KEYS
            for flush in ("barrier", "merge")
            if store != "memory" or flush == "barrier"
        ]
    return {
        "batch_rows": BATCH,
        "merges": merges,
        "local_checkpoints": [loss(own, keys, tuples, runs) for own, keys in LOSSES],
    }


LOSSES = (("memory", 100_000), ("rocksdb", 100_000), ("sqlite", 100_000))


def measured(store: str, url: str, keys: int, flush: str, bar: tqdm) -> dict[str, Any]:
    """Merges per second into a table that holds all keys, and seconds of a barrier after them."""
    bar.set_description(f"{store}, {keys:,} keys, flush at every {flush}")
    rng = np.random.default_rng(1)
    batch = min(BATCH, keys)
    with opened(store, url, keys, flush) as table:
        whole = Partials(np.zeros(keys, int), np.arange(keys), np.ones(keys, int))
        table.merge(whole, {0: Progress(0)})
        table.barrier()
        merged, spent, barriers = 0, 0.0, []
        while spent < BUDGET_S and merged < 3_000_000:
            rows = SUM.partials(
                np.zeros(batch, int), rng.choice(keys, batch, replace=False), np.ones(batch, int)
            )
            begin = time.perf_counter()
            table.merge(rows, {0: Progress(merged)})
            spent += time.perf_counter() - begin
            merged += len(rows)
            if len(barriers) < 5:
                begin = time.perf_counter()
                table.barrier()
                barriers.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        table.barrier()
        last = time.perf_counter() - begin
    bar.update()
    return {
        "store": store,
        "keys": keys,
        "flush": flush,
        "merges_per_s": merged / spent,
        "barrier_after_one_batch_s": statistics.median(barriers),
        "barrier_after_all_s": last,
    }


@contextmanager
def opened(store: str, url: str, keys: int, flush: str) -> Iterator[StateTable]:
    """A new table of a store."""
    with tempfile.TemporaryDirectory() as folder:
        address = url if store == "postgresql" else f"{store}:{folder}/table"
        more = {"schema": f"bench_{os.getpid()}_{keys}_{flush}"} if store == "postgresql" else {}
        with open_table(address, SUM, flush, **more) as table:
            yield table


@dataclass(frozen=True)
class Stream:
    """Partitions made anew at every read, at the speed of memory: what is left is the sharing."""

    tuples: int
    keys: int
    partitions: int = TASKS
    pane: int = 1


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
