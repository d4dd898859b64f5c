"""Arrays of values: put in the order of their labels, labelled in results, packed into bytes."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.checks import listed

if TYPE_CHECKING:  # recovery makes no frames, and pandas takes long to load
    import pandas as pd


def _as_mapping(values: Any) -> Any:
    """Return a row of `itertuples` or a table of pyarrow as a dictionary."""
    if hasattr(values, "_asdict"):
        return values._asdict()
    return values.to_pydict() if hasattr(values, "column_names") else values


def labels_of(values: Any, names: Sequence[str] = ()) -> list[str] | None:
    """Return the labels of a mapping, a row, a Series or a frame's columns; None without any.

    pandas' default labels 0, 1, … do not count, because no user gave them, unless they are `names`.
    """
    values = _as_mapping(values)
    if isinstance(values, Mapping):
        return [str(label) for label in values]
    entries: Any = getattr(values, "columns", getattr(values, "index", None))
    if not hasattr(entries, "equals"):  # a list has a method `index`
        return None
    labels = [str(label) for label in entries]
    default = list(entries) == list(range(len(labels)))
    return None if default and set(labels) != set(names) else labels


def values_by_name(argument: str, values: Any, names: Sequence[str]) -> np.ndarray:
    """Return labelled values as an array whose last axis is in the order of `names`.

    ValueError, which names `argument`, unless the labels are exactly the names, each once.
    """
    values = _as_mapping(values)
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
    if isinstance(values, Mapping):
        parts = [as_numbers(f"{argument}[{label!r}]", values[key]) for label, key in
                 zip(labels, values, strict=True)]  # fmt: skip
        if len({part.shape for part in parts}) > 1 or parts[0].ndim > 1:
            raise ValueError(
                f"{argument} must have a number, or a list of one length, per sensor, got shapes "
                f"{listed(sorted({part.shape for part in parts}))}; give NaN for a missing value"
            )
        array = np.stack(parts, axis=-1)
    else:
        array = as_numbers(argument, values)
    return np.asarray(array[..., [place[name] for name in names]])


def as_numbers(argument: str, values: Any, names: Sequence[str] = ()) -> np.ndarray:
    """Return values as floats, NaN for None and pandas.NA; ValueError for other values.

    Lists of labelled parts, and frames whose rows are labelled like the sensors, are refused.
    """
    parts = values if isinstance(values, list | tuple) else []
    rows = getattr(values, "index", None) if hasattr(values, "columns") else None
    if any(labels_of(part) is not None for part in parts) or (
        names and rows is not None and {*map(str, rows)} == set(names)
    ):
        raise ValueError(
            f"{argument} must have a column per sensor, got labelled rows: pass one DataFrame with "
            "the sensors as columns, or an array to go by position"
        )
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            cells = [np.nan if type(cell).__name__ == "NAType" else cell for cell in array.flat]
            if any(isinstance(cell, str | bool) for cell in cells):
                raise TypeError("a text or a truth value")
            array = np.array(cells, dtype=float).reshape(array.shape)
        if array.dtype.kind not in "iuf" and array.size:
            raise TypeError(f"type {array.dtype}")
        if np.ma.isMaskedArray(values):
            array = np.where(np.ma.getmaskarray(values), np.nan, array)
        return array.astype(float)
    except (TypeError, ValueError) as error:
        kinds: Any = getattr(values, "dtypes", None)
        if hasattr(kinds, "items"):  # of a DataFrame
            odd = [str(name) for name, kind in kinds.items() if kind.kind not in "iuf"]
            raise ValueError(
                f"{argument} must be numbers, got other types in {listed(odd)}; drop such columns"
            ) from error
        text = f"{' '.join(repr(values).split()):.80}"
        raise ValueError(f"{argument} must be numbers, got {text} ({error})") from error


def in_one_order(
    mean: ArrayLike | pd.Series, covariance: ArrayLike | pd.DataFrame, names: Sequence[str] | None
) -> tuple[ArrayLike, ArrayLike, Sequence[str] | None]:
    """Return mean, covariance and names in the order of `names`; if None, of the pandas labels.

    pandas' default labels 0, 1, … count as none. A covariance may have labels on one axis only; its
    other axis then has the same. ValueError when the labels of two arguments differ.
    """
    if "pandas" not in sys.modules:  # without it nothing has labels, and it takes long to load
        return mean, covariance, names
    import pandas as pd

    def is_default(index: pd.Index) -> bool:
        return index.equals(pd.RangeIndex(len(index)))

    axes: dict[str, pd.Index] = {}
    if isinstance(mean, pd.Series):
        axes["mean"] = mean.index
    if isinstance(covariance, pd.DataFrame):
        rows, columns = covariance.index, covariance.columns
        axes["covariance"] = columns if is_default(rows) else rows
        axes["covariance's columns"] = rows if is_default(columns) else columns
    labelled = next((axis for axis, index in axes.items() if not is_default(index)), "")
    if not labelled:
        return mean, covariance, names
    order = [str(name) for name in (axes[labelled] if names is None else names)]
    mu, sigma = np.asarray(mean, dtype=float), np.asarray(covariance, dtype=float)
    for axis, index in axes.items():
        place = {str(label): i for i, label in enumerate(index)}
        if differ := sorted({*place} ^ {*order}):
            if is_default(index):
                continue
            raise ValueError(
                f"{axis} must have the same labels as {'names' if names else labelled}, "
                f"got a difference in {differ}; pass .to_numpy() to go by position"
            )
        at = [place[name] for name in order]
        if axis == "mean":
            mu = mu[at]
        else:
            sigma = sigma.take(at, axis=int(axis != "covariance"))
    return mu, sigma, order


def frame_of_keys(columns: Mapping[str, Any], names: Sequence[str]) -> pd.DataFrame:
    """Return columns as a frame with one row per key; without `names` they are X1, X2 and so on."""
    import pandas as pd  # here, because recovery makes no frames and pandas takes long to load

    size = len(next(iter(columns.values())))
    labels = list(names) or [f"X{number + 1}" for number in range(size)]
    return pd.DataFrame(columns, pd.Index(labels, name="key"))


def pack_arrays(**arrays: Any) -> bytes:
    """Return arrays as bytes; the same arrays give the same bytes."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpack_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Return the arrays that `pack_arrays` packed; ValueError or numpy's error for other data."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)
