"""Values as texts, and texts made from templates."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from aftlib.notebook.claims import Value

if TYPE_CHECKING:
    import pandas as pd


def render(folder: Path, template: str, **values: Any) -> str:
    """Return the text made from a template in a folder, such as ``page.html.j2``.

    Texts among the values are escaped unless they are marked as HTML: for HTML in ``.html.j2``, and
    control characters in ``.txt.j2``, in which a line with a tag alone leaves no line.
    """
    plain = template.endswith(".txt.j2")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=template.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=plain,
        lstrip_blocks=plain,
        finalize=printable if plain else None,
    )
    environment.filters["shown"] = shown
    return environment.get_template(template).render(values)


def printable(value: Any) -> Any:
    """Return a text with control characters, which names in a file may hold, as escapes."""
    if not isinstance(value, str):
        return value
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)


def percent(share: float, digits: int = 0) -> str:
    """Return a share as a percentage.

    >>> percent(0.868), percent(0.978, 1)
    ('87 %', '97.8 %')
    """
    return f"{100 * share:.{digits}f} %"


def short_percent(share: float, digits: int = 3) -> str:
    """Return a share as a percentage with so many significant digits; a dash for NaN.

    >>> short_percent(0.97379), short_percent(0.0132, 2), short_percent(float("nan"))
    ('97.4 %', '1.3 %', '–')
    """
    return f"{float(f'{100 * share:.{digits}g}'):g} %" if math.isfinite(share) else "–"


def some_of(part: int, number: int, noun: str) -> str:
    """Return how many of some things, in words.

    >>> some_of(3, 4, "set"), some_of(1, 1, "set")
    ('3 of 4 sets', '1 of 1 set')
    """
    return f"{part} of {number} {noun}{'s' * (number != 1)}"


def span_of(values: pd.Series, digits: str = ".2f") -> str:
    """Return the least and the largest value as text; one where both look the same.

    >>> import pandas as pd
    >>> span_of(pd.Series([0.69, 1.0])), span_of(pd.Series([0.92]))
    ('0.69 to 1.00', '0.92')
    """
    low = format(values.min(), digits)
    high = format(values.max(), digits)
    return low if low == high else f"{low} to {high}"


def other_bounds(value: float, bound: float, text: Callable[[float], str] = "{:.2f}".format) -> str:
    """Return with which other bounds a value gives the same verdict, as a sentence.

    >>> other_bounds(1.234, 0.5), other_bounds(0.234, 0.5)
    ('Any bound below 1.23 gives the same verdict.', 'Any bound above 0.24 gives the same verdict.')
    """
    hundredths = round(100 * value, 6)
    if value >= bound:
        return f"Any bound below {text(math.floor(hundredths) / 100)} gives the same verdict."
    return f"Any bound above {text(math.ceil(hundredths) / 100)} gives the same verdict."


def other_interpretation(reverses: bool, meant: str, result: str) -> str:
    """Return what another interpretation of a claim gives, as a sentence.

    >>> other_interpretation(True, "a share is meant", "3 of 7 points")
    'Reversed if a share is meant: 3 of 7 points.'
    """
    return f"{'Reversed' if reverses else 'The same'} if {meant}: {result}."


def shown(value: Value, digits: int = 3) -> str:
    """Return a value as text: a float's first digits, grouped thousands, a dash for None.

    >>> [shown(value) for value in (None, "≤ 1", 12345, 0.049123, 1e-9, 2410.7)]
    ['–', '≤ 1', '12,345', '0.0491', '1e-09', '2,411']
    >>> shown(0.0499958, digits=5), shown(float("inf"))
    ('0.049996', '∞')
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def shown_interval(interval: tuple[float, float] | None) -> str:
    """Return an interval as text, a dash for None.

    >>> shown_interval((0.0412345, 2.0)), shown_interval(None)
    ('[0.0412, 2]', '–')
    """
    return "–" if interval is None else f"[{shown(interval[0])}, {shown(interval[1])}]"
