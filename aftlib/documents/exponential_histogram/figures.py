"""Figures and tables of D5."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from pandas.io.formats.style import Styler

from aftlib.documents.exponential_histogram.experiments import counterexamples
from aftlib.notebook.style import (
    BESIDE,
    BLUE,
    GREEN,
    GREY,
    LIMIT,
    ORANGE,
    PURPLE,
    RED,
    line_figure,
    line_look,
    styled,
    table,
    threshold,
    with_slider,
)

_DASHES = ("solid", "dash", "dot", "dashdot")
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


def buckets(steps: pd.DataFrame, window: int, start: int) -> go.Figure:
    """Buckets of `experiments.figure_3` around the events, with a slider for the time (fig. 4)."""
    events = steps["event"].tolist()
    frames = {str(row.t): _draw_step(row, events, window) for row in steps.itertuples()}
    looks: list[dict[str, Any]] = [
        {"mode": "lines", "name": "window", "line": {"color": "#333", "dash": "dot", "width": 2}},
        {"mode": "lines", "name": "bucket", "line": {"color": BLUE, "width": 2}, "fill": "toself",
         "fillcolor": "rgba(0, 114, 178, 0.15)"},
        {"mode": "markers+text", "name": "event", "textfont": {"color": "white", "size": 15},
         "marker": {"symbol": "square", "size": 26, "color": GREY}},
        {"mode": "text", "textfont": {"color": BLUE, "size": 14}, "showlegend": False},
        {"mode": "text", "textfont": {"size": 15}, "showlegend": False},
    ]  # fmt: skip
    figure = go.Figure()
    for look, data in zip(looks, frames[str(start)], strict=True):
        figure.add_scatter(hoverinfo="skip", **look, **data)
    styled(figure, "Buckets step by step (fig. 4)", "time t", "")
    figure.update_xaxes(range=[0.2, len(events) + 0.8], dtick=1)
    figure.update_yaxes(range=[-1.9, 1.9], visible=False)
    return with_slider(figure, "t", frames, start - 1).update_layout(hovermode=False)


def _draw_step(row: Any, events: Sequence[int], window: int) -> list[dict[str, Any]]:
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


def _boxes(spans: Sequence[tuple[float, float]], height: float) -> dict[str, Any]:
    """Outlines of rectangles around y = 0, with gaps between them."""
    x = [at for left, right in spans for at in (left, right, right, left, left, None)]
    return {"x": x, "y": [-height, -height, height, height, -height, None] * len(spans)}


def few_ones(few: pd.DataFrame, start: float) -> go.Figure:
    """Relative error by the number of ones in the window, with a slider for ε."""
    errors = {name: few[f"{name}_error"] for name in ("article", "sound")}
    errors_of = few.assign(**errors, guaranteed=few["epsilon"]).rename(columns=_NAMES)
    rows = errors_of.melt(["epsilon", "ones"], [*LOOK], "estimate", "error")
    titles = "Errors with few ones", "ones in the window (log)", "relative error"
    figure = line_figure(
        rows, "ones", "error", "estimate", LOOK, titles, slider="epsilon", label="ε", start=start
    )
    figure.update_traces(mode="lines").update_xaxes(type="log", dtick=1)
    return figure.update_yaxes(rangemode="tozero", tickformat=".2~%")


def errors(swept: pd.DataFrame) -> go.Figure:
    """Largest error of `experiments.measure_streams` as a multiple of ε, by P(1) and ε."""
    worst = swept.groupby(["share", "epsilon"])[["article", "sound"]].max()
    worst = worst.div(worst.index.get_level_values("epsilon"), axis=0).reset_index()
    rows = worst.melt(["share", "epsilon"], var_name="estimate", value_name="error")
    rows["curve"] = [f"{row.estimate}, P(1) = {row.share:g}" for row in rows.itertuples()]
    shares = sorted(swept["share"].unique())
    looks = {
        f"{name}, P(1) = {share:g}": line_look(color, symbol, dash)
        for name, color, symbol in (("article", RED, "square"), ("sound", BLUE, "circle"))
        for share, dash in zip(shares, cycle(_DASHES), strict=False)
    }
    titles = (
        "Largest error measured over streams",
        "guaranteed relative error ε (log)",
        "largest error / ε",
    )
    figure = line_figure(rows, "epsilon", "error", "curve", looks, titles, logarithmic=True)
    figure.update_traces(line_width=2, marker_size=8)
    ends = [rows["epsilon"].min(), rows["epsilon"].max()]
    figure.add_scatter(x=ends, y=[1, 1], mode="lines", name="guaranteed", line=LIMIT)
    return figure.update_layout(legend=BESIDE).update_yaxes(rangemode="tozero")


def demo(answers: pd.DataFrame, epsilon: float, points: int = 1500) -> go.Figure:
    """Answers of the streaming operator, and the exact counts ± ε."""
    shown = answers.iloc[:: max(1, len(answers) // points)]
    band = {"exact + ε": 1 + epsilon, "exact − ε": 1 - epsilon}
    curves = shown[["at", "estimate"]].assign(**{n: shown["exact"] * f for n, f in band.items()})
    figure = px.line(curves, "at", [*band, "estimate"], color_discrete_sequence=[GREY, GREY, BLUE])
    figure.update_layout(legend_title_text="")
    return styled(figure, "The operator's answers in a streaming query", "event", "ones in window")


def long_run(run: pd.DataFrame, epsilon: float) -> go.Figure:
    """Relative errors of both estimates along a long stream, and the guaranteed error."""
    columns = {"article_error": _NAMES["article"], "error": _NAMES["sound"]}
    rows = run.rename(columns=columns).melt("at", var_name="estimate", value_name="relative error")
    titles = "A long stream (fig. 5)", "events so far", "relative error"
    figure = line_figure(rows, "at", "relative error", "estimate", LOOK, titles)
    threshold(figure, epsilon, f"guaranteed ε = {epsilon:g}")
    return figure.update_yaxes(rangemode="tozero", tickformat=".2~%")


def sizes(memory: pd.DataFrame) -> go.Figure:
    """Bytes of the state against N, one line per ε, and of the exact ring of bits."""
    rows = memory.sort_values("epsilon").assign(curve=memory["epsilon"].map("ε = {:g}".format))
    colors = cycle((BLUE, ORANGE, GREEN, RED, PURPLE, GREY))
    symbols = cycle(("circle", "square", "diamond", "cross", "x", "triangle-up"))
    looks = dict(zip(rows["curve"].unique(), map(line_look, colors, symbols), strict=False))
    titles = "Memory of a window full of ones", "window N (events, log)", "bytes (log)"
    figure = line_figure(rows, "window", "bytes", "curve", looks, titles)
    figure.update_traces(line_width=2, marker_size=8)
    ring = memory.groupby("window")["ring_bytes"].first()
    figure.add_scatter(x=ring.index, y=ring, mode="lines", name="exact ring of bits", line=LIMIT)
    figure.update_xaxes(type="log", dtick=1).update_yaxes(type="log", dtick=1)
    return figure.update_layout(legend=BESIDE)


def show_counterexamples(few: pd.DataFrame) -> Styler:
    """Lay out `experiments.counterexamples` for readers."""
    names = {
        "epsilon": "ε",
        "ones": "ones",
        "article": "article's answer",
        "article_error": "its error / ε",
        "sound": "sound answer",
        "sound_error": "error of that / ε",
    }
    examples = counterexamples(few)
    for error in ("article_error", "sound_error"):
        examples[error] /= examples["epsilon"]
    answers = {names["sound"]: "{:,.1f}"}  # half units, which three digits would hide
    return table(examples[[*names]].rename(columns=names), answers)


def show_others(others: pd.DataFrame) -> Styler:
    """Lay out `experiments.try_other_windows` for readers."""
    names = {
        "name": "question",
        "exact": "exact",
        "estimate": "estimate",
        "error": "error (%)",
        "guaranteed": "guaranteed (%)",
    }
    percent = {name: 100 * others[name] for name in ("error", "guaranteed")}
    return table(others.assign(**percent).rename(columns=names))


def show_speeds(speeds: pd.DataFrame) -> Styler:
    """Lay out the medians of `experiments.speeds` for readers."""
    rates = speeds.groupby("method", sort=False)["events per second"].median() / 1e6
    return table(rates.rename("million events per second").rename_axis("per call").to_frame())
