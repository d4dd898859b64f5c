"""Figures of D1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from scipy.stats import multivariate_normal, norm

from aftlib.core.gaussian import GaussianModel
from aftlib.documents.approximately_once.error_rates import CHANCE, RANDOM
from aftlib.documents.approximately_once.experiments import COUNTED, SHRUNK
from aftlib.notebook.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    line_figure,
    line_look,
    styled,
    threshold,
)

LOOKS = {
    "greedy": line_look(BLUE),
    "h-best": line_look(GREEN, "triangle-up"),
    "h-worst": line_look(RED, "triangle-down"),
    RANDOM: line_look(GREY, "x", "dot"),
    CHANCE: line_look(ORANGE, "diamond", "dot"),
}
WORKER_AXIS = "workers m"
EPSILON_AXIS = "tolerance ε (sensor units)"
LEARNED_AXIS = "rows that the model is learned from (logarithmic)"
SAMPLED = ", sampled"
EMPTY = "no estimable worker"
"""Text at the positions of a slider at which no curve has a point."""
EMPTY_LOOK = {
    "mode": "text",
    "text": [EMPTY],
    "textposition": "middle right",
    "textfont": {"size": 15},
    "hoverinfo": "skip",
    "showlegend": False,
}


def joint_density(model: GaussianModel, observed: float) -> go.Figure:
    """Joint density of two sensors (fig. 4), with the observed value of the second."""
    first, second = model.names
    steps = np.linspace(-3, 3, 61)
    y, x = model.mean[:, None] + steps * np.sqrt(np.diag(model.covariance))[:, None]
    points = np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1)
    contour = go.Contour(
        x=x,
        y=y,
        z=multivariate_normal(model.mean, model.covariance).pdf(points),
        colorscale="Blues",
        ncontours=9,
        colorbar={"title": {"text": "density", "side": "right"}},
        hovertemplate=f"{second} %{{x:.1f}}, {first} %{{y:.1f}}: %{{z:.3f}}<extra></extra>",
    )
    figure = go.Figure(contour)
    figure.add_vline(
        observed,
        line={"color": RED, "dash": "dash"},
        annotation_text=f"{second} = {observed:g} is observed",
        annotation_position="bottom right",
    )
    title = f"{first} and {second} together (fig. 4)"
    return styled(figure, title, second, first, 360, "closest")


def densities(model: GaussianModel, observed: float, epsilon: float) -> go.Figure:
    """Density of the first sensor and its posterior given the second, with ±ε (figs 5, 6)."""
    first, second = model.names
    prior = model.condition({})
    posterior = model.condition({second: observed})
    x = prior.mean[0] + np.linspace(-4, 4, 201) * np.sqrt(prior.variance[0])

    figure = go.Figure()
    for name, known, color in ((first, prior, GREY), (f"{first} given {second}", posterior, BLUE)):
        density = norm(known.mean[0], np.sqrt(known.variance[0])).pdf(x)
        figure.add_scatter(x=x, y=density, name=name, line={"color": color, "width": 2.5})
    figure.add_vrect(
        float(posterior.mean[0] - epsilon),
        float(posterior.mean[0] + epsilon),
        fillcolor=BLUE,
        opacity=0.1,
        line_width=0,
        annotation_text=f"± ε = {epsilon:g}",
        annotation_position="bottom",
    )
    title = f"{first} before and after {second} = {observed:g} is known (figs 5, 6)"
    return styled(figure, title, first, "probability density")


def timelines(checkpoint: float, failure: float, recovery: float, end: float) -> go.Figure:
    """Samples of worker B that are read once, again or never (figs 1, 2), by sample time.

    With checkpoints, all samples since the last one are read again. With estimates, the replacement
    goes on with the present, and the windows that have lost samples are estimated.
    """
    replay = "checkpoint and replay (fig. 1)"
    estimate = "estimate (fig. 2)"
    segments = pd.DataFrame(
        [
            (replay, "read once", 0, checkpoint),
            (replay, "read once", recovery, end),
            (replay, "read twice", checkpoint, recovery),
            (estimate, "read once", 0, failure),
            (estimate, "read once", recovery, end),
            (estimate, "never read by B", failure, recovery),
        ],
        columns=["method", "samples", "begin", "end"],
    )
    figure = px.bar(
        segments.assign(duration=segments["end"] - segments["begin"]),
        x="duration",
        y="method",
        base="begin",
        color="samples",
        color_discrete_map={"read once": BLUE, "read twice": ORANGE, "never read by B": GREY},
        orientation="h",
    )
    figure.update_traces(hoverinfo="name", hovertemplate=None)
    labels = [
        (checkpoint, "checkpoint", "top left"),
        (failure, "failure", "top left"),
        (recovery, "replacement", "top right"),
    ]
    for time, text, place in labels:
        line = {"color": RED, "dash": "dash"}
        figure.add_vline(time, line=line, annotation_text=text, annotation_position=place)
    title = "Which samples of worker B are read (figs 1, 2)"
    styled(figure, title, "time of the sample (s)", "", 260, "closest")
    figure.update_layout(barmode="overlay", bargap=0.3, legend_title_text="")
    # the first row on top, and space for the labels above it
    return figure.update_yaxes(automargin=True, range=[1.5, -0.8])


def six_sensors(table: pd.DataFrame, failure: float, recovery: float) -> go.Figure:
    """Window means of fig. 8 as they were emitted; estimates are open and have half-widths."""
    worker = table["sensor"].isin(["X1", "X2", "X3"]).map({True: " (A)", False: " (B)"})
    rows = table.assign(sensor=table["sensor"] + worker).sort_values(["sensor", "stop"])
    colors = [BLUE, GREEN, ORANGE, RED, PURPLE, "#56B4E9"]
    shared = {"x": "stop", "color": "sensor", "color_discrete_sequence": colors}
    truth = px.line(rows, y="truth", **shared)
    truth.update_traces(line_width=1, opacity=0.6, showlegend=False)
    truth.for_each_trace(lambda trace: trace.update(name=f"{trace.name} true"))
    symbols = {"exact": "circle", "estimated": "circle-open"}
    marks = px.scatter(
        rows, y="value", symbol="state", symbol_map=symbols, error_y="half_width", **shared
    )
    marks.update_traces(marker_size=9)
    for trace in marks.data:  # a sensor is one entry of the legend
        sensor, state = trace.name.split(", ")
        trace.update(name=sensor, legendgroup=sensor, showlegend=state == "exact")
        if state == "estimated":
            trace.update(name=f"{sensor} estimated", marker_line_width=2.5)
    figure = go.Figure([*truth.data, *marks.data]).update_traces(hovertemplate=None)
    down = {"annotation_text": "B is down", "annotation_position": "inside top"}
    figure.add_vrect(failure, recovery, fillcolor=RED, opacity=0.12, line_width=0, **down)
    title = "Six sensors, worker B killed: filled = computed, open = estimated (fig. 8)"
    return styled(figure, title, "end of the window (s)", "window mean", 470)


def estimable_workers(grid: pd.DataFrame, title: str, start: float) -> go.Figure:
    """Estimable workers over m (fig. 10) on linear axes, with a slider for ε; means over draws."""
    shown = grid[grid["method"] != CHANCE]
    figure = _over(shown, "workers", "estimable", (title, WORKER_AXIS, "estimable workers"), start)
    # all positions of the slider have the same axes, from zero
    figure.update_xaxes(range=[0, 1.03 * shown["workers"].max()])
    return figure.update_yaxes(range=[0, 1.05 * max(1, shown["estimable"].max())])


def estimable_over_epsilon(grid: pd.DataFrame, title: str, start: float) -> go.Figure:
    """Estimable workers over ε (fig. 11), with a slider for m; means over draws."""
    shown = grid[grid["method"] != CHANCE]
    return _over(shown, "epsilon", "estimable", (title, EPSILON_AXIS, "estimable workers"), start)


def behind_h_best(grid: pd.DataFrame, title: str, start: float) -> go.Figure:
    """Estimable workers that h-best has more, over m, with a slider for ε; means over draws."""
    best = grid[grid["method"] == "h-best"][["workers", "epsilon", "estimable"]]
    others = grid[~grid["method"].isin(["h-best", "h-worst"])]
    both = others.merge(best, on=["workers", "epsilon"], suffixes=("", "_of_best"))
    behind = both.assign(behind=both["estimable_of_best"] - both["estimable"])
    titles = (title, f"{WORKER_AXIS} (logarithmic)", "estimable workers fewer than h-best")
    return _over(behind, "workers", "behind", titles, start, logarithmic=True)


def error_rates(grid: pd.DataFrame, x: str, title: str, start: float, delta: float) -> go.Figure:
    """Error rates over `x`, m (fig. 12) or ε (fig. 13): lines by formula, marks sampled.

    All marks come from one sample. A position of the slider without estimable workers says so.
    """
    grid = grid[grid["method"] != CHANCE]
    half = 1.96 * grid["error"]
    sampled = grid.assign(
        rate=grid["measured"],
        low=grid["measured"] - half,
        high=grid["measured"] + half,
        method=grid["method"] + SAMPLED,
    )
    both = pd.concat([grid.assign(low=np.nan, high=np.nan), sampled])
    looks: dict[str, dict[str, Any]] = {}
    for kind, mode in (("", "lines"), (SAMPLED, "markers")):
        for name, look in LOOKS.items():
            looks[name + kind] = {**look, "mode": mode}
    over_workers = x == "workers"
    axis = f"{WORKER_AXIS} (logarithmic)" if over_workers else EPSILON_AXIS
    titles = (title, axis, "error rate (9)")
    figure = _over(
        both,
        x,
        "rate",
        titles,
        start,
        looks,
        bounds=("low", "high"),
        logarithmic=over_workers,
        delta=delta,
    )
    for trace in figure.data:  # a method and its marks are one entry of the legend
        trace.update(legendgroup=trace.name.removesuffix(SAMPLED))
        if trace.name.endswith(SAMPLED):
            trace.update(showlegend=False)
    return figure


def interpretations(both: pd.DataFrame, title: str, start: float) -> go.Figure:
    """Greedy's and h-best's estimable workers over ε by interpretation of the rows; slider for m.

    `both` has the rows of both grids, with a column `rows` that names the interpretation.
    """
    shown = both[both["method"].isin(["greedy", "h-best"])]
    shown = shown.assign(method=shown["method"] + ", rows are " + shown["rows"])
    looks = {}
    for method, color in (("greedy", BLUE), ("h-best", GREEN)):
        looks[f"{method}, rows are samples"] = line_look(color, "diamond", "dot")
        looks[f"{method}, rows are windows"] = line_look(color)
    titles = (title, EPSILON_AXIS, "estimable workers")
    return _over(shown, "epsilon", "estimable", titles, start, looks)


def learned_rates(curve: pd.DataFrame, title: str, start: float, delta: float) -> go.Figure:
    """Error rates over the number of rows that a model is learned from, with a slider for ε.

    `curve` is the frame of `experiments.learning_curve`; the lines are means over its data sets.
    """
    looks = {}
    parts = []
    for kind, color, symbol in ((COUNTED, ORANGE, "circle"), (SHRUNK, BLUE, "diamond")):
        rows = curve[curve["covariance"] == kind]
        for column, name, dash in (("rate", "predicted", "dot"), ("true", "true", "solid")):
            method = f"{kind}, {name}"
            looks[method] = line_look(color, symbol, dash)
            parts.append(rows[["rows", "epsilon"]].assign(method=method, rate=rows[column]))
    titles = (title, LEARNED_AXIS, "error rate (9)")
    every = pd.concat(parts)
    return _over(every, "rows", "rate", titles, start, looks, logarithmic=True, delta=delta)


def real_sets(summary: pd.DataFrame, delta: float) -> go.Figure:
    """Estimable workers and error rates on sets of real sensors; open marks are predictions.

    `summary` is the frame of `experiments.summarize_real`.
    """
    names = summary["set"].str.replace("_", "<br>")
    summary = summary.assign(label=names + "<br>" + summary["sensors"].astype(str) + " sensors")
    figure = make_subplots(1, 2, horizontal_spacing=0.12)
    for method, look in LOOKS.items():
        rows = summary[summary["method"] == method]
        if rows.empty:
            continue
        shared = {"x": rows["label"], "legendgroup": method, "offsetgroup": method}
        color = look["marker"]["color"]
        bars = {**shared, "name": method, "marker": {"color": color}}
        figure.add_bar(y=rows["estimable"], **bars, row=1, col=1)
        figure.add_bar(y=rows["measured"], **bars, showlegend=False, row=1, col=2)
        figure.add_scatter(
            y=rows["rate"],
            **shared,
            name=f"{method}, by the model",
            mode="markers",
            marker={"color": "white", "size": 7, "line": {"color": "#222", "width": 1.5}},
            showlegend=False,
            row=1,
            col=2,
        )
    threshold(figure, delta, f"δ = {delta:g}", "top left", row=1, col=2)
    title = "Assignments on real sensors, means over settings (m, ε)"
    styled(figure, title, "", "", hover="closest")
    figure.update_layout(barmode="group", scattermode="group")
    figure.update_xaxes(tickangle=0)
    figure.update_yaxes(title_text="estimable workers", row=1, col=1)
    return figure.update_yaxes(title_text="error rate (9)", rangemode="tozero", row=1, col=2)


def _over(
    rows: pd.DataFrame,
    x: str,
    y: str,
    titles: tuple[str, str, str],
    start: float,
    looks: Mapping[str, Mapping[str, Any]] = LOOKS,
    bounds: tuple[str, str] | None = None,
    logarithmic: bool = False,
    delta: float | None = None,
) -> go.Figure:
    """One line per method over `x`, with a slider that begins near `start`.

    The slider goes through ε, or through m if `x` is ε. A figure of error rates has a line at
    `delta`, and says so at the positions at which no curve has a point.
    """
    slider, label = ("workers", "m") if x == "epsilon" else ("epsilon", "ε")
    means = rows.groupby(["method", x, slider], as_index=False).mean(numeric_only=True)
    empty = sorted(set(means[slider]) - set(means.loc[means[y].notna(), slider]))
    if delta is not None and empty:
        words = {"method": EMPTY, x: means[x].min(), slider: empty, y: delta / 2}
        means = pd.concat([means, pd.DataFrame(words)])
        looks = {**looks, EMPTY: EMPTY_LOOK}
    figure = line_figure(
        means,
        x,
        y,
        "method",
        looks,
        titles,
        slider=slider,
        label=label,
        start=start,
        bounds=bounds,
        logarithmic=logarithmic,
    )
    figure.update_yaxes(rangemode="tozero")
    if delta is not None:
        figure.update_traces(line_width=2.5, marker_size=7)
        threshold(figure, delta, f"δ = {delta:g}", "top left")
        figure.update_yaxes(autorangeoptions={"include": [delta]})
    return figure
