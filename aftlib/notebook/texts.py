"""Values as texts, and texts made from templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from aftlib.notebook.claims import Value


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


def shown(value: Value, digits: int = 3) -> str:
    """Return a value as text: a float's first digits, grouped thousands, a dash for None.

    >>> [shown(value) for value in (None, "≤ 1", 12345, 0.049123, 1e-9, 2410.7)]
    ['–', '≤ 1', '12,345', '0.0491', '1e-09', '2,411']
    >>> shown(0.0499958, digits=5)
    '0.049996'
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def shown_interval(interval: tuple[float, float] | None) -> str:
    """Return an interval as text, a dash for None.

    >>> shown_interval((0.0412345, 2.0)), shown_interval(None)
    ('[0.0412, 2]', '–')
    """
    return "–" if interval is None else f"[{shown(interval[0])}, {shown(interval[1])}]"
