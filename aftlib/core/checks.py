"""Checks of a user's arguments, each with an error that names the argument and the fix."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "above": operator.gt, "below": operator.lt, "at least": operator.ge, "at most": operator.le
}  # fmt: skip


def require_number(
    name: str,
    value: float,
    *,
    above: float | None = None,
    below: float | None = None,
    least: float | None = None,
    most: float | None = None,
    whole: bool = False,
    fix: str = "",
) -> None:
    """Raise ValueError, with `name` and the bounds, unless `value` is a finite number within them.

    `least` and `most` are permitted values, `above` and `below` are not. `fix` ends the message.

    Examples
    --------
    >>> require_number("delta", 2, above=0, below=1)
    Traceback (most recent call last):
    ValueError: delta must be above 0 and below 1, got 2
    """
    number, kind = math.nan, numbers.Integral if whole else numbers.Real
    # to numpy, which takes long to load, a duration is a whole number
    if isinstance(value, kind) and type(value).__name__ not in ("bool", "timedelta64"):
        with suppress(OverflowError):  # 10**400
            number = float(value)
    checked = value if whole else number  # a Fraction above 0 may be the float 0
    bounds = {"above": above, "below": below, "at least": least, "at most": most}
    given = {word: bound for word, bound in bounds.items() if bound is not None}
    if not math.isfinite(number) or not all(
        _COMPARE[word](checked, bound) for word, bound in given.items()
    ):
        wanted = " and ".join(f"{word} {bound:g}" for word, bound in given.items())
        noun = "a whole number " if whole else "" if wanted else "a finite number"
        raise ValueError(
            f"{name} must be {noun}{wanted}".rstrip()
            + f", got {value!r:.100}"
            + f"; {fix}" * bool(fix)
        )


_CONSTRUCTORS = {
    "GaussianModel": "GaussianModel.fit(frame)",
    "Generator": "numpy.random.default_rng(1)",
    "RecoveryTime": "RecoveryTime(fixed_ms, per_tuple_ms)",
    "Requirement": "Requirement(epsilon, delta)",
}


def require_instance(name: str, value: object, kind: type) -> None:
    """Raise ValueError unless `value` is a `kind`; the message has a call that makes a `kind`.

    Examples
    --------
    >>> import numpy as np
    >>> require_instance("rng", 1, np.random.Generator)
    Traceback (most recent call last):
    ValueError: rng must be a Generator, got int 1: give numpy.random.default_rng(1)
    """
    if not isinstance(value, kind):
        got = f"{type(value).__name__} {' '.join(repr(value).split()):.60}"
        call = _CONSTRUCTORS[kind.__name__]
        raise ValueError(f"{name} must be a {kind.__name__}, got {got}: give {call}")


def require_numbers(name: str, values: Sequence[float], **bounds: float | bool | None) -> None:
    """Raise ValueError unless `values` is a non-empty list of numbers within `bounds`."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ValueError(f"{name} must be a list of numbers, got {values!r}: put it in [ ]")
    if not len(values):
        raise ValueError(f"{name} must hold at least one value, got none")
    for value in values:
        require_number(f"each of {name}", value, **bounds)  # type: ignore[arg-type]


def items_in_order(name: str, values: Any, example: str) -> list[Any]:
    """Return the items of a list, a tuple, a Series, an Index or an array of one dimension.

    ValueError, with `name` and `example`, for anything else, such as a set, which has no order.
    """
    text = isinstance(values, str | bytes | bytearray)
    array = hasattr(type(values), "__array__") and len(getattr(values, "shape", ())) == 1
    if text or not (array or isinstance(values, Sequence)):
        raise ValueError(f"{name} must be a list such as {example}, got {values!r:.80}")
    return list(values)


def names_in_order(values: Any) -> list[str]:
    """Return names as texts; ValueError unless they are a list of texts or whole numbers."""
    names = items_in_order("names", values, "['a', 'b']")
    odd = [name for name in names if not isinstance(name, str | numbers.Integral)]
    if odd:
        raise ValueError(f"names must be texts or whole numbers, got {listed(odd)}: give texts")
    return [str(name) for name in names]


def require_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise ValueError, with `name` and the choices, unless `value` is one of them."""
    if value not in (known := tuple(choices)):
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def listed(names: Iterable[object], chosen: Iterable[object] | None = None) -> str:
    """Return the first eight chosen names, quoted for a message, and how many more are chosen.

    `chosen` has a flag per name; names without a true flag are left out.
    """
    quoted = [f"{name!r:.80}" for name in (names if chosen is None else compress(names, chosen))]
    more = f" and {len(quoted) - 8} more" if len(quoted) > 8 else ""
    return ", ".join(quoted[:8]) + more
