"""Figures of D4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from aftlib.documents.upstream_backup.stored_runs import GAP_PARTS
from aftlib.documents.upstream_backup.system import ACTIVE, ACTIVE_WAN, PASSIVE, PROPOSED, UPSTREAM
from aftlib.notebook import style
from aftlib.notebook.style import line_figure, line_look, styled

LOOK = {
    UPSTREAM.name: line_look(style.RED, "square", "dot"),
    PROPOSED.name: line_look(style.BLUE),
    PASSIVE.name: line_look(style.GREEN, "diamond"),
    ACTIVE.name: line_look(style.PURPLE, "cross", "dash"),
    ACTIVE_WAN.name: line_look(style.GREY, "x", "dot"),
}
_PLACES = {"upstream": 0, "primary": 1, "secondary": 2, "downstream": 3}
_MESSAGES: dict[str, dict[str, Any]] = {
    "tuple": {"color": style.BLUE, "width": 1.5},
    "result": {"color": style.GREEN, "width": 1.5},
    "ACK": {"color": style.GREY, "width": 1, "dash": "dot"},
    "request": {"color": style.ORANGE, "width": 1.5},
    "replayed tuple": {"color": style.RED, "width": 1.5, "dash": "dash"},
    "failure": {"color": "#333"},
}
_LABELS = {"tuple": "middle left", "ACK": "top left"}
_RAISED_MS = {"ACK": 2.5}  # a line of text, because a node sends an ACK and a tuple at once
_SHOWN_MS = (118.0, 235.0)


def recoveries(messages: pd.DataFrame, title: str) -> go.Figure:
    """Time–sequence diagrams of `experiments.follow_tuples`, one scheme beside the other."""
    low, high = _SHOWN_MS
    shown = messages[messages["sent_ms"].between(low, high) & (messages["arrived_ms"] <= high)]
    schemes = shown["scheme"].unique().tolist()
    figure = make_subplots(cols=len(schemes), subplot_titles=schemes, shared_yaxes=True)
    for col, scheme in enumerate(schemes, 1):
        for kind, look in _MESSAGES.items():
            rows = shown[(shown["scheme"] == scheme) & (shown["kind"] == kind)]
            _draw_messages(figure, kind, rows, look, col)
    styled(figure, title, "", "time (ms), downwards")
    figure.update_xaxes(
        title_text="", tickvals=[*_PLACES.values()], ticktext=[*_PLACES], range=[-0.35, 3.4]
    )
    figure.update_yaxes(range=_SHOWN_MS[::-1])
    figure.update_yaxes(title_text="", col=2)
    below = {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.06, "yanchor": "top"}
    return figure.update_layout(hovermode=False, height=760, margin={"t": 90}, legend=below)


def _draw_messages(
    figure: go.Figure, kind: str, rows: pd.DataFrame, look: Mapping[str, Any], col: int
) -> None:
    """Draw the messages of a kind as arrows, a failure as a cross, and number them."""
    rows = rows.assign(
        begin=rows["source"].map(_PLACES), end=rows["target"].map(_PLACES), gap=np.nan
    )
    marker = {"symbol": "arrow", "angleref": "previous", "size": 8, "color": look["color"]}
    if kind == "failure":
        marker = {"symbol": "x", "size": 13, "color": look["color"]}
    figure.add_scatter(
        x=rows[["begin", "end", "gap"]].to_numpy().ravel(),
        y=rows[["sent_ms", "arrived_ms", "gap"]].to_numpy().ravel(),
        name=kind,
        legendgroup=kind,
        showlegend=col == 1,
        hoverinfo="skip",
        mode="markers" if kind == "failure" else "lines+markers",
        line=look,
        marker=marker,
        row=1,
        col=col,
    )
    # tuples that leave together have one label
    named = (rows["number"] >= 0) & ((kind != "ACK") | (rows["source"] != "downstream"))
    numbers = rows[named].groupby(["begin", "sent_ms"])["number"].agg(list).reset_index()
    figure.add_scatter(
        x=numbers["begin"],
        y=numbers["sent_ms"] - _RAISED_MS.get(kind, 0.0),
        text=[_name_numbers(kind, each) for each in numbers["number"]],
        mode="text",
        showlegend=False,
        hoverinfo="skip",
        textfont={"color": look["color"], "size": 11},
        textposition=_LABELS.get(kind, "top right"),
        row=1,
        col=col,
    )


def _name_numbers(kind: str, numbers: Sequence[int]) -> str:
    """Return the label of tuples that leave together, such as ``9–13``."""
    first = min(numbers)
    last = max(numbers)
    text = f"{first}" if first == last else f"{first}–{last}"
    return f"≤ {text}\u2002" if kind == "ACK" else text  # stands clear of the node's line


def by_rate(means: pd.DataFrame, measure: str, title: str, y: str, ns3: pd.DataFrame) -> go.Figure:
    """A measure of `summarize` against the input rate with intervals; ns-3's means as open marks.

    `ns3` is a frame of `compare_with_ns3`; if it is empty, the title says that ns-3 has no such
    runs.
    """
    if ns3.empty:
        title += "; ns-3 ran the default parameters only"
    titles = (title, "input rate (tuples/s, log)", f"{y} (log)")
    bounds = (f"{measure}_low", f"{measure}_high")
    figure = line_figure(means, "rate", measure, "scheme", LOOK, titles, bounds=bounds)
    for scheme, rows in ns3.groupby("scheme", sort=False):
        marker = LOOK[str(scheme)]["marker"]
        figure.add_scatter(
            x=rows["rate"],
            y=rows[f"{measure}_ns3"],
            name=f"{scheme}, ns-3",
            mode="markers",
            marker={**marker, "symbol": f"{marker['symbol']}-open", "size": 15},
            error_y={"array": rows[f"{measure}_ns3_half"], "thickness": 0.8, "width": 8},
        )
    decades = [factor * 10.0**power for power in range(-1, 6) for factor in (1, 2, 5)]
    names = [f"{tick:,g}" for tick in decades]
    figure.update_yaxes(type="log", tickvals=decades, ticktext=names)
    return _with_rates(figure, means["rate"])


def _with_rates(figure: go.Figure, rates: pd.Series) -> go.Figure:
    """Give a figure a logarithmic axis of rates, and its legend at the right."""
    # the label of 15,000 would be crowded between those of 10,000 and 20,000
    ticks = [rate for rate in sorted(rates.unique()) if rate != 15_000]
    texts = [f"{rate / 1000:g}k" if rate >= 1000 else f"{rate:g}" for rate in ticks]
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=texts)
    return figure.update_layout(legend=style.BESIDE)


def gap_parts(gaps: pd.DataFrame, title: str) -> go.Figure:
    """Parts of the gap between both schemes' recovery times, by rate (`explain_gap`)."""
    figure = go.Figure()
    rates = [f"{rate:,.0f}/s" for rate in gaps.index]
    colors = (style.RED, style.ORANGE, style.GREEN, style.BLUE)
    for (part, name), color in zip(GAP_PARTS.items(), colors, strict=True):
        figure.add_bar(x=rates, y=100 * gaps[part] / gaps["gap"], name=name, marker_color=color)
    styled(figure, title, "input rate (tuples/s)", "share of the gap in ns-3 (%)")
    return figure.update_layout(barmode="stack", legend=style.BESIDE)


def all_schemes(schemes: pd.DataFrame, title: str) -> go.Figure:
    """Recovery times of all five schemes by rate (`compare_schemes`)."""
    titles = (title, "input rate (tuples/s, log)", "recovery time (ms)")
    figure = line_figure(schemes, "rate", "recovery_ms", "scheme", LOOK, titles)
    return _with_rates(figure, schemes["rate"])
