"""Figures of D5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from aftlib.reports.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, styled, with_slider

LOOK: Mapping[str, dict] = {
    "article": {"name": "article's ⌈total − last/2⌉", "color": RED, "symbol": "square"},
    "sound": {"name": "sound total − (last − 1)/2", "color": BLUE, "symbol": "circle"},
}
PROMISED = {"color": "#333", "dash": "dash"}
_AXES = {
    "epsilon": "promised relative error ε (logarithmic)",
    "window": "window N (events, logarithmic)",
    "share": "share of ones P(1) (logarithmic)",
    "burst": "mean length of a run of ones (events; 0: independent events)",
}
_SYMBOLS = {"window": "N =", "share": "P(1) =", "burst": "bursts of"}
_RATES = {
    "count_nonzero": ("np.count_nonzero", GREY),
    "ring": ("exact ring of bits", GREEN),
    "update": ("update", BLUE),
    "estimates": ("one answer an event", ORANGE),
}


def buckets(table: pd.DataFrame, window: int, start: int) -> go.Figure:
    """Buckets around the events, a slider for the time (fig. 4).

    Parameters
    ----------
    table : DataFrame
        Result of `experiments.d5.steps`.
    window : int
        Events.
    start : int
        Time shown first.
    """
    events = table["event"].tolist()
    frames = {str(row.t): _step(row, events, window) for row in table.itertuples()}
    looks = [
        {"mode": "lines", "name": "window", "line": {"color": "#333", "dash": "dot", "width": 2}},
        {"mode": "lines", "name": "bucket", "line": {"color": BLUE, "width": 2}, "fill": "toself",
         "fillcolor": "rgba(0, 114, 178, 0.15)"},
        {"mode": "markers+text", "name": "event", "textfont": {"color": "white", "size": 15},
         "marker": {"symbol": "square", "size": 26, "color": GREY}},
        {"mode": "text", "name": "timestamp, count", "textfont": {"color": BLUE, "size": 14}},
        {"mode": "text", "name": "answers", "textfont": {"size": 15}},
    ]  # fmt: skip
    figure = go.Figure()
    for look, data in zip(looks, frames[str(start)], strict=True):
        figure.add_scatter(hoverinfo="skip", **look, **data)
    styled(figure, "Buckets step by step (fig. 4): timestamp above, count below", "time t", "")
    figure.update_xaxes(range=[0.2, len(events) + 0.8], dtick=1)
    figure.update_yaxes(range=[-1.9, 1.9], visible=False)
    figure = with_slider(figure, "t", frames, start - 1)
    return figure.update_layout(hovermode=False)


def _step(row: Any, events: Sequence[int], window: int) -> list[dict]:
    """New data of the five traces at one time."""
    now = list(range(1, row.t + 1))
    spans = _spans(events[: row.t], row.buckets)
    oldest = max(0.5, row.t - window + 0.5)
    frame = _boxes([(oldest - 0.08, row.t + 0.58)], 0.95)
    names: list[tuple[float, float, str]] = [(at, 0.7, str(at)) for _, at, _ in spans]
    names += [((first + at) / 2, -0.7, str(count)) for first, at, count in spans]
    answers = f"total {row.total} · query {row.query} · sound {row.estimate:g} · exact {row.exact}"
    return [
        frame | {"text": []},
        _boxes([(first - 0.42, at + 0.42) for first, at, _ in spans], 0.5) | {"text": []},
        {"x": now, "y": [0] * row.t, "text": [str(e) for e in events[: row.t]]},
        {"x": [n[0] for n in names], "y": [n[1] for n in names], "text": [n[2] for n in names]},
        {"x": [(len(events) + 1) / 2], "y": [-1.5], "text": [answers]},
    ]


def _spans(events: Sequence[int], held: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Times of the first and the last one of each bucket, and its count."""
    ones = [t for t, event in enumerate(events, 1) if event]
    spans = []
    for at, count in held:
        inside = [t for t in ones if t <= at][-count:]
        spans.append((inside[0], at, count))
    return spans


def _boxes(spans: Sequence[tuple[float, float]], height: float) -> dict:
    """Outlines of rectangles around y = 0, with gaps between them."""
    x: list[float | None] = []
    y: list[float | None] = []
    for left, right in spans:
        x += [left, right, right, left, left, None]
        y += [-height, -height, height, height, -height, None]
    return {"x": x, "y": y}


