"""Figures of D5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.workbench.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    explorable,
    line_figure,
    line_look,
    named,
    styled,
    with_slider,
)

LIMIT = {"color": "#333", "dash": "dash"}
_NAMES = {
    "article": "article's ⌈total − last/2⌉",
    "sound": "sound total − (last − 1)/2",
    "guaranteed": "guaranteed ε",
}
LOOK = {
    _NAMES["article"]: line_look(RED, "square"),
    _NAMES["sound"]: line_look(BLUE),
    _NAMES["guaranteed"]: {"mode": "lines", "line": LIMIT},
}
_AXES = {
    "epsilon": "guaranteed relative error ε (logarithmic)",
    "window": "window N (events, logarithmic)",
    "share": "share of ones P(1) (logarithmic)",
    "burst": "mean length of a run of ones (events; 0: independent events)",
}
_ESTIMATES = ["article", "sound"]
_SYMBOLS = {"window": "N =", "share": "P(1) =", "burst": "bursts of"}
_RATES = {
    "count_nonzero": ("np.count_nonzero", GREY),
    "ring": ("exact ring of bits", GREEN),
    "update": ("update", BLUE),
    "estimates": ("one answer per event", ORANGE),
}
HEADINGS = {
    "t": "time",
    "query": "article's estimate",
    "exact": "exact count",
    "estimate": "sound estimate",
    "error": "relative error",
    "same": "as in figure 3",
    "article": "article's estimate",
    "sound": "sound estimate",
    "article_error": "article's error",
    "worst": "article's largest error",
    "worst_ones": "ones at the largest error",
    "sound_worst": "sound estimate's largest error",
    "more_worst": "article's largest error, if up to k + 1 buckets have count 1",
    "more_buckets": "buckets, if up to k + 1 have count 1",
    "at": "events",
    "window": "window N",
    "chunk": "events per call",
    "count_nonzero": "counting by NumPy, events/s",
    "ring": "ring of bits, events/s",
    "update": "update, events/s",
    "estimates": "one answer per event, events/s",
    "count_s": "counting, s",
    "histogram_s": "histograms, s",
    "ratio": "histograms / counting",
}
"""Column headings of the notebook's tables."""


def buckets(table: pd.DataFrame, window: int, start: int) -> go.Figure:
    """Buckets of `experiments.figure_3` around the events, with a slider for the time (fig. 4)."""
    events = table["event"].tolist()
    frames = {str(row.t): _step(row, events, window) for row in table.itertuples()}
    looks: list[dict[str, Any]] = [
        {"mode": "lines", "name": "window", "line": {"color": "#333", "dash": "dot", "width": 2}},
        {"mode": "lines", "name": "bucket", "line": {"color": BLUE, "width": 2}, "fill": "toself",
         "fillcolor": "rgba(0, 114, 178, 0.15)"},
        {"mode": "markers+text", "name": "event", "textfont": {"color": "white", "size": 15},
         "marker": {"symbol": "square", "size": 26, "color": GREY}},
        {"mode": "text", "name": "timestamp, count", "textfont": {"color": BLUE, "size": 14},
         "showlegend": False},
        {"mode": "text", "name": "answers", "textfont": {"size": 15}, "showlegend": False},
    ]  # fmt: skip
    figure = go.Figure()
    for look, data in zip(looks, frames[str(start)], strict=True):
        figure.add_scatter(hoverinfo="skip", **look, **data)
    named(styled(figure, "Buckets step by step (fig. 4)", "time t", ""), y="height")
    figure.update_xaxes(range=[0.2, len(events) + 0.8], dtick=1)
    figure.update_yaxes(range=[-1.9, 1.9], visible=False)
    figure = with_slider(figure, "t", frames, start - 1)
    return figure.update_layout(hovermode=False)


def _step(row: Any, events: Sequence[int], window: int) -> list[dict]:
    """Data of the five traces at one time."""
    ones = [t for t, event in enumerate(events[: row.t], 1) if event]
    inside = [[t for t in ones if t <= at][-count:] for at, count in row.buckets]
    spans = [(each[0], each[-1], len(each)) for each in inside]
    oldest = max(0.5, row.t - window + 0.5)
    names: list[tuple[float, float, str]] = [(at, 0.7, str(at)) for _, at, _ in spans]
    names += [((first + at) / 2, -0.7, str(count)) for first, at, count in spans]
    answers = f"total {row.total} · query {row.query} · sound {row.estimate:g} · exact {row.exact}"
    return [
        _boxes([(oldest - 0.08, row.t + 0.58)], 0.95) | {"text": []},
        _boxes([(first - 0.42, at + 0.42) for first, at, _ in spans], 0.5) | {"text": []},
        {"x": [*range(1, row.t + 1)], "y": [0] * row.t, "text": [*map(str, events[: row.t])]},
        {axis: [name[i] for name in names] for i, axis in enumerate(("x", "y", "text"))},
        {"x": [(len(events) + 1) / 2], "y": [-1.5], "text": [answers]},
    ]


