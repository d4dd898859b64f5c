"""Checks of what a user gives, each with an error that names it, and the way out."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence


def require_number(
    name: str,
    value: float,
    *,
    above: float | None = None,
    below: float | None = None,
    least: float | None = None,
    most: float | None = None,
    whole: bool = False,
) -> None:
    """Refuse what is no finite number within the bounds.

    Parameters
    ----------
    name : str
        What the user calls the value.
    value : float
    above, below : float, optional
        Bounds that the value must not reach.
    least, most : float, optional
        Bounds that it may reach.
    whole : bool
        Whether it must be a whole number.

    Raises
    ------
    ValueError
        With name, value and what is wanted.

    Examples
    --------
    >>> require_number("delta", 2, above=0, below=1)
    Traceback (most recent call last):
    ValueError: delta must be above 0 and below 1, got 2
    """
    bounds = (("above", above), ("below", below), ("at least", least), ("at most", most))
    wanted = " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
    number = (
        isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    )
    if (
        not number
        or (whole and not isinstance(value, numbers.Integral))
        or (above is not None and not value > above)
        or (below is not None and not value < below)
        or (least is not None and not value >= least)
        or (most is not None and not value <= most)
    ):
        kind = "a whole number " if whole else "" if wanted else "a finite number"
        raise ValueError(f"{name} must be {kind}{wanted}".rstrip() + f", got {value!r}")


def require_numbers(name: str, values: Sequence[float], **bounds: float | bool | None) -> None:
    """Refuse what is no list, an empty one, or one with a value that `require_number` refuses.

    Raises
    ------
    ValueError
        With name, the value and what is wanted.
    """
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ValueError(f"{name} must be a list, got {values!r}")
    if not len(values):
        raise ValueError(f"{name} must hold at least one value, got none")
    for value in values:
        require_number(f"each of {name}", value, **bounds)  # type: ignore[arg-type]


def with_value(grid: Iterable[float], *values: float) -> list[float]:
    """Return the grid in ascending order with the values in it, each once.

    Examples
    --------
    >>> with_value([0.1, 0.05, 0.1], 0.07)
    [0.05, 0.07, 0.1]
    """
    return sorted({*grid, *values})