def few_ones(table: pd.DataFrame, start: float) -> go.Figure:
    """Relative error by the number of ones in the window, a slider for ε."""
    frames, stops = {}, sorted(table["epsilon"].unique())
    for stop in stops:
        each = table[table["epsilon"] == stop]
        x = each["ones"].tolist()
        curves = [{"x": x, "y": each[f"{name}_error"].tolist()} for name in LOOK]
        frames[f"{stop:g}"] = [*curves, {"x": [x[0], x[-1]], "y": [stop, stop]}]
    active = stops.index(start)
    figure = _estimates_and_promise(list(frames.values())[active], "promised ε", "lines")
    styled(figure, "Few ones break the article's promise", "ones in the window", "relative error")
    figure.update_xaxes(type="log").update_yaxes(rangemode="tozero", tickformat=".2~%")
    return with_slider(figure, "ε", frames, active)


def errors(swept: pd.DataFrame, start: float) -> go.Figure:
    """Largest relative error against ε, a slider for P(1), under the promised line.

    Parameters
    ----------
    swept : DataFrame
        Result of `experiments.d5.sweep`; the largest over full windows, whatever their size and
        bursts, is shown.
    start : float
        P(1) shown first.
    """
    frames, stops = {}, sorted(swept["share"].unique())
    for stop in stops:
        worst = swept[swept["share"] == stop].groupby("epsilon")[list(LOOK)].max()
        x = worst.index.tolist()
        curves = [{"x": x, "y": _visible(worst[name])} for name in LOOK]
        frames[f"{stop:g}"] = [*curves, {"x": x, "y": x}]
    active = stops.index(start)
    figure = _estimates_and_promise(list(frames.values())[active], "promised ε")
    styled(figure, "Largest relative error measured", _AXES["epsilon"], "relative error")
    figure.update_xaxes(type="log").update_yaxes(type="log", tickformat=".2~%")
    return with_slider(figure, "P(1)", frames, active)


def error_ratios(
    swept: pd.DataFrame, x: str, fixed: Mapping[str, float], start: float
) -> go.Figure:
    """Largest error as a multiple of ε along an axis of the sweep, a slider for ε.

    Parameters
    ----------
    swept : DataFrame
        Result of `experiments.d5.sweep`.
    x : {"window", "share", "burst"}
    fixed : mapping
        Value of each of the other two axes; the nearest one that was swept is taken.
    start : float
        ε shown first.
    """
    for axis, value in fixed.items():
        swept = swept[swept[axis] == min(swept[axis], key=lambda v: abs(v - value))]
    frames, stops = {}, sorted(swept["epsilon"].unique())
    for stop in stops:
        worst = swept[swept["epsilon"] == stop].groupby(x)[list(LOOK)].max() / stop
        at = [f"{v:g}" for v in worst.index] if x == "burst" else worst.index.tolist()
        curves = [{"x": at, "y": worst[name].tolist()} for name in LOOK]
        frames[f"{stop:g}"] = [*curves, {"x": at, "y": [1] * len(at)}]
    active = stops.index(start)
    figure = _estimates_and_promise(list(frames.values())[active], "promised")
    at_what = ", ".join(_point(axis, swept[axis].iloc[0]) for axis in fixed)
    title = f"Largest error by {_AXES[x].partition(' (')[0]}, {at_what}"
    styled(figure, title, _AXES[x], "largest relative error / ε").update_yaxes(rangemode="tozero")
    figure.update_xaxes(type="category" if x == "burst" else "log")
    return with_slider(figure, "ε", frames, active)


def _point(axis: str, value: float) -> str:
    if axis == "burst" and not value:
        return "independent events"
    return f"{_SYMBOLS[axis]} {value:g}"


def _visible(values: pd.Series) -> list[float | None]:
    """Values for a logarithmic axis, which has no place for 0."""
    return [value if value > 0 else None for value in values]


