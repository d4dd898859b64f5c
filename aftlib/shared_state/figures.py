"""Figures of D3 from the tidy frames of its experiments."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import pandas as pd
import plotly.graph_objects as go

from aftlib.shared_state.scaling import SERVED, seconds_by_part
from aftlib.shared_state.tuplelog import UNIFORM
from aftlib.workbench.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    named,
    styled,
    with_slider,
)

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
HEADINGS = {
    "states": "different keys",
    "throughput": "tuples per second",
    "start_s": "until the first task, s",
    "work_s": "longest task, s",
    "merge_s": "merging, s",
    "read_ns": "reading a tuple, ns",
    "receive_ns": "receiving a tuple, ns",
    "cpu_share": "share of cores busy",
    "behind": "share of time late",
    "again": "tuples processed again",
    "disturbed": "healthy tasks restarted",
    "twice": "counted twice without a reset",
    "error": "largest error",
    "crashed_pid": "failed process",
    "joined": "starts",
    "read_again": "tuples read again",
    "merges_per_s": "sums per second",
    "with_barriers_per_s": "sums per second, with barriers",
    "barrier_ms": "barrier, median ms",
    "barrier_most_ms": "barrier, longest ms",
    "lost": "throughput lost",
    "on": "cores",
    "gigabytes": "peak memory, GB",
}
"""Column headings of the notebook's tables."""


def paced(frame: pd.DataFrame, title: str) -> go.Figure:
    """Throughput on emulated cores against parallelism, one line per design, key count and skew."""
    figure = go.Figure()
    cases = frame.groupby(["design", "keys", "skew"])
    colors = dict(zip(sorted(frame["skew"].unique()), cycle(_SKEWS), strict=False))
    dashes = dict(
        zip(sorted(frame["keys"].unique()), cycle(("dot", "solid", "dash")), strict=False)
    )
    for (design, keys, skew), rows in cases:
        name = "uniform" if skew == UNIFORM else f"Zipf {skew:g}"
        look = LOOK[SERVED if design == "late" else "upfront"]
        figure.add_scatter(
            **_spread(rows, "tasks"), mode="lines+markers",
            name=f"{'merged late' if design == 'late' else 'shuffled'}, {name}, {keys:,} keys",
            line={"color": colors[skew], "dash": dashes[keys]},
            marker={"symbol": look["symbol"], "size": 10},
        )  # fmt: skip
    styled(figure, title, "parallelism (tasks)", "million tuples per second")
    figure.update_xaxes(type="log", tickvals=(ticks := sorted(frame["tasks"].unique())))
    figure.update_xaxes(ticktext=[str(tick) for tick in ticks])
    return figure.update_yaxes(type="log")


def _spread(runs: pd.DataFrame, by: str) -> dict:
    """Attributes of a trace: median throughput, with error bars from the least to the greatest."""
    groups = runs.groupby(by)["throughput"]
    middle, low, high = (getattr(groups, how)() / 1e6 for how in ("median", "min", "max"))
    bars = {"error_y.array": high - middle, "error_y.arrayminus": middle - low}
    points = {"x": middle.index, "y": middle} | bars
    return {name: values.tolist() for name, values in points.items()}


def by_skew(measured: pd.DataFrame, tasks: int, title: str) -> go.Figure:
    """Measured throughput against skew, one curve per strategy, with error bars over the runs.

    Dotted lines show the smallest parallelism, if it is below `tasks`.
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
    styled(figure, title, "skew (0 is uniform)", "million tuples per second")
    return figure.update_yaxes(rangemode="tozero")


def breakdown(measured: pd.DataFrame, tasks: int, title: str) -> go.Figure:
    """Parts of a run's time by strategy (task times divided by number of tasks); slider: skew."""
    middle = seconds_by_part(measured, tasks)
    frames = {}
    for skew, rows in middle.groupby("skew"):
        order = [strategy for strategy in LOOK if (skew, strategy) in rows.index]
        chosen = rows.droplevel(0).loc[order]
        frames[f"{skew:g}"] = [{"x": chosen[part].tolist(), "y": order} for part in _PARTS]
    figure = go.Figure()
    for (name, color), data in zip(_PARTS.values(), next(iter(frames.values())), strict=True):
        figure.add_bar(orientation="h", name=name, marker={"color": color}, **data)
    named(styled(figure, title, "seconds", ""), y="strategy").update_layout(
        barmode="stack", hovermode="closest"
    )
    return with_slider(figure, "skew", frames, 0)


def failures(frame: pd.DataFrame, title: str) -> go.Figure:
    """Tuples processed again, and tuples that healthy tasks would count twice, by strategy."""
    figure = go.Figure()
    names = [f"{row.strategy}<br>({row.disturbed} disturbed)" for row in frame.itertuples()]
    bars = {"again": ("processed again", BLUE), "twice": ("counted twice without a reset", RED)}
    for column, (name, color) in bars.items():
        values = [None if pd.isna(value) else value for value in frame[column]]
        figure.add_bar(x=values, y=names, orientation="h", name=name, marker={"color": color})
    named(styled(figure, title, "tuples", ""), y="strategy").update_yaxes(autorange="reversed")
    return figure.update_layout(hovermode="closest")


def checkpoints(runs: pd.DataFrame, title: str) -> go.Figure:
    """Throughput of every run of `experiments.checkpoints` by mode, one colour per store."""
    figure = go.Figure()
    for color, (store, rows) in zip((BLUE, ORANGE, GREEN), runs.groupby("store"), strict=False):
        figure.add_scatter(
            x=rows["mode"].str.replace(", ", ",<br>"), y=rows["throughput"] / 1e6,
            mode="markers", name=store,
            marker={"color": color, "size": 10},
        )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    return styled(figure, title, "checkpoints", "million tuples per second")


def merges(frame: pd.DataFrame, title: str) -> go.Figure:
    """Rows merged per second, barriers included, by store, table size and flush mode."""
    figure = go.Figure()
    looks = {"merge": ("flushes at every merge", RED), "barrier": ("at barriers only", BLUE)}
    for flush, (name, color) in looks.items():
        rows = frame[frame["flush"] == flush]
        middle = rows.groupby(["store", "keys"])["with_barriers_per_s"].median() / 1e6
        places = [f"{store},<br>{keys:,} keys" for store, keys in middle.index]
        figure.add_bar(x=places, y=middle.tolist(), name=name, marker={"color": color})
    return styled(figure, title, "store and size", "million rows merged per second")