def _boxes(spans: Sequence[tuple[float, float]], height: float) -> dict:
    """Outlines of rectangles around y = 0, with gaps between them."""
    x = [at for left, right in spans for at in (left, right, right, left, left, None)]
    return {"x": x, "y": [-height, -height, height, height, -height, None] * len(spans)}


def explore(window: int, epsilon: float, share: float, seed: int) -> Any:
    """Buckets after 2N events, of which `share` are ones; JupyterLab adds sliders for N, ε, P(1).

    A bucket is drawn at the time of its newest event, and its height is its size.
    """

    def draw(window: int, epsilon: float, share: float) -> go.Figure:
        events = BitStream(share, None, seed).draw(2 * window)
        histogram = ExponentialHistogram(window, epsilon)
        histogram.update(events)
        held, exact = histogram.to_frame(), int(events[-window:].sum())
        figure = go.Figure(
            go.Scatter(
                x=held["newest"], y=held["size"], mode="markers", marker={"color": BLUE, "size": 7}
            )
        )
        title = f"{exact:,} ones in {len(held)} buckets, estimated as {histogram.estimate():,g}"
        styled(figure, title, f"time of the newest event, N = {window:,}", "ones in the bucket")
        return figure.update_yaxes(type="log", dtick=1).update_layout(hovermode="closest")

    return explorable(
        draw,
        window=("N", [100, 1_000, 10_000, 100_000, 1_000_000], window),
        epsilon=("ε", [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5], epsilon),
        share=("P(1)", [0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99], share),
    )


def _with_guarantee(
    table: pd.DataFrame, x: str, slider: str, start: float, titles: tuple[str, str, str]
) -> go.Figure:
    """Errors of both estimates and the guaranteed error against `x`, with a slider for `slider`."""
    rows = table.rename(columns=_NAMES).melt([slider, x], [*LOOK], "estimate", "error")
    label = {"epsilon": "ε", "share": "P(1)"}[slider]
    return line_figure(
        rows, x, "error", "estimate", LOOK, titles, slider=slider, label=label, start=start
    )


def few_ones(table: pd.DataFrame, start: float) -> go.Figure:
    """Relative error by the number of ones in the window, with a slider for ε."""
    errors = {name: table[f"{name}_error"] for name in _ESTIMATES}
    titles = "Few ones break the article's guarantee", "ones in the window", "relative error"
    table = table.assign(**errors, guaranteed=table["epsilon"])
    figure = _with_guarantee(table, "ones", "epsilon", start, titles).update_traces(mode="lines")
    figure.update_xaxes(type="log", dtick=1).update_yaxes(rangemode="tozero", tickformat=".2~%")
    return figure


def errors(swept: pd.DataFrame, start: float) -> go.Figure:
    """Largest relative error of `experiments.sweep` against ε, with a slider for P(1).

    It is the largest over full windows of all sizes and bursts.
    """
    worst = swept.groupby(["share", "epsilon"], as_index=False)[_ESTIMATES].max()
    # a logarithmic axis has no place for 0
    worst = worst.where(worst > 0).assign(guaranteed=worst["epsilon"])
    titles = "Largest relative error measured", _AXES["epsilon"], "relative error"
    figure = _with_guarantee(worst, "epsilon", "share", start, titles)
    return _logarithmic(figure).update_yaxes(tickformat=".2~%")


def error_ratios(
    swept: pd.DataFrame, x: str, fixed: Mapping[str, float], start: float
) -> go.Figure:
    """Largest error as a multiple of ε along an axis of the sweep, with a slider for ε.

    `fixed` has a value for each of the other two axes; the nearest value in the sweep is taken.
    """
    title = f"Largest error by {_AXES[x].partition(' (')[0]}"
    for axis, value in fixed.items():
        swept = swept[(swept[axis] - value).abs() == (swept[axis] - value).abs().min()]
        nearest = swept[axis].iloc[0]
        swept = swept[swept[axis] == nearest]
        independent = axis == "burst" and not nearest
        title += ", independent events" if independent else f", {_SYMBOLS[axis]} {nearest:g}"
    worst = swept.groupby(["epsilon", x], as_index=False)[_ESTIMATES].max()
    worst[_ESTIMATES] = worst[_ESTIMATES].div(worst["epsilon"], axis=0)
    titles = title, _AXES[x], "largest relative error / ε"
    figure = _with_guarantee(worst.assign(guaranteed=1.0), x, "epsilon", start, titles)
    figure.update_xaxes(**({"type": "category"} if x == "burst" else {"type": "log", "dtick": 1}))
    return figure.update_yaxes(rangemode="tozero")


def _lines(figure: go.Figure, x: pd.Series, y: Any, name: str, color: str, **look: Any) -> None:
    """Add a line with its points marked."""
    look = {"mode": "lines+markers", "line": {"color": color}} | look
    figure.add_scatter(x=x, y=y, name=name, **look)


