"""Streams of (timestamp, key, value) tuples as D3's experiment has them, drawn range by range."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

ROWS_PER_RANGE = 65_536
"""Tuples drawn from one random stream; part of what a seed means, so never a parameter."""
UNIFORM = 0.0
"""The skew of equally likely keys; D3 calls it 1.0, which is Zipf(1) here."""
LARGEST_VALUE = 100

_PLAIN = pc.WriteOptions(include_header=False, quoting_style="none")


@dataclass(frozen=True)
class TupleStream:
    """A seeded stream of tuples (D3 section 6), the same however it is cut into files and tasks.

    Values are whole numbers, uniform over 0 … 100, so that sums are exact in any order. Every key
    has the same number of digits whatever its rank, so that skew does not shorten the text.

    Raises a ValueError when a parameter is out of its range.
    """

    tuples: int
    keys: int = 100_000  # different ones that may occur; the document gives no number
    skew: float = UNIFORM  # Zipf's parameter: the key of rank r has weight r^−skew; 0 is uniform
    seed: int = 1
    rate: int = 1_000  # tuples a tick of event time
    disorder: int = 0  # ticks by which a tuple may come late at most, uniformly

    def __post_init__(self) -> None:
        least = {"tuples": 0, "keys": 1, "seed": 0, "rate": 1, "disorder": 0, "skew": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if not value >= low:
                hint = " (0 is uniform)" if name == "skew" else ""
                raise ValueError(f"{name} must be at least {low}{hint}, got {value!r}")

    @property
    def name(self) -> str:
        """Every parameter in a word, by which the stream's files are kept."""
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
        """Event times lie in 0 … ticks − 1."""
        return -(-self.tuples // self.rate)

    @cached_property
    def shares(self) -> np.ndarray:
        """Probability of each key by its rank, the most frequent first, shape (keys,)."""
        weights = np.arange(1, self.keys + 1, dtype=float) ** -self.skew
        return weights / weights.sum()

    @cached_property
    def ids(self) -> np.ndarray:
        """Key of each rank, shape (keys,): shuffled, for a key's name tells not how often it is."""
        first = 10 ** len(str(self.keys - 1))
        return first + np.random.default_rng([self.seed]).permutation(self.keys)

    @cached_property
    def _cumulative(self) -> np.ndarray:
        return np.cumsum(self.shares)[:-1]

    def draw(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Timestamps, keys and values of row range number `index`, each of shape (rows,)."""
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
        """Lines of row range number `index`."""
        table = pa.table(dict(zip(("timestamp", "key", "value"), self.draw(index), strict=True)))
        sink = io.BytesIO()
        pc.write_csv(table, sink, _PLAIN)
        return sink.getvalue()
