"""How results say themselves: as short text, as HTML in a notebook, as a figure.

Figures need Plotly, which this module does not know: the module that draws is found by its name,
when one is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 20
"""Rows of a table in a notebook; what is between the first and the last is left out."""
MOST_KEYS = 24
"""Keys of a heat map in a notebook."""
MOST_INTERVALS = 500
_MANY = 8
_DRAWING = "aftlib.reports.style"


class Bounded:
    """A dataclass whose repr stays short, whatever it holds."""

    def __repr__(self) -> str:
        shown = [f.name for f in fields(self) if f.repr]  # type: ignore[arg-type]
        said = (f"{name}={brief(getattr(self, name))}" for name in shown)
        return f"{type(self).__name__}({', '.join(said)})"


def brief(value: Any) -> str:
    """Text of a value in which long arrays and tuples are cut in their middle."""
    if isinstance(value, np.ndarray):
        text = np.array2string(value, separator=", ", threshold=_MANY, edgeitems=2)
        return f"array({' '.join(text.split())})"
    if isinstance(value, tuple):
        many = len(value) > _MANY
        parts = [brief(part) for part in (value[:3] if many else value)]
        parts += ["…", brief(value[-1])] if many else []
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return repr(value)


def names_of(names: Sequence[str], size: int) -> tuple[str, ...]:
    """The names, or "X1" … where there are none."""
    return tuple(names) or tuple(f"X{i + 1}" for i in range(size))


def keyed(columns: Mapping[str, Any], names: Sequence[str]) -> pd.DataFrame:
    """A frame of these columns, a row a key."""
    import pandas as pd  # here: a process that recovers shows nothing

    return pd.DataFrame(columns, pd.Index(names, name="key"))


def html_table(frame: pd.DataFrame, caption: str) -> str:
    """A table of at most `MOST_ROWS` rows below a caption."""
    table = frame.to_html(max_rows=MOST_ROWS, float_format=lambda value: f"{value:.4g}", border=0)
    return f"<div><p>{escape(caption)}</p>{table}</div>"


def html_heat_map(covariance: np.ndarray, names: Sequence[str]) -> str:
    """Correlations as squares, from blue (−1) by white to red (1); a square's title says more."""
    deviation = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(deviation, deviation)
    shown, side = min(len(names), MOST_KEYS), 14
    squares = []
    for i in range(shown):
        for j in range(shown):
            value = float(np.clip(correlation[i, j], -1, 1))
            faint = round(255 * (1 - abs(value)))
            colour = f"255,{faint},{faint}" if value >= 0 else f"{faint},{faint},255"
            title = escape(f"{names[i]}, {names[j]}: {value:.2f}")
            squares.append(
                f'<rect x="{side * j}" y="{side * i}" width="{side}" height="{side}" '
                f'fill="rgb({colour})"><title>{title}</title></rect>'
            )
    size = side * shown
    more = f", the first {shown} shown" if shown < len(names) else ""
    return (
        f"<div><p>N(μ, Σ) over {len(names)} keys; correlations{more}</p>"
        f'<svg width="{size}" height="{size}" role="img" aria-label="correlations">'
        f"{''.join(squares)}</svg></div>"
    )


def html_time_line(times: Sequence[int], heights: Sequence[int], most: int, caption: str) -> str:
    """Steps between the times, as high as what each interval replays, `most` being the full height.

    At most `MOST_INTERVALS` are drawn.
    """
    width, height, end = 640, 90, times[-1] - times[0]
    path = []
    for begin, stop, count in list(zip(times, times[1:], heights, strict=False))[:MOST_INTERVALS]:
        left, right = (width * (time - times[0]) / end for time in (begin, stop))
        top = height - height * count / max(most, 1)
        path.append(f"M{left:.1f} {height}V{top:.1f}H{right:.1f}V{height}")
    return (
        f'<div><p>{escape(caption)}</p><svg width="{width}" height="{height + 2}" role="img" '
        f'aria-label="sensors replayed, by the time of the failure"><path d="{"".join(path)}" '
        f'fill="#0072B233" stroke="#0072B2"/></svg></div>'
    )


def drawn(figure: str, *values: Any) -> Any:
    """The Plotly figure of that name; ImportError that names the extra where Plotly is missing."""
    try:
        drawing = import_module(_DRAWING)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"plot() needs {error.name}, which is not installed: pip install 'aftlib[notebooks]'"
        ) from error
    return getattr(drawing, figure)(*values)
