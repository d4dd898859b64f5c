"""Figures of single results, which their `plot` methods ask for; each is made from a tidy frame."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from aftlib.reports.style import BLUE, GREEN, RED, styled


def correlations(correlation: pd.DataFrame) -> go.Figure:
    """Correlations of keys by keys, shape (n, n)."""
    names = list(correlation.columns)
    figure = go.Figure(
        go.Heatmap(x=names, y=names, z=correlation, zmin=-1, zmax=1, colorscale="RdBu_r")
    )
    styled(figure, "Correlations", "", "").update_yaxes(autorange="reversed")
    return figure.update_layout(hovermode="closest")


def workers(keys: pd.DataFrame) -> go.Figure:
    """Reliability of each worker; `keys` has a row a key with its worker's."""
    each = keys.groupby("worker").agg(
        reliability=("reliability", "first"), estimable=("estimable", "first")
    )
    sensors = [", ".join(map(str, group)) for group in keys.groupby("worker").groups.values()]
    figure = go.Figure()
    for estimable, name, colour in ((True, "estimable", GREEN), (False, "not estimable", RED)):
        mine = (each["estimable"] == estimable).to_numpy()
        if mine.any():
            texts = [text for text, own in zip(sensors, mine, strict=True) if own]
            rows = each[mine]
            figure.add_bar(
                x=rows.index, y=rows["reliability"], name=name, marker={"color": colour},
                hovertext=texts,
            )  # fmt: skip
    return styled(figure, "What may be lost", "worker", "reliability R").update_xaxes(dtick=1)


def time_line(intervals: pd.DataFrame) -> go.Figure:
    """How many sensors a failure replays, by its time; `intervals` has a row an interval."""
    x = [edge for row in intervals.itertuples() for edge in (row.begin, row.end)]
    y = [count for count in intervals["replayed"] for _ in "12"]
    figure = go.Figure(
        go.Scatter(x=x, y=y, mode="lines", fill="tozeroy", line={"color": BLUE}, name="replayed")
    )
    styled(figure, f"{len(intervals) - 1} checkpoints", "time", "sensors that a failure replays")
    return figure.update_yaxes(rangemode="tozero")


def buckets(held: pd.DataFrame) -> go.Figure:
    """Size of each bucket by the time of its newest event."""
    figure = go.Figure(
        go.Scatter(x=held["newest"], y=held["size"], mode="markers", marker={"color": BLUE})
    )
    styled(figure, f"{len(held)} buckets", "time of the newest event", "size (logarithmic)")
    return figure.update_yaxes(type="log")
