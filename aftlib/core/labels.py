"""Labels of values: arguments are put in the order of the names, and results are labelled."""

from __future__ import annotations

import decimal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.checks import listed

if TYPE_CHECKING:
    import pandas as pd


_NUMBER = (int, float, np.integer, np.floating, np.bool_, decimal.Decimal, type(None))


def in_one_order(
    mean: ArrayLike | pd.Series, covariance: ArrayLike | pd.DataFrame, names: Sequence[str] | None
) -> tuple[ArrayLike, ArrayLike, Sequence[str] | None]:
    """Return mean, covariance and names in the order of `names`; if None, of the pandas labels."""
    if "pandas" not in sys.modules:  # without it nothing has labels, and it takes long to load
        return mean, covariance, names
    import pandas as pd

    axes: dict[str, pd.Index] = {}
    if isinstance(mean, pd.Series):
        axes["mean"] = mean.index
    if isinstance(covariance, pd.DataFrame):
        axes |= {"covariance": covariance.index, "covariance's columns": covariance.columns}
    labels = {axis: [str(label) for label in index] for axis, index in axes.items()}
    numbered = [axis for axis, index in axes.items() if index.equals(pd.RangeIndex(len(index)))]
    if len(numbered) == len(labels):  # only pandas' default labels 0, 1, …
        return mean, covariance, names
    own = next(axis for axis in labels if axis not in numbered)
    order = [str(name) for name in (labels[own] if names is None else names)]
    for axis in numbered:
        if sorted(labels[axis]) != sorted(order):
            del labels[axis]
    for axis, entries in labels.items():
        if sorted(entries) != sorted(order):
            differ = sorted(set(entries) ^ set(order)) or "some repeat"
            raise ValueError(
                f"{axis} must have the same labels as {'names' if names else own}, "
                f"got a difference in {differ}; pass .to_numpy() to go by position"
            )
        if len(set(entries)) != len(entries):
            repeated = next(label for label in entries if entries.count(label) > 1)
            raise ValueError(f"names must differ, got {repeated!r} more than once")

    at = {axis: pd.Index(entries).get_indexer(pd.Index(order)) for axis, entries in labels.items()}
    sides = [at[axis] for axis in ("covariance", "covariance's columns") if axis in at]
    mu, sigma = np.asarray(mean, dtype=float), np.asarray(covariance, dtype=float)
    mu = mu[at["mean"]] if "mean" in at else mu
    if sides and sigma.shape == (len(order), len(order)):
        sigma = sigma[np.ix_(sides[0], sides[-1])]
    return mu, sigma, order


def _labels_and_parts(values: Any) -> tuple[Any, Any]:
    """Return the labels of values and the value or column of each; None for values without labels.

    The parts are None for a Series or a frame, which become one array.
    """
    if isinstance(values, type):  # its attributes are no values
        return None, None
    if hasattr(values, "_asdict"):  # a row of `itertuples`
        values = values._asdict()
    if isinstance(values, Mapping):
        return values.keys(), values.values()
    if hasattr(type(values), "column_names"):  # a pyarrow.Table, whose `columns` are its values
        return values.column_names, values.columns
    index = getattr(values, "columns", getattr(values, "index", None))
    if index is not None and not callable(index):  # a list has a method of that name
        return index, None
    keys = getattr(values, "keys", None)
    if not callable(keys):
        return None, None
    # by position, because a sqlite3.Row does not distinguish "a" from "A"
    return keys(), values.values() if hasattr(values, "values") else values


def labels_of(values: Any, names: Sequence[str] = ()) -> list[str] | None:
    """Return the labels of a dictionary, a row, a Series or a frame's columns; None without any.

    pandas' default labels 0, 1, … do not count, because no user gave them, unless they are `names`.
    """
    entries, parts = _labels_and_parts(values)
    if entries is None:
        return None
    labels = [str(label) for label in entries]
    default = parts is None and list(entries) == list(range(len(labels)))
    return None if default and set(labels) != set(names) else labels


def values_by_name(argument: str, values: Any, names: Sequence[str]) -> np.ndarray:
    """Return labelled values as an array whose last axis is in the order of `names`.

    ValueError, which names `argument`, unless the labels are exactly the names, each once.
    """
    labels = labels_of(values, names) or []
    place = {label: i for i, label in enumerate(labels)}
    repeated = sorted({label for i, label in enumerate(labels) if place[label] != i})
    missing, unknown = sorted(set(names) - set(labels)), sorted(set(labels) - set(names))
    for wrong, problem in ((repeated, "repeated"), (missing, "missing"), (unknown, "unknown")):
        if wrong:
            raise ValueError(
                f"{argument} must have each of the {len(names)} sensors once as label, got "
                f"{problem} {listed(wrong)}; give NaN for a missing value, drop unknown ones, or "
                "pass an array to go by position"
            )
    _, parts = _labels_and_parts(values)
    if parts is None:
        array = _floats(argument, values)
    else:
        array = _columns(argument, dict(zip(labels, parts, strict=True)))
    return np.asarray(array[..., [place[name] for name in names]])


