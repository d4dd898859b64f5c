"""Streams of tuples (D3 section 6), and their partitioned log: one text file per partition."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from aftlib.core.checks import require_number
from aftlib.core.paths import atomic_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_RANGE = 65_536
"""Tuples of one random generator; no parameter, because the tuples of a seed depend on it."""
UNIFORM = 0.0
"""The skew of equally likely keys; D3 calls it 1.0, which is Zipf(1) here."""
LARGEST_VALUE = 100
MANIFEST = "manifest.json"

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

    def text(self, index: int) -> bytes:
        """Return the lines of the row range with this index, as bytes."""
        table = pa.table(dict(zip(("timestamp", "key", "value"), self.draw(index), strict=True)))
        sink = io.BytesIO()
        pc.write_csv(table, sink, _CSV_OPTIONS)
        return sink.getvalue()


@dataclass(frozen=True)
class TupleLog:
    """Lines ``timestamp,key,value`` in one file per partition, each in the order of its queue.

    `path` is the folder of the files `part-00000.csv` … and of the manifest, which is written last.
    `about` has the parameters of a drawn stream.
    """

    path: Path
    partitions: int
    about: dict

    @classmethod
    def open(cls, path: Path | str) -> TupleLog:
        """Open a complete log; ValueError if `path` holds none."""
        try:
            manifest = json.loads((Path(path) / MANIFEST).read_text())
            return cls(Path(path), manifest["partitions"], manifest["about"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"path holds no complete tuple log, got {str(path)!r} ({error}); "
                "write one with TupleLog.write, or delete the folder and make it again"
            ) from error

    @classmethod
    def write(cls, path: Path | str, texts: Iterable[bytes]) -> TupleLog:
        """Write each partition's bytes as they are; FileExistsError if `path` exists."""
        with atomic_directory(Path(path)) as scratch:
            partitions = 0
            for text in texts:
                part_path(scratch, partitions).write_bytes(text)
                partitions += 1
            write_manifest(scratch, partitions, {})
        return cls.open(path)

    @classmethod
    def draw(cls, path: Path | str, stream: TupleStream, partitions: int) -> TupleLog:
        """Draw a stream into a new log in this process, as `write_tuples` does on Spark."""
        with atomic_directory(Path(path)) as scratch:
            for partition in range(partitions):
                draw_part(scratch, stream, partition, partitions)
            write_manifest(scratch, partitions, asdict(stream))
        return cls.open(path)

    def part(self, partition: int) -> Path:
        """File of a partition."""
        return part_path(self.path, partition)


def part_path(directory: Path, partition: int) -> Path:
    """File of a partition in a log's folder."""
    return directory / f"part-{partition:05d}.csv"


def draw_part(directory: Path, stream: TupleStream, partition: int, partitions: int) -> None:
    """Draw a partition: the stream's row ranges are dealt out to the partitions in turn."""
    with part_path(directory, partition).open("wb") as file:
        file.writelines(map(stream.text, range(partition, stream.ranges, partitions)))


def write_manifest(directory: Path, partitions: int, about: dict) -> None:
    """Write the manifest, which makes a folder of parts a log."""
    (directory / MANIFEST).write_text(json.dumps({"partitions": partitions, "about": about}))


def write_tuples(
    spark: SparkSession, stream: TupleStream, partitions: int, path: Path | str
) -> TupleLog:
    """Draw a stream in Spark tasks and store it as a log; reuse a log that exists.

    At most `partitions` tasks can read it. ValueError if `path` holds a log of another stream.
    """
    require_number("partitions", partitions, least=1, whole=True)
    if Path(path).exists():
        log, about = TupleLog.open(path), asdict(stream)
        if (log.about, log.partitions) != (about, partitions):
            raise ValueError(
                f"path holds a log of {log.about} in {log.partitions} partitions, got a request "
                f"for {about} in {partitions}; give another path or delete the folder"
            )
        return log
    from aftlib.spark.sweep import by_number

    with atomic_directory(Path(path)) as scratch:

        def write(partition: int) -> Iterator[pa.RecordBatch]:
            draw_part(scratch, stream, partition, partitions)
            yield pa.RecordBatch.from_pydict({"id": [partition]})

        by_number(spark, partitions, write, "id long").count()
        write_manifest(scratch, partitions, asdict(stream))
    return TupleLog.open(path)
