"""Checks of a user's arguments, each with an error that names the argument and the fix."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any


def require_number(
    name: str,
    value: float,
    *,
    above: float = -math.inf,
    below: float = math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    whole: bool = False,
    fix: str = "",
) -> None:
    """Raise ValueError, with `name` and the bounds, unless `value` is a finite number within them.

    `least` and `most` are permitted values, `above` and `below` are not. `fix` ends the message.
    Durations have no fixed unit, and NumPy cannot compute with a Fraction or a Decimal; both are
    refused.

    Examples
    --------
    >>> require_number("delta", 2, above=0, below=1)
    Traceback (most recent call last):
    ValueError: delta must be above 0 and below 1, got 2
    """
    require_plain(name, value, "int" if whole else "float", fix)
    number = math.nan
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, kind) and not isinstance(value, bool):
        with suppress(OverflowError):  # 10**400
            number = float(value)
    within = math.isfinite(number) and above < value < below and least <= value <= most
    if not within:
        bounds = {"above": above, "below": below, "at least": least, "at most": most}
        given = [f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound)]
        noun = "a whole number" if whole else "" if given else "a finite number"
        wanted = f"{noun} {' and '.join(given)}".strip()
        raise ValueError(f"{name} must be {wanted}, got {value!r:.100}" + f"; {fix}" * bool(fix))


def require_plain(name: str, value: object, wanted: str, own_fix: str = "") -> None:
    """Raise ValueError if `value` is a duration, a Fraction or a Decimal, not a `wanted`.

    A caller's own fix says better than this function what to give instead of a duration.
    """
    kind = type(value).__name__  # NumPy and pandas, which take long to load, need not be there
    if kind in ("Fraction", "Decimal"):
        fix = f"give {wanted}({name})"
    elif kind in ("timedelta64", "Timedelta", "timedelta"):
        unit = f"give a number in its unit, such as {name} / pd.Timedelta('1ms') for milliseconds"
        fix = own_fix or unit
    else:
        return
    raise ValueError(f"{name} must be of type {wanted}, got {value!r:.100}; {fix}")


def require_instance(name: str, value: object, kind: type, call: str) -> None:
    """Raise ValueError unless `value` is a `kind`, which `call` makes.

    Examples
    --------
    >>> import numpy as np
    >>> require_instance("rng", 1, np.random.Generator, "numpy.random.default_rng(1)")
    Traceback (most recent call last):
    ValueError: rng must be a Generator, got int 1: give numpy.random.default_rng(1)
    """
    if not isinstance(value, kind):
        got = f"{type(value).__name__} {' '.join(repr(value).split()):.60}"
        raise ValueError(f"{name} must be a {kind.__name__}, got {got}: give {call}")


def require_numbers(name: str, values: Sequence[float], **bounds: Any) -> None:
    """Raise ValueError unless `values` is a non-empty list of numbers within `bounds`."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ValueError(f"{name} must be a list of numbers, got {values!r}: put it in [ ]")
    if not len(values):
        raise ValueError(f"{name} must hold at least one value, got none")
    for value in values:
        require_number(f"each of {name}", value, **bounds)


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


def explain_missing(what: str, package: str, extra: str) -> str:
    """Return the message of an import that fails: `what` needs a `package` of an `extra`."""
    return (
        f"{what} needs {package}, which is not installed: install aftlib with the extra {extra}, "
        f"in a checkout by: pip install '.[{extra}]'"
    )


def listed(names: Iterable[object], chosen: Iterable[object] | None = None) -> str:
    """Return the first eight chosen names, quoted for a message, and how many more are chosen.

    `chosen` has a flag per name; names without a true flag are left out.
    """
    quoted = [f"{name!r:.80}" for name in (names if chosen is None else compress(names, chosen))]
    more = f" and {len(quoted) - 8} more" if len(quoted) > 8 else ""
    return ", ".join(quoted[:8]) + more
