"""Streams of tuples (D3 section 6), their log, and by formula the throughput of adding them up.

The log is one text file per partition. A hash function is not given by the document: it is a
population here, `HASHES` drawn at random.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
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
#: Number of hash functions that are drawn.
HASHES = 200

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
        return weights / weights.sum()

    @cached_property
    def ids(self) -> np.ndarray:
        """Key of each rank, shape (keys,): shuffled, so that a key does not show its rank."""
        first = 10 ** len(str(self.keys - 1))
        return first + np.random.default_rng([self.seed]).permutation(self.keys)

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


@cache
def busiest_shares(keys: int, skew: float, tasks: int, hashes: int = HASHES) -> np.ndarray:
    """Share of tuples that the busiest of `tasks` receivers gets, by hash function: q_p."""
    shares = TupleStream(1, keys, skew).shares
    draws = (np.random.default_rng([turn, keys]).integers(0, 2**32, keys) for turn in range(hashes))
    return np.array(
        [np.bincount(each % tasks, weights=shares, minlength=tasks).max() for each in draws]
    )


def shuffle_throughput(busiest: np.ndarray, tasks: int, receivers: float) -> np.ndarray:
    """Throughput of a pipelined shuffle: 1 / max((1 − b) / p, b·q_p), relative to one task.

    Receivers bear the share `receivers` (b) of a tuple's cost. Senders or the busiest receiver
    limit the throughput, whichever are slower.
    """
    return 1 / np.maximum((1 - receivers) / tasks, receivers * busiest)


def merged_sums(stream: TupleStream, tasks: int) -> float:
    """Expected number of sums that `tasks` tasks hold together: keys that each has seen."""
    seen = -np.expm1(stream.tuples / tasks * np.log1p(-np.minimum(stream.shares, 1 - 1e-16)))
    return float(tasks * seen.sum())


def shared_throughput(stream: TupleStream, tasks: int, merge_ns: float, tuple_ns: float) -> float:
    """Throughput of tasks that merge their sums once, one after another, relative to one task.

    A tuple costs a task `tuple_ns`, and merging a sum into the shared table `merge_ns`.
    """
    merging = merge_ns * merged_sums(stream, tasks) / stream.tuples
    return 1 / (1 / tasks + merging / tuple_ns)


#: Numbers of tasks for which growth is computed, and the document's number of tuples.
MODELLED_TASKS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96)
DOCUMENTS_TUPLES = 100_000_000


def modelled_growth(
    keys: int, skews: Sequence[float], receivers: float, tuple_ns: float, merge_ns: float
) -> pd.DataFrame:
    """Compute throughput over one task's: a shuffle's (median hash function), a shared table's.

    Columns method: shuffle or shared table, skew, tasks, growth.
    """
    rows = []
    for skew, tasks in product(skews, MODELLED_TASKS):
        stream = TupleStream(DOCUMENTS_TUPLES, keys, skew)
        shares = busiest_shares(keys, skew, tasks, hashes=21)
        shuffled = float(np.median(shuffle_throughput(shares, tasks, receivers)))
        shared = shared_throughput(stream, tasks, merge_ns, tuple_ns)
        rows += [("shuffle", skew, tasks, shuffled), ("shared table", skew, tasks, shared)]
    frame = pd.DataFrame(rows, columns=["method", "skew", "tasks", "throughput"])
    first = frame.groupby(["method", "skew"])["throughput"].transform("first")
    return frame.assign(growth=frame.pop("throughput") / first)
