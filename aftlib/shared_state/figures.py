"""Figures of D3 from the tidy frames of its experiments."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import pandas as pd
import plotly.graph_objects as go

from aftlib.reports.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, styled, with_slider
from aftlib.shared_state.scaling import SERVED, seconds_by_part
from aftlib.shared_state.tuplelog import UNIFORM

LOOK: Mapping[str, dict] = {
    "upfront": {"color": RED, "symbol": "square"},
    "late local": {"color": BLUE, "symbol": "circle"},
    "late global": {"color": GREEN, "symbol": "diamond"},
    SERVED: {"color": PURPLE, "symbol": "cross"},
}
_SKEWS = (GREY, GREEN, BLUE, PURPLE, ORANGE, RED)
_PARTS = {
    "start_s": ("Spark starts the tasks", GREY),
    "read_s": ("read", GREEN),
    "parse_s": ("parse", BLUE),
    "sum_s": ("sum", PURPLE),
    "merge_s": ("merge", ORANGE),
    "rest_s": ("rest: shuffle, aggregation, epoch commit", RED),
}


def scaling(
    measured: pd.DataFrame,
    modelled: pd.DataFrame,
    strategy: str,
    title: str,
    start: int | None = None,
) -> go.Figure:
    """Throughput against parallelism: curves are modelled, filled marks measured, a colour a skew.

    Frames are those of the experiments of the same names, `modelled` for several numbers of tuples,
    which a slider chooses; it begins at `start`, or at the fewest. Marks are shown where as many
    tuples were measured. What is modelled for a pipelined shuffle is dotted.
    """
    found, model = (frame[frame["strategy"] == strategy] for frame in (measured, modelled))
    kinds = {False: ("modelled", "dash"), True: ("modelled, pipelined", "dot")}
    figure, drawn = go.Figure(), []  # of each trace: its rows, of whatever number of tuples
    for color, (skew, rows) in zip(cycle(_SKEWS), model.groupby("skew"), strict=False):
        name = "uniform" if skew == UNIFORM else f"Zipf {skew:g}"
        for pipelined, at in rows.groupby("pipelined"):
            label, dash = kinds[bool(pipelined)]
            line = {"color": color, "dash": dash, "width": 1.5}
            figure.add_scatter(
                mode="lines", name=f"{name}, {label}", legendgroup=name, line=line,
                error_y={"visible": False},
            )  # fmt: skip
            drawn.append(at)
        marker = {"color": color, "symbol": "diamond", "size": 11}
        figure.add_scatter(
            mode="markers", name=f"{name}, measured", legendgroup=name, marker=marker,
            error_y={"thickness": 1},
        )  # fmt: skip
        drawn.append(found[found["skew"] == skew])
    stops = sorted(model["tuples"].unique())
    frames = {
        f"{tuples:,}": [_spread(rows[rows["tuples"] == tuples], "tasks") for rows in drawn]
        for tuples in stops
    }
    active = 0 if start is None else stops.index(start)
    for trace, data in zip(figure.data, list(frames.values())[active], strict=True):
        trace.update(data)
    styled(figure, title, "parallelism (tasks, logarithmic)", "million tuples a second")
    ticks = sorted(model["tasks"].unique())
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[str(tick) for tick in ticks])
    ticks = [digit * 10.0**power for power in range(-3, 5) for digit in (1, 2, 5)]
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    figure.update_layout(
        legend={"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"},
        hovermode="closest",
    )
    return with_slider(figure, "tuples", frames, active)


def _spread(runs: pd.DataFrame, by: str) -> dict:
    """Median throughput of some runs, and bars that span them, as attributes of a trace."""
    groups = runs.groupby(by)["throughput"]
    middle, low, high = (getattr(groups, how)() / 1e6 for how in ("median", "min", "max"))
    bars = {"error_y.array": high - middle, "error_y.arrayminus": middle - low}
    points = {"x": middle.index, "y": middle} | bars
    return {name: values.tolist() for name, values in points.items()}


def by_skew(measured: pd.DataFrame, tasks: int, title: str) -> go.Figure:
    """Measured throughput against skew, a curve a strategy; bars span the runs.

    Dotted is what the fewest tasks reached, where there are fewer than `tasks`.
    """
    figure = go.Figure()
    few = measured["tasks"].min()
    for strategy, look in LOOK.items():
        for count, dash in {few: "dot", tasks: "solid"}.items():
            at = (measured["strategy"] == strategy) & (measured["tasks"] == count)
            if not at.any():
                continue
            most = bool(count == tasks)
            name = strategy if most else f"{strategy}, {count} task{'s' if count > 1 else ''}"
            figure.add_scatter(
                **_spread(measured[at], "skew"), name=name, legendgroup=strategy, showlegend=most,
                mode="lines+markers", line={"color": look["color"], "dash": dash},
                marker={"symbol": look["symbol"] + ("" if most else "-open"), "size": 9},
            )  # fmt: skip
    styled(figure, title, "skew (0 is uniform)", "million tuples a second")
    return figure.update_yaxes(rangemode="tozero")


def breakdown(measured: pd.DataFrame, tasks: int, title: str) -> go.Figure:
    """Where the seconds of a run go, tasks' work divided by their number, a slider for the skew."""
    middle = seconds_by_part(measured, tasks)
    frames = {}
    for skew, rows in middle.groupby("skew"):
        order = [strategy for strategy in LOOK if (skew, strategy) in rows.index]
        chosen = rows.droplevel(0).loc[order]
        frames[f"{skew:g}"] = [{"x": chosen[part].tolist(), "y": order} for part in _PARTS]
    figure = go.Figure()
    for (name, color), data in zip(_PARTS.values(), next(iter(frames.values())), strict=True):
        figure.add_bar(orientation="h", name=name, marker={"color": color}, **data)
    styled(figure, title, "seconds", "").update_layout(barmode="stack", hovermode="closest")
    return with_slider(figure, "skew", frames, 0)


def failures(frame: pd.DataFrame, title: str) -> go.Figure:
    """Tuples processed again, and those that healthy tasks would count twice where there are."""
    figure = go.Figure()
    names = [f"{row.strategy}<br>({row.disturbed} disturbed)" for row in frame.itertuples()]
    bars = {"again": ("processed again", BLUE), "twice": ("counted twice if not set back", RED)}
    for column, (name, color) in bars.items():
        values = [None if pd.isna(value) else value for value in frame[column]]
        figure.add_bar(x=values, y=names, orientation="h", name=name, marker={"color": color})
    styled(figure, title, "tuples", "").update_yaxes(autorange="reversed")
    return figure.update_layout(hovermode="closest")


def checkpoints(runs: pd.DataFrame, title: str) -> go.Figure:
    """Throughput of every run of `experiments.checkpoints` by mode, a colour a store."""
    figure = go.Figure()
    for color, (store, rows) in zip((BLUE, ORANGE, GREEN), runs.groupby("store"), strict=False):
        figure.add_scatter(
            x=rows["mode"].str.replace(", ", ",<br>"), y=rows["throughput"] / 1e6,
            mode="markers", name=store,
            marker={"color": color, "size": 10},
        )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    return styled(figure, title, "checkpoints", "million tuples per second")
