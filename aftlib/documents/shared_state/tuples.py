"""Streams of tuples (D3 section 6) and their log, which is one text file per partition."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from aftlib.core.checks import require_number
from aftlib.core.storage import atomic_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Tuples of one random generator; no parameter, because the tuples of a seed depend on it.
ROWS_PER_RANGE = 65_536
#: The skew of equally likely keys; D3 calls it 1.0, which is Zipf(1) here.
UNIFORM = 0.0
LARGEST_VALUE = 100

_LEAST = {"tuples": 0, "keys": 1, "seed": 0, "rate": 1, "disorder": 0, "skew": 0}
_CSV_OPTIONS = pc.WriteOptions(include_header=False, quoting_style="none")


@dataclass(frozen=True)
class TupleStream:
    """A seeded stream of tuples (D3 section 6), the same however it is cut into files and tasks.

    Values are whole numbers, uniform over 0 … 100, so that sums are exact in any order. Every key
    has the same number of digits whatever its rank, so that skew does not shorten the text.

    Raises a ValueError when a parameter is out of its range.
    """

    tuples: int
    keys: int = 100_000  # different keys that may occur; the document gives no number
    skew: float = UNIFORM  # Zipf's parameter: the key of rank r has weight r^−skew; 0 is uniform
    seed: int = 1
    rate: int = 1_000  # tuples per tick of event time
    disorder: int = 0  # largest delay of a tuple in ticks; delays are uniform

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            require_number(name, getattr(self, name), least=least)

    @property
    def name(self) -> str:
        """All parameters in one word, which names the stream's files."""
        return (
            f"n{self.tuples}-k{self.keys}-zipf{self.skew:g}-seed{self.seed}"
            f"-rate{self.rate}-disorder{self.disorder}"
        )

    @property
    def ranges(self) -> int:
        """Number of row ranges."""
        return -(-self.tuples // ROWS_PER_RANGE)

    @property
    def ticks(self) -> int:
        """Length of the stream: event times lie in 0 … ticks − 1."""
        return -(-self.tuples // self.rate)

    @cached_property
    def shares(self) -> np.ndarray:
        """Probability of each key by its rank, the most frequent first, shape (keys,)."""
        weights = np.arange(1, self.keys + 1, dtype=float) ** -self.skew
        return np.asarray(weights / weights.sum())

    @cached_property
    def ids(self) -> np.ndarray:
        """Key of each rank, shape (keys,): shuffled, so that a key does not show its rank."""
        first = 10 ** len(str(self.keys - 1))
        return np.asarray(first + np.random.default_rng([self.seed]).permutation(self.keys))

    @cached_property
    def _cumulative(self) -> np.ndarray:
        return np.cumsum(self.shares)[:-1]

    def draw(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw timestamps, keys and values of the row range `index`, each of shape (rows,)."""
        first = index * ROWS_PER_RANGE
        rows = np.arange(first, min(self.tuples, first + ROWS_PER_RANGE))
        rng = np.random.default_rng([self.seed, index])
        uniform = rng.random(ROWS_PER_RANGE)[: len(rows)]
        if self.skew == UNIFORM:
            ranks = (uniform * self.keys).astype(np.int64)
        else:
            ranks = np.searchsorted(self._cumulative, uniform, side="right")
        values = rng.integers(0, LARGEST_VALUE + 1, ROWS_PER_RANGE)[: len(rows)]
        delays = rng.integers(0, self.disorder + 1, ROWS_PER_RANGE)[: len(rows)]
        return np.maximum(rows // self.rate - delays, 0), self.ids[ranks], values

    def text(self, partition: int, partitions: int) -> bytes:
        """Return a partition's lines: row ranges are dealt out to the partitions in turn."""
        sink = io.BytesIO()
        for index in range(partition, self.ranges, partitions):
            table = pa.table(dict(zip("tkv", self.draw(index), strict=True)))
            pc.write_csv(table, sink, _CSV_OPTIONS)
        return sink.getvalue()


@dataclass(frozen=True)
class TupleLog:
    """Lines ``timestamp,key,value`` in one file per partition, each in the order of its queue.

    `path` is the folder of the files `part-00000.csv` …, which appears when all are written.
    """

    path: Path
    partitions: int

    @classmethod
    def open(cls, path: Path | str) -> TupleLog:
        """Open a log; ValueError if `path` holds none."""
        partitions = len(list(Path(path).glob("part-*.csv")))
        if not partitions:
            raise ValueError(
                f"path must hold part-*.csv files, got {str(path)!r}: write a log first"
            )
        return cls(Path(path), partitions)

    @classmethod
    def write(cls, path: Path | str, texts: Iterable[bytes]) -> TupleLog:
        """Write each partition's bytes as they are; FileExistsError if `path` exists."""
        with atomic_directory(Path(path)) as scratch:
            for partition, text in enumerate(texts):
                part_path(scratch, partition).write_bytes(text)
        return cls.open(path)

    def part(self, partition: int) -> Path:
        """File of a partition."""
        return part_path(self.path, partition)


def part_path(directory: Path, partition: int) -> Path:
    """File of a partition in a log's folder."""
    return directory / f"part-{partition:05d}.csv"


def draw_log(path: Path | str, stream: TupleStream, partitions: int) -> TupleLog:
    """Draw a stream into a new log in this process, as `write_tuples` does on Spark."""
    return TupleLog.write(path, (stream.text(p, partitions) for p in range(partitions)))


def write_tuples(
    spark: SparkSession, stream: TupleStream, partitions: int, directory: Path
) -> TupleLog:
    """Draw a stream in Spark tasks into a log in `directory`; reuse the log if it exists.

    Its folder is named after the stream. At most `partitions` tasks can read it.
    """
    from aftlib.spark.sweep import by_number

    path = directory / f"tuples-{stream.name}-p{partitions}"
    if not path.exists():
        with atomic_directory(path) as scratch:

            def write(partition: int) -> Iterator[pa.RecordBatch]:
                part_path(scratch, partition).write_bytes(stream.text(partition, partitions))
                yield pa.RecordBatch.from_pydict({"id": [partition]})

            by_number(spark, partitions, write, "id long").count()
    return TupleLog.open(path)
