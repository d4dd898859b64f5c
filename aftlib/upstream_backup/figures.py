"""Figures of D4."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from aftlib.upstream_backup.experiments import EXAMPLE, example
from aftlib.upstream_backup.simulation import NEVER, Route, Simulated
from aftlib.upstream_backup.system import MS, PROPOSED, UPSTREAM
from aftlib.workbench.style import BLUE, GREEN, ORANGE, RED, line_figure, line_look, styled

LOOK = {UPSTREAM.name: line_look(RED, "square", "dot"), PROPOSED.name: line_look(BLUE)}
_PLACES = {"upstream": 0, "primary": 1, "secondary": 2, "downstream": 3}
_PARTS = (
    ("handshake", "open the connection", ORANGE),
    ("initial_window", "TCP's first window", GREEN),
    ("tuples", "more tuples", BLUE),
)
_SHOWN_MS = (118.0, 235.0)
_BESIDE = {"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"}


def recoveries(title: str) -> go.Figure:
    """Time–sequence diagrams of one failure under both schemes, side by side (figs 3 and 4)."""
    schemes = (UPSTREAM, PROPOSED)
    figure = make_subplots(
        cols=2, subplot_titles=[scheme.name for scheme in schemes], shared_yaxes=True
    )
    for col, scheme in enumerate(schemes, 1):
        run = example(scheme)
        for name, color, dash, rows in _arrows(run):
            figure.add_scatter(
                x=[x for begin, end, *_ in rows for x in (begin, end, None)],
                y=[y for *_, sent, came, _ in rows for y in (sent, came, None)],
                name=name, legendgroup=name, showlegend=col == 1, mode="lines+markers",
                line={"color": color, "dash": dash, "width": 1.5}, hoverinfo="skip",
                marker={"symbol": "arrow", "angleref": "previous", "size": 8}, row=1, col=col,
            )  # fmt: skip
            figure.add_scatter(
                x=[begin for begin, *_ in rows], y=[sent for *_, sent, _, _ in rows],
                text=[label for *_, label in rows], mode="text", textposition="top right",
                showlegend=False, hoverinfo="skip", row=1, col=col,
            )  # fmt: skip
        crash = run.recovery.outage.crash / MS
        font = {"color": RED, "size": 20}
        figure.add_annotation(x=1, y=crash, text="✘", showarrow=False, font=font, row=1, col=col)
    styled(figure, title, "", "time (ms), downwards")
    figure.update_xaxes(
        title_text="", tickvals=[*_PLACES.values()], ticktext=[*_PLACES], range=[-0.3, 3.4]
    )
    figure.update_yaxes(range=_SHOWN_MS[::-1])
    figure.update_yaxes(title_text="", col=2)
    below = {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.08, "yanchor": "top"}
    return figure.update_layout(hovermode=False, height=600, margin={"t": 90}, legend=below)


def _arrows(run: Simulated) -> list[tuple[str, str, str, list[tuple]]]:
    """Messages by kind: name, color, dash, and rows of begin, end, sent, arrived (ms), label."""
    outage, delay = run.recovery.outage, EXAMPLE.link.delay_ns
    resent = set(run.recovery.resent.tolist())
    data, again, results = list[tuple](), list[tuple](), list[tuple]()
    for route in (run.failed, run.survivor):
        place = _PLACES[route.node]
        for i in _drawn_tuples(route):
            number = int(route.ids[i])
            repeated = route is run.survivor and number in resent
            rows = again if repeated else data
            label = str(number)
            rows.append((0, place, route.queued[i] / MS, (route.sent[i] + delay) / MS, label))
            if route.delivered[i] < NEVER:
                results.append((place, 3, route.emitted[i] / MS, route.delivered[i] / MS, label))
    request = [(_PLACES[outage.survivor], 0, outage.detected / MS, outage.request / MS, "request")]
    return [
        ("tuple", BLUE, "solid", data),
        ("result", GREEN, "solid", results),
        ("request", ORANGE, "solid", request),
        ("sent again", RED, "dash", again),
    ]


def _drawn_tuples(route: Route) -> np.ndarray:
    """Positions of a route's tuples queued in the drawn time, whose end leaves room for arrows."""
    low, high = (round(ms * MS) for ms in _SHOWN_MS)
    return np.flatnonzero((route.queued >= low) & (route.queued <= high - 20 * MS))


def by_rate(means: pd.DataFrame, measure: str, title: str, y: str, ns3: pd.DataFrame) -> go.Figure:
    """A measure of `summarize` against the input rate with intervals; ns-3's means as open marks.

    `ns3` is a frame of `compare_with_ns3`; if it is empty, the title says that ns-3 has no such
    runs.
    """
    if ns3.empty:
        title += "; ns-3 ran the default parameters only"
    titles = title, "input rate (tuples/s, logarithmic)", f"{y}, logarithmic"
    bounds = (f"{measure}_low", f"{measure}_high")
    figure = line_figure(means, "rate", measure, "scheme", LOOK, titles, bounds=bounds)
    for scheme, rows in ns3.groupby("scheme", sort=False):
        marker = LOOK[str(scheme)]["marker"]
        figure.add_scatter(
            x=rows["rate"], y=rows[f"{measure}_ns3"], name=f"{scheme}, ns-3", mode="markers",
            marker=marker | {"symbol": f"{marker['symbol']}-open", "size": 15},
            error_y={"array": rows[f"{measure}_ns3_half"], "thickness": 0.8, "width": 8},
        )  # fmt: skip
    # its label would be crowded between those of 10,000 and 20,000
    ticks = [rate for rate in sorted(means["rate"].unique()) if rate != 15_000]
    texts = [f"{rate / 1000:g}k" if rate >= 1000 else f"{rate:g}" for rate in ticks]
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=texts).update_yaxes(type="log")
    return figure.update_layout(legend=_BESIDE)


def gap_parts(gaps: pd.DataFrame, title: str) -> go.Figure:
    """Shares of the gap between both schemes' recovery times, by rate (`explain_gap`)."""
    figure, rates = go.Figure(), [f"{rate:,.0f}/s" for rate in gaps.index]
    for part, name, color in _PARTS:
        figure.add_bar(x=rates, y=gaps[part] / gaps["gap"], name=name, marker_color=color)
    styled(figure, title, "input rate (tuples/s)", "share of the gap (ns-3)")
    return figure.update_layout(barmode="stack", legend=_BESIDE).update_yaxes(tickformat=".0%")
