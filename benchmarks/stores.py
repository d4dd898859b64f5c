"""State tables: merges per second, what a barrier costs, and what local checkpoints cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pandas as pd

from aftlib.shared_state.aggregates import SUM
from aftlib.shared_state.experiments.servers import BATCH, BATCHES, EMBEDDED, checkpoints, merges
from aftlib.shared_state.stores import open_table
from aftlib.shared_state.stores.tables import StateTable
from benchmarks.timing import say
from tests.postgres import any_server, fresh_schema

KEYS = (10_000, 100_000, 1_000_000)
ROWS = 1_000_000
TUPLES, RUNS = 50_000_000, 5
SEED = 1


def run() -> dict[str, Any]:
    """All figures of this benchmark."""
    with any_server() as url:
        stores = EMBEDDED | {"postgresql": partial(in_fresh_schema, url)}
        say(f"merges into {', '.join(stores)}")
        speeds = merges(stores, KEYS, ROWS, SEED)
    say(f"{RUNS} streams of {TUPLES:,} tuples over each store of a server's own, in each mode")
    streams = checkpoints(["rocksdb", "sqlite"], TUPLES, RUNS)
    return {
        "batch_rows": BATCH,
        "batches_between_barriers": BATCHES,
        "merges": speeds.round(2).to_dict("records"),
        "stream_tuples": TUPLES,
        "streams": [spread(*at, runs) for at, runs in streams.groupby(["store", "mode"])],
    }


@contextmanager
def in_fresh_schema(url: str, flush: str) -> Iterator[StateTable]:
    """A new table in PostgreSQL, which is removed afterwards."""
    with fresh_schema(url) as schema, open_table(url, SUM, flush, schema=schema.name) as table:
        yield table


def spread(store: str, mode: str, runs: pd.DataFrame) -> dict[str, Any]:
    """Throughput and CPU of a mode, and what it loses against the same turn without checkpoints.

    CPU seconds are of the whole run; with epoch commits put off they hold one large one at the end.
    """
    row = {"store": store, "mode": mode, "tuples_per_s": runs["throughput"].round().tolist()}
    lost = [round(share, 4) for share in runs["lost"]]
    return row | {
        "lost_median": statistics.median(lost),
        "lost_least": min(lost),
        "lost_most": max(lost),
        "cpu_s_median": round(statistics.median(runs["cpu_s"]), 2),
    }
