"""Texts of values, times and verdicts, and the templates of all pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2

from aftlib.workbench.claims import VERDICTS, Value

_PACKAGES = ("workbench", "reports")
TEMPLATES = [Path(__file__).parents[1] / package / "templates" for package in _PACKAGES]
SYMBOLS = {"holds": "✔", "holds if": "✔", "does not hold": "✘", "open": "≈", "not run": "○"}


def render(template: str, **values: Any) -> str:
    """Return a page made from `template`; texts are escaped unless marked as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=template.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
    )
    filters = {"shown": shown, "shown_interval": shown_interval, "duration": duration}
    environment.filters |= filters | {"count_text": count_text}
    return environment.get_template(template).render(values)


def duration(seconds: float) -> str:
    """Return a duration in words.

    >>> [duration(seconds) for seconds in (7.6, 65, 3725)]
    ['8 s', '1 min 05 s', '1 h 02 min']
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def shown(value: Value) -> str:
    """Return a value as text: three digits of a float, grouped thousands, a dash for None.

    >>> [shown(value) for value in (None, "≤ 1", 12345, 0.049123, 1e-9, 2410.7)]
    ['–', '≤ 1', '12,345', '0.0491', '1e-09', '2,411']
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def shown_interval(interval: tuple[float, float] | None) -> str:
    """Return an interval as text, a dash for None.

    >>> shown_interval((0.0412345, 2.0)), shown_interval(None)
    ('[0.0412, 2]', '–')
    """
    return "–" if interval is None else f"[{shown(interval[0])}, {shown(interval[1])}]"


def tally(verdicts: Iterable[str]) -> dict[str, int]:
    """Return how many claims have each verdict, zeros included."""
    counts = Counter(verdicts)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def count_text(verdict: str, count: int) -> str:
    """Return a count of verdicts such as ``✔ 5 hold``."""
    plural = {"holds": "hold", "holds if": "hold if …", "does not hold": "do not hold"}
    word = plural.get(verdict, verdict) if count > 1 else verdict
    return f"{SYMBOLS[verdict]} {count} {word}"
