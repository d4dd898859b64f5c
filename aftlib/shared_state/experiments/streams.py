"""What D3's experiments run on: logs of tuples whose keys are skewed more or less (section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from aftlib.core.windows import Windows
from aftlib.shared_state.stream.parsing import Rules
from aftlib.shared_state.stream.tuplelog import TupleLog, write_tuples
from aftlib.shared_state.stream.tuples import TupleStream

PARTITIONS = 8


@dataclass(frozen=True)
class Input:
    """A stream, its log, and the one big window that the document sums it by."""

    stream: TupleStream
    log: TupleLog

    @property
    def rules(self) -> Rules:
        """One tumbling window over everything, as in the document."""
        return Rules(Windows(self.stream.ticks, self.stream.ticks))


def inputs(
    spark: SparkSession,
    directory: Path,
    skews: Sequence[float],
    tuples: int,
    keys: int,
    seed: int,
    partitions: int = PARTITIONS,
) -> list[Input]:
    """A log for each skew, drawn on Spark; kept by its parameters and used again when there."""
    streams = [TupleStream(tuples, keys, skew, seed) for skew in skews]
    return [
        Input(s, write_tuples(spark, s, partitions, directory / f"tuples-{s.name}-p{partitions}"))
        for s in streams
    ]