def _estimates_and_promise(
    curves: Sequence[Mapping], promised: str, mode: str = "lines+markers"
) -> go.Figure:
    figure = go.Figure()
    for look, data in zip(LOOK.values(), curves, strict=False):
        marker = {"symbol": look["symbol"], "size": 6, "color": look["color"]}
        line = {"color": look["color"]}
        figure.add_scatter(mode=mode, name=look["name"], marker=marker, line=line, **data)
    figure.add_scatter(mode="lines", name=promised, line=PROMISED, **curves[-1])
    return figure


def error_curve(curve: pd.DataFrame, epsilon: float, title: str) -> go.Figure:
    """Relative error along a stream under the promised line; the largest of each stretch."""
    figure = go.Figure()
    for name, look in LOOK.items():
        line = {"color": look["color"], "width": 1}
        figure.add_scatter(x=curve["at"], y=curve[name], name=look["name"], line=line)
    figure.add_hline(epsilon, line=PROMISED, annotation_text=f"promised ε = {epsilon:g}")
    styled(figure, title, "events so far", "relative error")
    return figure.update_yaxes(rangemode="tozero", tickformat=".2~%")


def demo(table: pd.DataFrame, epsilon: float, points: int = 1500) -> go.Figure:
    """Answers of the streaming operator beside the exact counts and ±ε around them."""
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
        figure.add_scatter(
            x=shown["at"], y=shown[column], mode="lines", name=name, line={"color": color}
        )
    return styled(figure, "The operator's answers in a streaming query", "event", "ones in window")


def long_run(table: pd.DataFrame, epsilon: float) -> go.Figure:
    """Relative error at moments of the long stream under the promised line (fig. 5)."""
    figure = go.Figure()
    for name, column in (("article", "article_error"), ("sound", "error")):
        look = LOOK[name]
        line = {"color": look["color"], "dash": "dot" if name == "article" else "solid"}
        figure.add_scatter(x=table["at"], y=table[column], name=look["name"], line=line)
    figure.add_hline(epsilon, line=PROMISED, annotation_text=f"promised ε = {epsilon:g}")
    styled(figure, "A long stream (fig. 5)", "events so far", "relative error")
    return figure.update_yaxes(rangemode="tozero", tickformat=".2~%")


def sizes(table: pd.DataFrame) -> go.Figure:
    """Bytes of the state against N, a line an ε, and of the exact ring of bits."""
    figure = go.Figure()
    colors = (RED, ORANGE, PURPLE, GREEN, BLUE, GREY)
    for i, (epsilon, each) in enumerate(table.groupby("epsilon")):
        figure.add_scatter(
            x=each["window"], y=each["bytes"], mode="lines+markers", name=f"ε = {epsilon:g}",
            line={"color": colors[i % len(colors)]},
        )  # fmt: skip
    ring = table.groupby("window")["ring_bytes"].first()
    figure.add_scatter(
        x=ring.index, y=ring, mode="lines", name="exact ring of bits",
        line={"color": "#333", "dash": "dash"},
    )  # fmt: skip
    styled(figure, "Memory of a window full of ones", _AXES["window"], "bytes (logarithmic)")
    return figure.update_xaxes(type="log").update_yaxes(type="log")


def rates(table: pd.DataFrame, document: float) -> go.Figure:
    """Events a second against the events of a call, and the document's rate."""
    figure = go.Figure()
    for column, (name, color) in _RATES.items():
        figure.add_scatter(
            x=table["chunk"], y=table[column], mode="lines+markers", name=name,
            line={"color": color},
        )  # fmt: skip
    ends = [table["chunk"].min(), table["chunk"].max()]
    name = f"the document: {document:,.0f}"
    figure.add_scatter(x=ends, y=[document] * 2, mode="lines", name=name, line=PROMISED)
    styled(figure, "Speed on one core", "events a call (logarithmic)", "events/s (logarithmic)")
    return figure.update_xaxes(type="log").update_yaxes(type="log")


def parallel(table: pd.DataFrame) -> go.Figure:
    """Seconds to draw and count events in Spark tasks, and to draw them into histograms."""
    figure = go.Figure()
    x = [f"{events:,} events" for events in table["events"]]
    for column, name, color in (
        ("count_s", "draw and count", GREY),
        ("histogram_s", "draw, histograms, merge", BLUE),
    ):
        figure.add_bar(x=x, y=table[column], name=name, marker={"color": color})
    return styled(figure, "A histogram a partition, merged", "", "seconds")
