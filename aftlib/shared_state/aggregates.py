"""Merge functions: associative, commutative aggregates of int64 values, exact or OverflowError."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_LIMITS = np.iinfo(np.int64)


@dataclass(frozen=True, eq=False)
class Partials:
    """Partial aggregates, one row per window and key (D3 table 1), all of them int64.

    `windows` and `keys` have shape (n,). `values` has shape (n, components), one column for each
    component of the `Aggregate`; shape (n,) becomes one column. ValueError for different lengths,
    or for numbers that are not integers of at most 64 bits.
    """

    windows: np.ndarray
    keys: np.ndarray
    values: np.ndarray

    def __post_init__(self) -> None:
        for name in ("windows", "keys", "values"):
            array = np.asarray(getattr(self, name))
            whole = array.dtype.kind in "iu"
            if not whole or (array.dtype != np.int64 and array.max(initial=0) > _LIMITS.max):
                raise ValueError(f"{name} must be integers of at most 64 bits, got {array.dtype}")
            object.__setattr__(self, name, array.astype(np.int64, copy=False))
        if self.values.ndim == 1:
            object.__setattr__(self, "values", self.values[:, None])
        if not len(self.windows) == len(self.keys) == len(self.values):
            raise ValueError(
                f"windows, keys and values must have one row each, got {len(self.windows)}, "
                f"{len(self.keys)} and {len(self.values)}"
            )

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: np.ndarray | slice) -> Partials:
        return Partials(self.windows[rows], self.keys[rows], self.values[rows])

    @classmethod
    def empty(cls, components: int) -> Partials:
        """Return partials without rows."""
        none = np.empty(0, np.int64)
        return cls(none, none, np.empty((0, components), np.int64))

    @classmethod
    def concat(cls, first: Partials, *others: Partials) -> Partials:
        """Concatenate the rows; a window and key may then occur more than once."""
        names = ("windows", "keys", "values")
        return cls(*(np.concatenate([getattr(p, n) for p in (first, *others)]) for n in names))

    @property
    def in_order(self) -> bool:
        """Whether the rows are sorted by window and key, each occurring once."""
        window, key = self.windows[:-1], self.keys[:-1]  # compared: a difference may overflow
        after, key_after = self.windows[1:], self.keys[1:]
        return bool(np.all((after > window) | ((after == window) & (key_after > key))))


@dataclass(frozen=True)
class Aggregate:
    """An associative, commutative function f of D3 eqs. (4)-(6), and the components it stores.

    `components` has one merge rule per stored integer: "add", "min" or "max". The mean stores a sum
    and a count, both "add". `AGGREGATES` has all aggregates by name.

    >>> windows, keys, values = np.array([[0, 0, 0], [7, 3, 7], [1, 2, 4]])
    >>> rows = SUM.group(Partials(windows, keys, values))
    >>> rows.keys.tolist(), SUM.result(rows.values).tolist()
    ([3, 7], [2, 5])
    """

    name: str
    components: tuple[str, ...]

    def group(self, partials: Partials) -> Partials:
        """Merge the rows of each window and key into one, sorted; OverflowError beyond 64 bits.

        ValueError if the rows have another number of components.
        """
        if len(partials) and partials.values.shape[1:] != (len(self.components),):
            raise ValueError(
                f"partials must have {len(self.components)} values per row for a {self.name}, got "
                f"shape {partials.values.shape}: are they of another aggregate?"
            )
        if partials.in_order:
            return partials
        order = np.lexsort((partials.keys, partials.windows))
        rows = partials[order]
        differs = (np.diff(rows.windows) != 0) | (np.diff(rows.keys) != 0)
        first = np.flatnonzero(np.r_[True, differs])
        columns = [_HOW[how][1](rows.values[:, i], first) for i, how in enumerate(self.components)]
        return Partials(rows.windows[first], rows.keys[first], np.stack(columns, axis=1))

    def merge(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return f(one, other) row by row, shape (n, components) (D3 eq. (7)), or OverflowError."""
        columns = [_HOW[how][0](one[:, i], other[:, i]) for i, how in enumerate(self.components)]
        return np.stack(columns, axis=1)

    def result(self, values: np.ndarray) -> np.ndarray:
        """Result of the aggregate, shape (n,): the integer itself, or the mean as a float."""
        return values[:, 0] / values[:, 1] if self.name == "mean" else values[:, 0]


_COMPONENTS = {"sum": "add", "count": "add", "min": "min", "max": "max", "mean": "add add"}
AGGREGATES = {name: Aggregate(name, tuple(each.split())) for name, each in _COMPONENTS.items()}
SUM = AGGREGATES["sum"]


def overflow() -> OverflowError:
    """The error of a sum that does not fit into 64 bits, the same in every store."""
    return OverflowError(
        f"a sum leaves the 64 bits ({_LIMITS.min} … {_LIMITS.max}); nothing was merged: "
        "scale the values down, or use smaller windows"
    )


def _add(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    total = one + other
    # a sum has wrapped if its sign differs from the sign of both operands
    if np.any((one ^ total) & (other ^ total) < 0):
        raise overflow()
    return total


def _sums(values: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Sums of the runs of values that begin at the indices `first`."""
    bound = np.abs(values.astype(np.float64)).sum()
    if bound < 2.0**62:
        return np.add.reduceat(values, first)
    exact = np.add.reduceat(values.astype(object), first)
    if exact.max() > _LIMITS.max or exact.min() < _LIMITS.min:
        raise overflow()
    return exact.astype(np.int64)


_HOW: dict[str, tuple[Callable, Callable]] = {
    "add": (_add, _sums),
    "min": (np.minimum, np.minimum.reduceat),
    "max": (np.maximum, np.maximum.reduceat),
}
"""By rule: merge of two rows, and merge of runs of rows from the indices at which they begin."""
