"""Values that a user labels by sensor, put in the order of the sensors' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aftlib.core.checks import listed


def labels_of(values: Any, names: Sequence[str] = ()) -> list[str] | None:
    """Return the labels of a mapping, a row, a Series or a frame's columns; None without any.

    pandas' default labels 0, 1, … do not count, because no user gave them, unless they are `names`.
    """
    if isinstance(values, Mapping) or hasattr(values, "_fields"):  # or a row of `itertuples`
        return [str(label) for label in getattr(values, "_fields", values)]
    entries: Any = getattr(values, "columns", getattr(values, "index", None))
    if not hasattr(entries, "equals"):  # a list has a method `index`
        return None
    labels = [str(label) for label in entries]
    default = labels and list(entries) == list(range(len(labels)))
    return None if default and set(labels) != set(names) else labels


def values_by_name(argument: str, values: Any, names: Sequence[str]) -> np.ndarray:
    """Return labelled values as an array whose last axis is in the order of `names`.

    ValueError, which names `argument`, unless the labels are exactly the names, each once.
    """
    labels = labels_of(values, names) or []
    if isinstance(values, Mapping):
        array = as_numbers(argument, [*values.values()]).T
    else:
        array = as_numbers(argument, values)
    return np.asarray(array[..., places_of(argument, labels, names)])


def places_of(argument: str, labels: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the place of each name among the labels; ValueError as `values_by_name`."""
    place = {label: i for i, label in enumerate(labels)}
    repeated = {label for i, label in enumerate(labels) if place[label] != i}
    problems = {
        "repeated": repeated,
        "missing": {*names} - {*labels},
        "unknown": {*labels} - {*names},
    }
    for problem, wrong in problems.items():
        if wrong:
            raise ValueError(
                f"{argument} must have each of the {len(names)} sensors once as label, got "
                f"{problem} {listed(sorted(wrong))}; give missing ones a value (NaN if their "
                "window did not come), drop unknown ones, or pass an array to go by position"
            )
    return [place[name] for name in names]


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
        text = f"{' '.join(repr(values).split()):.80}"
        if hasattr(values, "select_dtypes"):
            text = f"other types in {listed(values.select_dtypes(exclude='number'))}"
        raise ValueError(f"{argument} must be numbers, got {text} ({error})") from error


def in_one_order(
    mean: Any, covariance: Any, names: Sequence[str] | None
) -> tuple[Any, Any, Sequence[str] | None]:
    """Return mean, covariance and names in the order of `names`; if None, of the pandas labels.

    A covariance may have labels on one axis only; its other axis then has the same. ValueError
    when the labels of two arguments differ.
    """
    rows = getattr(covariance, "T", None)
    given = [labels for side in (mean, covariance, rows) if (labels := labels_of(side))]
    if not given:
        return mean, covariance, names
    order = given[0] if names is None else [str(name) for name in names]
    if labels_of(mean, order):
        mean = values_by_name("mean", mean, order)
    if columns := labels_of(covariance, order) or labels_of(rows, order):
        across = places_of("covariance", columns, order)
        down = places_of("rows of covariance", labels_of(rows, order) or columns, order)
        covariance = np.asarray(covariance, dtype=float)[np.ix_(down, across)]
    return mean, covariance, order