def _logarithmic(figure: go.Figure) -> go.Figure:
    """Give both axes ticks at the powers of ten."""
    return figure.update_xaxes(type="log", dtick=1).update_yaxes(type="log", dtick=1)


def along(table: pd.DataFrame, columns: Mapping[str, str], epsilon: float, title: str) -> go.Figure:
    """Relative errors along a stream, and the guaranteed error; `columns`: column by estimate."""
    figure = go.Figure()
    for name, column in columns.items():
        line = LOOK[_NAMES[name]]["line"] | {"width": 1}
        figure.add_scatter(x=table["at"], y=table[column], name=_NAMES[name], line=line)
    figure.add_hline(epsilon, line=LIMIT, annotation_text=f"guaranteed ε = {epsilon:g}")
    styled(figure, title, "events so far", "relative error")
    return figure.update_yaxes(rangemode="tozero", tickformat=".2~%")


def variances(table: pd.DataFrame) -> go.Figure:
    """Largest error and most buckets of the variance histogram against ε, one line per stream."""
    figure = make_subplots(cols=2, horizontal_spacing=0.12)
    for (name, each), color in zip(table.groupby("stream"), (BLUE, GREEN, ORANGE), strict=True):
        for column, y in enumerate(("error", "buckets"), 1):
            where = {"legendgroup": name, "showlegend": column == 1, "row": 1, "col": column}
            _lines(figure, each["epsilon"], each[y], str(name), color, **where)
    ends = [table["epsilon"].min(), table["epsilon"].max()]
    figure.add_scatter(x=ends, y=ends, mode="lines", name="guaranteed ε", line=LIMIT, row=1, col=1)
    styled(figure, "Variance: error and memory", _AXES["epsilon"], "relative error")
    figure.update_yaxes(title_text="buckets", col=2)
    return _logarithmic(figure)


def demo(table: pd.DataFrame, epsilon: float, points: int = 1500) -> go.Figure:
    """Answers of the streaming operator, the exact counts, and ±ε around them."""
    first = table[table["key"] == table["key"].min()]
    shown = first.iloc[np.unique(np.linspace(0, len(first) - 1, points).astype(int))]
    figure = go.Figure()
    for sign, fill in ((1 + epsilon, None), (1 - epsilon, "tonexty")):
        figure.add_scatter(
            x=shown["at"], y=shown["exact"] * sign, mode="lines", line={"width": 0}, fill=fill,
            fillcolor="rgba(122, 122, 122, 0.2)", name="exact ± ε", showlegend=fill is not None,
            hoverinfo="skip",
        )  # fmt: skip
    for column, name, color in (("exact", "exact", GREY), ("estimate", "estimate", BLUE)):
        _lines(figure, shown["at"], shown[column], name, color, mode="lines")
    return styled(figure, "The operator's answers in a streaming query", "event", "ones in window")


def sizes(table: pd.DataFrame) -> go.Figure:
    """Bytes of the state against N, one line per ε, and of the exact ring of bits."""
    figure = go.Figure()
    colors = (RED, ORANGE, PURPLE, GREEN, BLUE, GREY)
    for i, (epsilon, each) in enumerate(table.groupby("epsilon")):
        color = colors[i % len(colors)]
        _lines(figure, each["window"], each["bytes"], f"ε = {epsilon:g}", color)
    ring = table.groupby("window")["ring_bytes"].first()
    figure.add_scatter(x=ring.index, y=ring, mode="lines", name="exact ring of bits", line=LIMIT)
    styled(figure, "Memory of a window full of ones", _AXES["window"], "bytes (logarithmic)")
    return _logarithmic(figure)


def rates(table: pd.DataFrame, document: float) -> go.Figure:
    """Events per second against the number of events per call, and the document's rate."""
    figure = go.Figure()
    for column, (name, color) in _RATES.items():
        _lines(figure, table["chunk"], table[column], name, color)
    ends = [table["chunk"].min(), table["chunk"].max()]
    name = f"the document: {document:,.0f}"
    figure.add_scatter(x=ends, y=[document] * 2, mode="lines", name=name, line=LIMIT)
    styled(figure, "Speed on one core", "events per call (logarithmic)", "events/s (logarithmic)")
    return _logarithmic(figure)


def parallel(table: pd.DataFrame) -> go.Figure:
    """Seconds to generate and count events in Spark tasks, and to add them to histograms."""
    figure, x = go.Figure(), [f"{events:,} events" for events in table["events"]]
    grey, blue = {"color": GREY}, {"color": BLUE}
    figure.add_bar(x=x, y=table["count_s"], name="draw and count", marker=grey)
    figure.add_bar(x=x, y=table["histogram_s"], name="draw, histograms, merge", marker=blue)
    return named(styled(figure, "A histogram per partition, merged", "", "seconds"), x="events")
