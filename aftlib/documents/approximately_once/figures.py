"""Figures of D1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from aftlib.core.gaussian import GaussianModel
from aftlib.documents.approximately_once.error_rates import CHANCE, RANDOM
from aftlib.documents.approximately_once.learning import COUNTED, SHRUNK
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
WORKER_AXIS, EPSILON_AXIS = "workers m", "tolerance ε (sensor units)"
LEARNED_AXIS = "rows that the model is learned from (logarithmic)"
SAMPLED, EMPTY = ", sampled", "no estimable worker"


def joint_density(model: GaussianModel, observed: float) -> go.Figure:
    """Joint density of two sensors (fig. 4), with the observed value of the second."""
    first, second = model.names
    deviation = np.sqrt(np.diag(model.covariance))
    x = model.mean[1] + np.linspace(-3, 3, 61) * deviation[1]
    y = model.mean[0] + np.linspace(-3, 3, 61) * deviation[0]
    off = np.stack(np.meshgrid(y - model.mean[0], x - model.mean[1], indexing="ij"), axis=-1)
    exponent = np.einsum("yxi,ij,yxj->yx", off, model.precision, off)
    density = np.exp(-exponent / 2) / (2 * np.pi * np.sqrt(np.linalg.det(model.covariance)))

    figure = go.Figure(
        go.Contour(
            x=x, y=y, z=density, colorscale="Blues", ncontours=9,
            colorbar={"title": {"text": "density", "side": "right"}},
            hovertemplate=f"{second} %{{x:.1f}}, {first} %{{y:.1f}}: %{{z:.3f}}<extra></extra>",
        )
    )  # fmt: skip
    text = f"{second} = {observed:g} is observed"
    note = {"annotation_text": text, "annotation_position": "bottom right"}
    figure.add_vline(observed, line={"color": RED, "dash": "dash"}, **note)
    styled(figure, f"{first} and {second} together (fig. 4)", second, first, 360)
    return figure.update_layout(hovermode="closest")


def densities(model: GaussianModel, observed: float, epsilon: float) -> go.Figure:
    """Density of the first sensor and its posterior given the second, with ±ε (figs 5, 6)."""
    first, second = model.names
    prior, posterior = model.condition({}), model.condition({second: observed})
    deviation = np.sqrt(prior.variance[0])
    x = prior.mean[0] + np.linspace(-4, 4, 201) * deviation

    figure = go.Figure()
    for name, known, color in ((first, prior, GREY), (f"{first} given {second}", posterior, BLUE)):
        off = (x - known.mean[0]) ** 2 / known.variance[0]
        density = np.exp(-off / 2) / np.sqrt(2 * np.pi * known.variance[0])
        figure.add_scatter(x=x, y=density, name=name, line={"color": color, "width": 2.5})
    ends = posterior.mean[0] - epsilon, posterior.mean[0] + epsilon
    label = {"annotation_text": f"± ε = {epsilon:g}", "annotation_position": "bottom"}
    figure.add_vrect(*map(float, ends), fillcolor=BLUE, opacity=0.1, line_width=0, **label)
    title = f"{first} before and after {second} = {observed:g} is known (figs 5, 6)"
    return styled(figure, title, first, "probability density")


def timelines(checkpoint: float, failure: float, recovery: float, end: float) -> go.Figure:
    """Samples of worker B that are read once, again or never (figs 1, 2), by sample time.

    With checkpoints, all samples since the last one are read again. With estimates, the replacement
    goes on with the present, and the windows that have lost samples are estimated.
    """
    replay, estimate = "checkpoint and replay (fig. 1)", "estimate (fig. 2)"
    bars = [
        ("read once", BLUE, [(replay, 0, checkpoint), (replay, recovery, end)]),
        ("read twice", ORANGE, [(replay, checkpoint, recovery)]),
        ("read once", BLUE, [(estimate, 0, failure), (estimate, recovery, end)]),
        ("never read by B", GREY, [(estimate, failure, recovery)]),
    ]
    figure = go.Figure()
    drawn = set[str]()
    for name, color, parts in bars:
        figure.add_bar(
            y=[row for row, _, _ in parts],
            x=[stop - begin for _, begin, stop in parts],
            base=[begin for _, begin, _ in parts],
            orientation="h", name=name, legendgroup=name, showlegend=name not in drawn,
            marker={"color": color}, hoverinfo="name",
        )  # fmt: skip
        drawn.add(name)
    labels = [
        (checkpoint, "checkpoint", "top left"),
        (failure, "failure", "top left"),
        (recovery, "replacement", "top right"),
    ]
    for time, text, place in labels:
        line = {"color": RED, "dash": "dash"}
        figure.add_vline(time, line=line, annotation_text=text, annotation_position=place)
    title = "Which samples of worker B are read (figs 1, 2)"
    styled(figure, title, "time of the sample (s)", "", 260)
    figure.update_layout(barmode="overlay", bargap=0.3, hovermode="closest")
    # the first row on top, and space for the labels above it
    return figure.update_yaxes(automargin=True, range=[1.5, -0.8])


def six_sensors(table: pd.DataFrame, failure: float, recovery: float) -> go.Figure:
    """Window means of fig. 8 as they were emitted; estimates are open and have half-widths."""
    figure = go.Figure()
    colors = (BLUE, GREEN, ORANGE, RED, PURPLE, "#56B4E9")
    for (sensor, rows), color in zip(table.groupby("sensor"), colors, strict=False):
        worker = "A" if sensor in ("X1", "X2", "X3") else "B"
        exact, estimated = (rows[rows["state"] == state] for state in ("exact", "estimated"))
        figure.add_scatter(
            x=rows["stop"], y=rows["truth"], mode="lines", line={"color": color, "width": 1},
            legendgroup=sensor, showlegend=False, name=f"{sensor} true", opacity=0.6,
        )  # fmt: skip
        figure.add_scatter(
            x=exact["stop"], y=exact["value"], mode="markers", legendgroup=sensor,
            name=f"{sensor} ({worker})", marker={"color": color, "size": 9},
        )  # fmt: skip
        if len(estimated):
            figure.add_scatter(
                x=estimated["stop"], y=estimated["value"], mode="markers", legendgroup=sensor,
                showlegend=False, name=f"{sensor} estimated",
                error_y={"array": estimated["half_width"], "color": color},
                marker={"color": "white", "size": 10, "line": {"color": color, "width": 2.5}},
            )  # fmt: skip
    down = {"annotation_text": "B is down", "annotation_position": "inside top"}
    figure.add_vrect(failure, recovery, fillcolor=RED, opacity=0.12, line_width=0, **down)
    title = "Six sensors, worker B killed: filled = computed, open = estimated (fig. 8)"
    return styled(figure, title, "end of the window (s)", "window mean", 470)


def estimable_workers(grid: pd.DataFrame, title: str, start: float) -> go.Figure:
    """Estimable workers over m (fig. 10) on linear axes, with a slider for ε; means over draws."""
    shown = grid[grid["method"] != CHANCE]
    titles = title, WORKER_AXIS, "estimable workers"
    figure = _over(shown, "workers", "estimable", titles, start)
    return _with_fixed_axes(figure, shown, "workers", "estimable")


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
    titles = title, f"{WORKER_AXIS} (logarithmic)", "estimable workers fewer than h-best"
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
    looks = {name: look | {"mode": "lines"} for name, look in LOOKS.items()}
    looks |= {name + SAMPLED: look | {"mode": "markers"} for name, look in LOOKS.items()}
    both = pd.concat([grid.assign(low=np.nan, high=np.nan), sampled])
    axis = WORKER_AXIS if x == "workers" else EPSILON_AXIS
    titles = title, axis, "error rate (9)"
    bounds = "low", "high"
    figure = _over(both, x, "rate", titles, start, looks, bounds, logarithmic=x == "workers")
    if x == "workers":
        figure.update_xaxes(title_text=f"{axis} (logarithmic)")
    for trace in figure.data:  # a method and its marks are one entry of the legend
        trace.update(line_width=2.5, marker_size=7)
        trace.update(legendgroup=trace.name.removesuffix(SAMPLED))
        trace.update(showlegend=not trace.name.endswith(SAMPLED))
    _say_where_empty(figure, y=delta / 2)
    threshold(figure, delta, f"δ = {delta:g}", "top left")
    return figure.update_yaxes(autorangeoptions={"include": [delta]})


def interpretations(both: pd.DataFrame, title: str, start: float) -> go.Figure:
    """Greedy's and h-best's estimable workers over ε by interpretation of the rows; slider for m.

    `both` has the rows of both grids, with a column `rows` that names the interpretation.
    """
    shown = both[both["method"].isin(["greedy", "h-best"])]
    shown = shown.assign(method=shown["method"] + ", rows are " + shown["rows"])
    names = sorted(shown["method"].unique())
    colors = {"greedy": BLUE, "h-best": GREEN}
    looks = {
        name: line_look(
            colors[name.partition(",")[0]],
            "diamond" if name.endswith("samples") else "circle",
            "dot" if name.endswith("samples") else "solid",
        )
        for name in names
    }
    titles = title, EPSILON_AXIS, "estimable workers"
    return _over(shown, "epsilon", "estimable", titles, start, looks)


def learned_rates(curve: pd.DataFrame, title: str, start: float, delta: float) -> go.Figure:
    """Error rates over the number of rows that a model is learned from, with a slider for ε.

    `curve` is the frame of `learning.learning_curve`; the lines are means over its data sets.
    """
    names = {"rate": "predicted", "true": "true"}
    figure = _over_rows(curve, names, (title, LEARNED_AXIS, "error rate (9)"), start)
    _say_where_empty(figure, y=delta / 2)
    threshold(figure, delta, f"δ = {delta:g}", "top right")
    return figure.update_yaxes(rangemode="tozero", autorangeoptions={"include": [delta]})


def learned_workers(curve: pd.DataFrame, title: str, start: float) -> go.Figure:
    """Workers that a learned model calls estimable, and those that are, with a slider for ε."""
    names = {"estimable": "by the model", "truly": "truly"}
    figure = _over_rows(curve, names, (title, LEARNED_AXIS, "estimable workers"), start)
    return figure.update_yaxes(range=[0, 1.05 * max(1, curve["estimable"].max())])


def _over_rows(
    curve: pd.DataFrame, names: dict[str, str], titles: tuple[str, str, str], start: float
) -> go.Figure:
    """Two columns of a learning curve, by kind of covariance, over the rows."""
    kinds = {COUNTED: (ORANGE, "circle"), SHRUNK: (BLUE, "diamond")}
    looks = {}
    parts = []
    for kind, (color, symbol) in kinds.items():
        for (column, name), dash in zip(names.items(), ("dot", "solid"), strict=True):
            curves = f"{kind}, {name}"
            looks[curves] = line_look(color, symbol, dash)
            rows = curve[curve["covariance"] == kind]
            parts.append(rows[["rows", "epsilon"]].assign(curve=curves, value=rows[column]))
    both = pd.concat(parts)
    means = both.groupby(["curve", "rows", "epsilon"], as_index=False).mean()
    figure = line_figure(
        means, "rows", "value", "curve", looks, titles,
        slider="epsilon", label="ε", start=start, logarithmic=True,
    )  # fmt: skip
    return figure.update_traces(line_width=2.5, marker_size=7)


def real_sets(summary: pd.DataFrame, delta: float) -> go.Figure:
    """Estimable workers and error rates on sets of real sensors; open marks are predictions.

    `summary` is the frame of `experiments.summarize_real`.
    """
    figure = make_subplots(1, 2, horizontal_spacing=0.12)
    for method, look in LOOKS.items():
        rows = summary[summary["method"] == method]
        if rows.empty:
            continue
        names = (
            rows["set"].str.replace("_", "<br>") + "<br>" + rows["sensors"].astype(str) + " sensors"
        )
        color = look["marker"]["color"]
        bars = {"x": names, "name": method, "marker": {"color": color}, "offsetgroup": method}
        figure.add_bar(y=rows["estimable"], legendgroup=method, **bars, row=1, col=1)
        same = {"legendgroup": method, "showlegend": False}
        figure.add_bar(y=rows["measured"], **bars, **same, row=1, col=2)
        figure.add_scatter(
            x=names, y=rows["rate"], name=f"{method}, by the model", mode="markers",
            marker={"color": "white", "size": 7, "line": {"color": "#222", "width": 1.5}},
            offsetgroup=method, **same, row=1, col=2,
        )  # fmt: skip
    line = {"color": "#333", "dash": "dash"}
    note = {"annotation_text": f"δ = {delta:g}", "annotation_position": "top left"}
    figure.add_hline(delta, line=line, **note, row=1, col=2)
    styled(figure, "Assignments on real sensors, means over settings (m, ε)", "", "")
    figure.update_layout(barmode="group", scattermode="group", hovermode="closest")
    figure.update_xaxes(tickangle=0)
    figure.update_yaxes(title_text="estimable workers", row=1, col=1)
    return figure.update_yaxes(title_text="error rate (9)", rangemode="tozero", row=1, col=2)


def _over(
    rows: pd.DataFrame,
    x: str,
    y: str,
    titles: tuple[str, str, str],
    start: float,
    looks: dict[str, dict[str, Any]] = LOOKS,
    bounds: tuple[str, str] | None = None,
    logarithmic: bool = False,
) -> go.Figure:
    """One line per method over m or ε, with a slider for the other that begins near `start`."""
    slider = "epsilon" if x == "workers" else "workers"
    label = "ε" if x == "workers" else "m"
    means = rows.groupby(["method", "workers", "epsilon"], as_index=False).mean(numeric_only=True)
    figure = line_figure(
        means, x, y, "method", looks, titles,
        slider=slider, label=label, start=start, bounds=bounds, logarithmic=logarithmic,
    )  # fmt: skip
    return figure.update_yaxes(rangemode="tozero")


def _with_fixed_axes(figure: go.Figure, rows: pd.DataFrame, x: str, y: str) -> go.Figure:
    """Give all positions of the slider the same axes, from zero."""
    figure.update_xaxes(range=[0, 1.03 * rows[x].max()])
    return figure.update_yaxes(range=[0, 1.05 * max(1, rows[y].max())])


def _say_where_empty(figure: go.Figure, y: float) -> None:
    """Add a text to the positions of the slider at which no curve has a point."""
    (slider,) = figure.layout.sliders
    places = sorted({place for trace in figure.data for place in trace.x})
    middle = places[len(places) // 2]

    def text(heights: Sequence[Sequence[float]]) -> dict[str, Any]:
        is_empty = not np.isfinite(np.concatenate([np.asarray(h, float) for h in heights])).any()
        return {"x": [middle], "y": [y if is_empty else None]}

    for step in slider.steps:
        changes = step.args[0]
        added = text(changes["y"])
        for name in ("x", "y"):
            changes[name] = [*changes[name], added[name]]
        if "error_y" in changes:
            changes["error_y"] = [*changes["error_y"], {"array": None}]
        step.args = [changes]
    at_first = text([trace.y for trace in figure.data])
    figure.add_scatter(
        **at_first, mode="text", text=[EMPTY], name=EMPTY, showlegend=False, hoverinfo="skip",
        textfont={"size": 15},
    )  # fmt: skip
