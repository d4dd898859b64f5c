"""Figures of D3 from the frames of its experiments."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import pandas as pd
import plotly.graph_objects as go

from aftlib.shared_state.experiments import BROKEN, LATE_GLOBAL, LATE_LOCAL, UPFRONT
from aftlib.shared_state.tuples import UNIFORM
from aftlib.workbench.style import BLUE, GREEN, GREY, ORANGE, RED, styled

LOOK: Mapping[str, dict] = {
    UPFRONT: {"color": RED, "symbol": "square"},
    LATE_LOCAL: {"color": BLUE, "symbol": "circle"},
    LATE_GLOBAL: {"color": GREEN, "symbol": "diamond"},
}
_COLORS = (GREY, ORANGE, RED)


def by_skew(measured: pd.DataFrame, title: str) -> go.Figure:
    """Throughput against skew, one curve per strategy; bars from the slowest to the fastest run."""
    figure = go.Figure()
    for strategy, look in LOOK.items():
        runs = measured[measured["strategy"] == strategy].groupby("skew")["throughput"]
        middle, low, high = runs.median() / 1e6, runs.min() / 1e6, runs.max() / 1e6
        figure.add_scatter(
            x=middle.index.tolist(), y=middle.tolist(), name=strategy, mode="lines+markers",
            error_y={"array": (high - middle).tolist(), "arrayminus": (middle - low).tolist()},
            line={"color": look["color"]}, marker={"symbol": look["symbol"], "size": 10},
        )  # fmt: skip
    styled(figure, title, "skew of the keys (0 is uniform)", "million tuples/s, logarithmic")
    return figure.update_yaxes(type="log", tickvals=(0.5, 1, 2, 5, 10, 20, 50, 100))


def modelled_growth(growth: pd.DataFrame, title: str) -> go.Figure:
    """Computed throughput against tasks: a shuffle (median hash function), and a shared table."""
    figure = go.Figure()
    lines = {"shuffle": ("dot", "square-open"), "shared table": ("solid", "diamond-open")}
    colors = dict(zip(growth["skew"].unique(), cycle(_COLORS), strict=False))
    for (skew, method), rows in growth.groupby(["skew", "method"], sort=False):
        dash, symbol = lines[method]
        label = "uniform" if skew == UNIFORM else f"skew {skew:g}"
        figure.add_scatter(
            x=rows["tasks"].tolist(), y=rows["growth"].tolist(), name=f"{method}, {label}",
            mode="lines+markers", line={"color": colors[skew], "dash": dash},
            marker={"symbol": symbol, "size": 9},
        )  # fmt: skip
    tasks = growth["tasks"].unique().tolist()
    styled(figure, title, "tasks, logarithmic", "times one task's throughput")
    figure.update_xaxes(type="log", tickvals=tasks)
    figure.update_layout(
        height=560,
        margin={"t": 50, "b": 150},
        legend={"x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top"},
    )
    return figure.update_yaxes(type="log", tickvals=tasks)


def failures(killed: pd.DataFrame, title: str) -> go.Figure:
    """Tuples read again after a kill, and those that a shuffle would send to healthy tasks."""
    rows = killed[killed["killed"] != BROKEN]
    names = (rows["killed"] + " killed, " + rows["point"]).tolist()
    figure = go.Figure()
    bars = {
        "again": ("read again by the failed tasks", BLUE),
        "behind_a_shuffle": ("doubled at healthy tasks behind a shuffle, computed", ORANGE),
    }
    for column, (name, color) in bars.items():
        middle = rows.assign(name=names).groupby("name", sort=False)[column].mean()
        figure.add_bar(x=middle.tolist(), y=middle.index.tolist(), orientation="h", name=name,
                       marker={"color": color})  # fmt: skip
    styled(figure, title, "tuples, mean of the kills", "").update_yaxes(autorange="reversed")
    return figure.update_layout(hovermode="closest")