def _columns(argument: str, values: Mapping[str, Any]) -> np.ndarray:
    """The parts of a dictionary as columns of floats; ValueError unless their rows agree."""
    parts = [_floats(f"{argument}[{name!r}]", part) for name, part in values.items()]
    indexes: list[Any] = [getattr(part, "index", None) for part in values.values()]
    rows = [index for index in indexes if hasattr(index, "equals")]  # of pandas
    if len({part.shape for part in parts}) > 1 or parts[0].ndim > 1:
        shapes = sorted({part.shape for part in parts})
        raise ValueError(
            f"{argument} must have a number, or a list of one length, per sensor, got shapes "
            f"{', '.join(map(str, shapes))}; give NaN for a missing value"
        )
    if any(not index.equals(rows[0]) for index in rows):
        raise ValueError(
            f"{argument} must have Series of the same rows, got {listed(rows[0])} and others: make "
            "one DataFrame of them, which puts rows of the same label together"
        )
    return np.stack(parts, axis=-1)


def _floats(argument: str, values: Any) -> np.ndarray:
    """Values as floats, NaN where masked, None or pandas.NA; ValueError for anything else."""
    try:
        if isinstance(values, list | tuple):
            values = [_fill_masked(part) for part in values]
        known = hasattr(type(values), "__array__") or not hasattr(values, "to_numpy")
        array = np.asarray(_fill_masked(values) if known else values.to_numpy())
        if array.dtype.kind == "O":
            flat = [np.nan if type(cell).__name__ == "NAType" else cell for cell in array.flat]
            odd = [cell for cell in flat if not _is_number(cell)]
            if odd:
                raise TypeError(f"{type(odd[0]).__name__} {odd[0]!r:.80}")
            array = np.array(flat, dtype=float).reshape(array.shape)
        if array.dtype.kind not in "biuf" and array.size:
            raise TypeError(f"{array.dtype}")
        return array.astype(float)
    except (TypeError, ValueError, OverflowError) as error:
        if hasattr(getattr(values, "dtypes", None), "items"):  # of a DataFrame
            odd = [str(name) for name, kind in values.dtypes.items() if kind.kind not in "biuf"]
            raise ValueError(
                f"{argument} must be numbers, got other types in {listed(odd)}; drop such columns"
            ) from None
        text = f"{' '.join(repr(values).split()):.80}"
        raise ValueError(f"{argument} must be numbers, got {text} ({error})") from error


def as_numbers(argument: str, values: Any, names: Sequence[str] = ()) -> np.ndarray:
    """Return values without labels as floats, NaN where a masked array is masked.

    ValueError for values that are no numbers, a list of labelled parts, or a frame whose rows are
    labelled like the sensors.
    """
    parts = values if isinstance(values, list | tuple) else []
    labelled = [type(part).__name__ for part in parts if labels_of(part) is not None]
    index: Any = getattr(values, "index", None)
    if hasattr(index, "equals") and hasattr(values, "columns") and {*map(str, index)} == set(names):
        labelled = ["DataFrame rows"]
    if labelled:
        raise ValueError(
            f"{argument} must have a column per sensor, got labelled {labelled[0]}: pass one "
            "DataFrame with the sensors as columns, or an array to go by position"
        )
    return _floats(argument, values)


def _fill_masked(values: Any) -> Any:
    """A masked array of numbers with NaN where it is masked; other values as they are."""
    if not np.ma.isMaskedArray(values) or values.dtype.kind not in "biufO":
        return values
    kind = object if values.dtype.kind == "O" else float
    return np.ma.filled(values.astype(kind), np.nan)


def _is_number(cell: Any) -> bool:
    # to numpy, a duration is a whole number
    return isinstance(cell, _NUMBER) and not isinstance(cell, np.timedelta64)


def frame_of_keys(columns: Mapping[str, Any], names: Sequence[str]) -> pd.DataFrame:
    """Return columns as a frame with one row per key; without `names` they are X1, X2 and so on."""
    import pandas as pd  # here, because recovery makes no frames and pandas takes long to load

    size = len(next(iter(columns.values())))
    labels = list(names) or [f"X{number + 1}" for number in range(size)]
    return pd.DataFrame(columns, pd.Index(labels, name="key"))


class ArrayRecord:
    """Base of dataclasses with arrays: objects with equal fields are equal; the repr is short.

    Declare its subclasses as dataclasses with ``eq=False, repr=False``.
    """

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return all(_equal(getattr(self, name), getattr(other, name)) for name in names)

    def __hash__(self) -> int:
        values = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
        return hash(tuple(value for value in values if not isinstance(value, np.ndarray)))

    def __repr__(self) -> str:
        names = [field.name for field in fields(self) if field.repr]  # type: ignore[arg-type]
        values = (f"{name}={_short_repr(getattr(self, name))}" for name in names)
        return f"{type(self).__name__}({', '.join(values)})"


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return bool(one == other)


def _short_repr(value: Any) -> str:
    if isinstance(value, np.ndarray):
        text = np.array2string(value, separator=", ", threshold=8, edgeitems=2)
        return f"array({' '.join(text.split())})"
    if isinstance(value, tuple) and len(value) > 8:
        return f"({', '.join(map(_short_repr, value[:3]))}, …, {_short_repr(value[-1])})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_short_repr, value))}{',' * (len(value) == 1)})"
    return repr(value)
