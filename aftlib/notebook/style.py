"""One look for all figures and tables, sliders, and text that is computed from a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from aftlib.notebook.texts import shown

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

BLUE = "#0072B2"
GREEN = "#009E73"
ORANGE = "#E69F00"
PURPLE = "#CC79A7"
GREY = "#7A7A7A"
RED = "#D55E00"
HEIGHT = 430
_MARKER_SIZE = 8
LIMIT = {"color": "#333", "dash": "dash"}
"""Line of a bound, such as δ or the guaranteed ε."""
BESIDE = {"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"}
"""Place of a legend at the right of a figure."""
_ADDED = ("#56B4E9", "#882255", "#117733", "#999933")
_SYMBOLS = ("star", "cross", "hexagon")


def styled(
    figure: go.Figure,
    title: str,
    x: str,
    y: str,
    height: int = HEIGHT,
    hover: str | bool = "x unified",
) -> go.Figure:
    """Give a figure its title, axis titles and the common look; returns the same figure.

    `hover` is Plotly's ``hovermode``, such as ``"closest"`` for marks that share no x.
    """
    figure.update_layout(
        title={"text": title, "x": 0, "xanchor": "left", "font": {"size": 17}},
        template="plotly_white",
        height=height,
        margin={"l": 70, "r": 20, "t": 70, "b": 60},
        font={"family": "system-ui, sans-serif", "size": 13},
        hovermode=hover,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    figure.update_xaxes(title_text=x, showline=True, linecolor="#999", ticks="outside")
    figure.update_yaxes(title_text=y, showline=True, linecolor="#999", ticks="outside")
    return figure


def with_slider(
    figure: go.Figure, label: str, frames: Mapping[str, Sequence[Mapping[str, Any]]], active: int
) -> go.Figure:
    """Add a slider that exchanges the data of all traces and keeps the selection in the legend.

    `label` names the choice; `frames` has for each position the new attributes of every trace,
    in the traces' order. The figure shows position number `active`. Returns the same figure.
    """
    steps = []
    for name, traces in frames.items():
        keys = traces[0].keys()
        arguments = {key: [trace[key] for trace in traces] for key in keys}
        steps.append({"label": name, "method": "restyle", "args": [arguments]})
    slider = {
        "active": active,
        "currentvalue": {"prefix": f"{label} = ", "font": {"size": 14}},
        "pad": {"t": 50, "r": 30},
        "steps": steps,
    }
    figure.update_layout(sliders=[slider], height=HEIGHT + 90)
    return figure


def line_look(color: str, symbol: str = "circle", dash: str = "solid") -> dict[str, Any]:
    """Return the attributes of a line with markers."""
    marker = {"symbol": symbol, "color": color, "size": _MARKER_SIZE}
    return {"mode": "lines+markers", "line": {"color": color, "dash": dash}, "marker": marker}


def line_figure(
    frame: pd.DataFrame,
    x: str,
    y: str,
    curve: str,
    looks: Mapping[str, Mapping[str, Any]],
    titles: tuple[str, str, str],
    *,
    slider: str | None = None,
    label: str = "",
    start: float | None = None,
    bounds: tuple[str, str] | None = None,
    logarithmic: bool = False,
) -> go.Figure:
    """Draw one line of `y` over `x` for each value of the column `curve`.

    The first curves are the widest, so that curves at the same place all show.

    Parameters
    ----------
    frame
        One row per point.
    x, y, curve
        Its columns.
    looks
        Attributes of the line for each value of `curve`, in the order of the legend. Curves that
        the frame lacks are left out, and values without a look get one of their own.
    titles
        Titles of the figure, the x axis and the y axis.
    slider, label, start
        A further column whose values a slider goes through, the slider's label, and the
        value that it begins near, by default the middle one.
    bounds
        Columns with the low and the high end of each point's interval.
    logarithmic
        Whether the x axis is logarithmic.
    """
    drawn = frame[curve].unique().tolist()
    added = [name for name in drawn if name not in looks]
    looks = {name: look for name, look in looks.items() if name in drawn}
    looks |= dict(zip(added, map(line_look, cycle(_ADDED), cycle(_SYMBOLS)), strict=False))
    ordered = frame.sort_values(x)

    def curves(rows: pd.DataFrame) -> list[dict[str, Any]]:
        each = [rows[rows[curve] == name] for name in looks]
        data: list[dict[str, Any]] = [{"x": r[x].tolist(), "y": r[y].tolist()} for r in each]
        if bounds:
            for one, r in zip(data, each, strict=True):
                up = r[bounds[1]] - r[y]
                down = r[y] - r[bounds[0]]
                error = {"array": up.tolist(), "arrayminus": down.tolist(), "thickness": 1}
                one["error_y"] = error if up.notna().any() else {"array": None}
        return data

    stops = sorted(frame[slider].unique()) if slider else []
    active = len(stops) // 2 if start is None or not slider else nearest(stops, start)
    shown = ordered[ordered[slider] == stops[active]] if slider else ordered
    figure = go.Figure()
    for (name, look), data in zip(looks.items(), curves(shown), strict=True):
        figure.add_scatter(name=name, connectgaps=False, **look, **data)
    # A curve that lies on others leaves their edges free.
    for trace, under in zip(figure.data, reversed(range(len(looks))), strict=True):
        size = trace.marker.size or _MARKER_SIZE
        trace.update(line_width=min(2 + 0.7 * under, 6), marker_size=min(size + under, 13))
    styled(figure, *titles)
    if logarithmic:
        ticks = sorted(frame[x].unique())
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{v:g}" for v in ticks])
    if not slider:
        return figure
    frames = {f"{stop:,.12g}": curves(ordered[ordered[slider] == stop]) for stop in stops}
    return with_slider(figure, label, frames, active)


def nearest(stops: Sequence[float], value: float) -> int:
    """Return the place of the number nearest to `value`."""
    return min(range(len(stops)), key=lambda place: abs(stops[place] - value))


def panel_titles(figure: go.Figure) -> go.Figure:
    """Name the panels of a figure of `plotly.express` by their values alone, without the column.

    Returns the same figure.
    """
    return figure.for_each_annotation(lambda title: title.update(text=title.text.partition("=")[2]))


def threshold(
    figure: go.Figure, y: float, text: str, position: str = "top right", **panel: int
) -> go.Figure:
    """Draw a dashed line across a figure, or its `panel` ``row=…, col=…``, at `y`; returns it."""
    return figure.add_hline(
        y, line=LIMIT, annotation_text=text, annotation_position=position, **panel
    )


def table(frame: pd.DataFrame, formats: Mapping[str, Any] | None = None) -> Styler:
    """Return a frame as a table for readers, as a cell's last value.

    A named index becomes columns, and an unnamed one is not shown. Numbers have three significant
    digits, grouped thousands and a real minus sign; other values are texts, and a missing value is
    a dash. `formats` has other formats by column, as pandas' `Styler.format` takes them.
    """
    named = [name for name in frame.index.names if name is not None]
    if named:
        frame = frame.reset_index(level=named)
    frame = frame.rename_axis(columns=None)
    show: dict[Any, Any] = {column: _show for column in frame}
    style = frame.style.format(show | dict(formats or {}), na_rep="–", escape="html")
    return style.hide(axis="index")


def _show(value: Any) -> str:
    """Return a cell's text: a number as on the scorecard, any other value as it is."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return shown(value).replace("-", "−")


@dataclass(frozen=True)
class Text:
    """Markdown made by a cell's code; as the cell's last value it stands below that cell.

    JupyterLab and reports set it like a cell of Markdown, formulas and inline code included. So a
    sentence with numbers is computed from the run instead of typed.

    Parameters
    ----------
    markdown
        The text; HTML in it is passed through, as in a cell of Markdown.
    kind
        ``"caption"`` or ``"prose"``. A report sets captions smaller, close to their figure.
    """

    markdown: str
    kind: str = "prose"

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        data = {"text/markdown": self.markdown, "text/plain": self.markdown}
        return data, {"aft": {"text": self.kind}}


def caption(markdown: str) -> Text:
    """Return the caption of the figure before it, as a cell's last value.

    >>> caption(f"At ε = {0.7:g} all error rates lie below δ.").markdown
    'At ε = 0.7 all error rates lie below δ.'
    """
    return Text(markdown, "caption")


def prose(markdown: str) -> Text:
    """Return a paragraph of a notebook's text, as a cell's last value."""
    return Text(markdown)
