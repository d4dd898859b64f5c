"""D3 table 1: the shared state table of sliding windows, w = 10 and l = 5, as two tasks fill it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.experiments.throughputs import shared_file
from aftlib.shared_state.strategies.pipeline import MergedLog, merge_log
from aftlib.shared_state.stream.parsing import Rules
from aftlib.shared_state.stream.tuplelog import TupleLog

WINDOWS = Windows(10, 5, "sum")
PARTITIONS = (
    ((1, 0, 10), (3, 1, 20), (8, 0, 30), (6, 1, 40), (14, 0, 50)),
    ((2, 1, 1), (7, 0, 2), (4, 0, 3), (11, 1, 4), (19, 1, 5)),
)
"""Our tuples (timestamp, key, value): the document's table has only o in place of numbers."""
DELAY = 5
"""Ticks that the watermark is behind: enough for the tuples that come out of order here."""


def table_1(spark: SparkSession, directory: Path) -> tuple[pd.DataFrame, pd.DataFrame, MergedLog]:
    """Let two tasks merge their slices into one shared table, and put windows together.

    Returns
    -------
    state : DataFrame
        slice, key, value: the shared table as it is kept.
    windows : DataFrame
        window id, key, value: table 1.
    done : MergedLog
    """
    texts = [_text(tuples) for tuples in PARTITIONS]
    log, table = TupleLog.write(directory / "log", texts), shared_file(directory)
    rules = Rules(WINDOWS, DELAY)
    done = merge_log(spark, log, rules, "late global", len(texts), directory / "notes", table)
    with table() as shared:
        state = _shown(shared.read(), "slice", WINDOWS.pane)
    return state, _shown(done.sums, "window id", WINDOWS.width), done


def _text(tuples: Sequence[tuple[int, int, int]]) -> bytes:
    return "".join(f"{time},{key},{value}\n" for time, key, value in tuples).encode()


def _shown(sums: Partials, name: str, width: int) -> pd.DataFrame:
    spans = [f"[{start}, {start + width})" for start in sums.windows.tolist()]
    return pd.DataFrame({name: spans, "key": sums.keys, "value": sums.values[:, 0]})
