"""How many keys a stream needs so that skew speeds up a shared table (D3-4)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from aftlib.documents.shared_state.experiments import shared_table, sources
from aftlib.documents.shared_state.tuples import UNIFORM, TupleStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Skews that are compared with uniform keys: the document's least one, and that of its sentence.
SKEWS = (1.2, 1.4)
#: Most turns; the search is a sensitivity of D3-4 and decides nothing.
MOST_TURNS = 3


def search_keys(
    spark: SparkSession,
    directory: Path,
    stream: TupleStream,
    key_counts: Sequence[int],
    tasks: int,
    turns: int,
) -> pd.DataFrame:
    """Time the shared table on streams that differ from `stream` in the number of keys and skew.

    Each number of keys has one uncounted turn, and at most `MOST_TURNS` counted ones. Columns keys,
    skew, turn; states: number of sums; throughput: tuples per second.
    """
    from aftlib.documents.shared_state.strategies import late_global

    rows = []
    for keys in sorted(key_counts):
        streams = [
            TupleStream(stream.tuples, keys, skew, stream.seed) for skew in (UNIFORM, *SKEWS)
        ]
        inputs = sources(spark, directory, streams)
        counted = range(-1, min(turns, MOST_TURNS))
        for turn, (skew, source) in product(counted, inputs.items()):
            with shared_table() as table:
                begin = time.perf_counter()
                sums = late_global(spark, source, tasks, table)
                seconds = time.perf_counter() - begin
            speed = int(sums.counts.sum()) / seconds
            rows.append((keys, skew, turn, len(sums), speed))
    frame = pd.DataFrame(rows, columns=["keys", "skew", "turn", "states", "throughput"])
    return frame[frame["turn"] >= 0].reset_index(drop=True)


def gains_of_skew(searched: pd.DataFrame) -> pd.DataFrame:
    """Return throughput over that of uniform keys: a row per number of keys, a column per skew.

    Ratios are within a turn; the median of the turns is returned.
    """
    wide = searched.pivot_table(index=["keys", "turn"], columns="skew", values="throughput")
    gains = wide.div(wide[UNIFORM], axis=0).drop(columns=UNIFORM)
    return gains.groupby("keys").median()
