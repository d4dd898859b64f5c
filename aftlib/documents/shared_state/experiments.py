"""The parameters of notebook 03, its inputs, the document's table 1, and stored runs (D3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import pandas as pd
from pydantic import model_validator
from pyspark.sql import SparkSession

from aftlib.core.windows import Windows
from aftlib.documents.shared_state.parsing import TupleSource
from aftlib.documents.shared_state.strategies import late_global
from aftlib.documents.shared_state.sums import window_sums
from aftlib.documents.shared_state.table import SqliteTable
from aftlib.documents.shared_state.tuples import UNIFORM, TupleLog, TupleStream, write_tuples
from aftlib.notebook.parameters import ParameterModel, parameter

PARTITIONS = 8
#: Folder of stored runs: ``python -m benchmarks merging`` and ``kills`` make them, and
#: `benchmarks.evidence` writes them into this package, so that an installed package has them, too.
STORED = Path(__file__).parent / "stored"


class NotebookParameters(ParameterModel):
    """Parameters of notebook 03."""

    skews: list[int | float] = parameter(
        [0.0, 1.4, 2.0],
        "Zipf's parameter; 0 is uniform",
        least=0,
        smoke=[0.0, 1.4],
        full=[0.0, 1.2, 1.4, 1.6, 1.8, 2.0],
    )
    tuples: int = parameter(
        2_000_000, "of each measured stream", least=10_000, smoke=200_000, full=10_000_000
    )
    keys: int = parameter(100_000, "that may occur", least=1)
    seed: int = parameter(1, "of all streams", least=0)
    tasks: int = parameter(2, "parallelism that is measured", least=2)
    turns: int = parameter(5, "counted runs of each case", least=1, smoke=1, full=20)
    growth_tuples: int = parameter(
        5_000_000,
        "that one server sums with one task and with `tasks`",
        least=1,
        smoke=200_000,
        full=10_000_000,
    )
    kill_tuples: int = parameter(400_000, "of the stream for the kills", least=200_000)
    kill_turns: int = parameter(2, "repetitions of all kills", least=1, smoke=1, full=20)
    flush_rows: int = parameter(10_000, "sums of a batch", least=1, smoke=1_000)
    key_counts: list[int] = parameter(
        [10_000, 1_000_000],
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
    """Draw a log of each stream, or reuse it; its one window is the whole stream, as in D3."""
    inputs = {}
    for stream in streams:
        log = write_tuples(spark, stream, PARTITIONS, directory)
        inputs[stream.skew] = TupleSource(log, Windows(stream.ticks, stream.ticks))
    return inputs


TABLE_WINDOWS = Windows(10, 5)
#: Our tuples (timestamp, key, value) of two partitions; the document's table gives no numbers.
TABLE_TUPLES = (
    ((1, 0, 10), (3, 1, 20), (8, 0, 30), (6, 1, 40), (14, 0, 50)),
    ((2, 1, 1), (7, 0, 2), (4, 0, 3), (11, 1, 4), (19, 1, 5)),
)


def table_1(spark: SparkSession, directory: Path) -> pd.DataFrame:
    """Return D3 table 1 (window id, key, value) of two tasks that share a table: w = 10, l = 5."""
    texts = ["".join(f"{t},{k},{v}\n" for t, k, v in part).encode() for part in TABLE_TUPLES]
    source = TupleSource(TupleLog.write(directory / "log", texts), TABLE_WINDOWS)
    slices = late_global(spark, source, 2, partial(SqliteTable, directory / "table.sqlite"))
    sums = window_sums(slices, TABLE_WINDOWS)
    spans = [f"[{start}, {start + TABLE_WINDOWS.width})" for start in sums.windows.tolist()]
    return pd.DataFrame({"window id": spans, "key": sums.keys, "value": sums.values})


def stored_engines() -> pd.DataFrame:
    """Return throughput of stored runs of Flink's jobs and of the strategies (D3's prototype).

    Columns engine, tasks, skew, tuples, runs, throughput (median, tuples per second), date and
    processor of the run.
    """
    return pd.read_csv(STORED / "engines.csv")


def stored_kills() -> pd.DataFrame:
    """Return stored kills of tasks and servers.

    Columns killed, point, kills: their number, wrong and disturbed: how many of them, date and
    processor of the run.
    """
    return pd.read_csv(STORED / "kills.csv")


def stored_ratios(
    engines: pd.DataFrame, above: tuple[str, int], below: tuple[str, int]
) -> pd.Series:
    """Return, by skew, an engine's stored throughput over another's; each with its tasks."""
    wide: Any = engines.pivot_table(
        index="skew", columns=["engine", "tasks"], values="throughput", aggfunc="median"
    )
    if above not in wide or below not in wide:
        return pd.Series(dtype=float)
    ratios: pd.Series = wide[above] / wide[below]
    return ratios.dropna()


def stored_gains(engines: pd.DataFrame, engine: str) -> pd.Series:
    """Return, by skew, an engine's stored throughput on two tasks over that of uniform keys."""
    runs = engines[(engines["engine"] == engine) & (engines["tasks"] == 2)]
    speeds = runs.groupby("skew")["throughput"].median()
    if UNIFORM not in speeds:
        return pd.Series(dtype=float)
    gains: pd.Series = speeds / speeds[UNIFORM]
    return gains.drop(UNIFORM)
