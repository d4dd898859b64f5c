"""Figures of D1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from scipy.stats import norm

from aftlib.approximately_once.assignment import assign_greedy, assign_packed, assign_spread
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.reports.style import BLUE, GREEN, GREY, ORANGE, RED, explorable, styled, with_slider

LOOK: Mapping[str, dict] = {
    "greedy": {"color": BLUE, "symbol": "circle", "dash": "solid"},
    "h-best": {"color": GREEN, "symbol": "triangle-up", "dash": "solid"},
    "h-worst": {"color": RED, "symbol": "triangle-down", "dash": "solid"},
    "random": {"color": GREY, "symbol": "x", "dash": "dot"},
    "best": {"color": ORANGE, "symbol": "diamond", "dash": "solid"},
    "bound": {"color": "#333", "symbol": "line-ew-open", "dash": "dash"},
    "1 crash": {"color": GREEN, "symbol": "circle", "dash": "solid"},
    "2 crashes": {"color": ORANGE, "symbol": "square", "dash": "solid"},
    "3 crashes": {"color": RED, "symbol": "diamond", "dash": "solid"},
}
ASSIGNMENTS = {"greedy": assign_greedy, "h-best": assign_spread, "h-worst": assign_packed}
_TITLES = {
    "workers": "workers m (logarithmic)",
    "epsilon": "tolerance ε",
    "estimable": "estimable workers",
    "pooled": "error rate (9), estimable keys",
}


def correlation(model: GaussianModel, sample: np.ndarray, observed: float) -> go.Figure:
    """Two correlated variables and where X2 was observed (fig. 4); `sample` has shape (rows, 2)."""
    points = go.Scattergl(
        x=sample[:, 1],
        y=sample[:, 0],
        mode="markers",
        marker={"size": 4, "color": BLUE, "opacity": 0.35},
        name="samples",
        hovertemplate="X2 %{x:.2f}, X1 %{y:.2f}<extra></extra>",
    )
    figure = go.Figure(points)
    text = f"X2 = {observed:g} observed"
    figure.add_vline(observed, line={"color": RED, "dash": "dash"}, annotation_text=text)
    styled(figure, "Two sensors that go together (fig. 4)", model.names[1], model.names[0])
    return figure.update_layout(hovermode="closest")


def densities(model: GaussianModel, observed: float, epsilon: float) -> go.Figure:
    """Density of the first key and its posterior given the second, with ±ε (figs 5, 6)."""
    first, second = model.names
    prior, posterior = model.condition({}), model.condition({second: observed})
    centre, deviation = prior.mean[0], np.sqrt(prior.variance[0])
    x = np.linspace(centre - 4 * deviation, centre + 4 * deviation, 201)

    figure = go.Figure()
    shown = ((first, prior, GREY), (f"{first} given {second}", posterior, BLUE))
    for name, known, color in shown:
        density = norm.pdf(x, known.mean[0], np.sqrt(known.variance[0]))
        figure.add_scatter(x=x, y=density, name=name, line={"color": color, "width": 2.5})
    centre = float(posterior.mean[0])
    figure.add_vrect(centre - epsilon, centre + epsilon, fillcolor=BLUE, opacity=0.1, line_width=0)
    figure.add_annotation(
        x=centre, y=0, text=f"estimate ± ε = {epsilon:g}", yshift=-2, showarrow=False
    )
    title = f"What {second} = {observed:g} tells about {first} (figs 5, 6)"
    return styled(figure, title, first, "probability density")


def six_sensors(table: pd.DataFrame, failure: float, recovery: float) -> go.Figure:
    """Window means of fig. 8 as they reached the sink, estimates with their half-widths."""
    figure = go.Figure()
    colors = (BLUE, GREEN, ORANGE, RED, "#CC79A7", "#56B4E9")
    for (key, rows), color in zip(table.groupby("key"), colors, strict=False):
        worker = "A" if key in ("X1", "X2", "X3") else "B"
        computed, estimated = rows[~rows["estimated"]], rows[rows["estimated"]]
        figure.add_scatter(
            x=rows["stop"], y=rows["truth"], mode="lines", line={"color": color, "width": 1},
            legendgroup=key, showlegend=False, name=f"{key} true", opacity=0.6,
        )  # fmt: skip
        figure.add_scatter(
            x=computed["stop"], y=computed["value"], mode="markers", legendgroup=key,
            name=f"{key} ({worker})", marker={"color": color, "size": 9},
        )  # fmt: skip
        if len(estimated):
            figure.add_scatter(
                x=estimated["stop"], y=estimated["value"], mode="markers", legendgroup=key,
                showlegend=False, name=f"{key} estimated",
                error_y={"array": estimated["half_width"], "color": color},
                marker={"color": "white", "size": 10, "line": {"color": color, "width": 2.5}},
            )  # fmt: skip
    figure.add_vrect(failure, recovery, fillcolor=RED, opacity=0.12, line_width=0)
    figure.add_annotation(
        x=(failure + recovery) / 2, y=1, yref="paper", text="B is down", showarrow=False, yshift=-8
    )
    title = "Six sensors, worker B killed: filled = computed, open = estimated (fig. 8)"
    return styled(figure, title, "end of the window (time)", "window mean", 470)


def sweep(grid: pd.DataFrame, x: str, y: str, title: str, start: float | None = None) -> go.Figure:
    """Estimable workers or error rate along m or ε, a slider for the other (figs 10–13).

    `x` is "workers" or "epsilon", `y` "estimable" or "pooled", columns of `experiments.grid` (or
    `bests`); the slider begins at the value nearest to `start`, by default the middle one.
    """
    other = "epsilon" if x == "workers" else "workers"
    mean = grid.groupby(["method", "workers", "epsilon"], as_index=False).mean()
    methods = [method for method in LOOK if (mean["method"] == method).any()]
    stops = sorted(mean[other].unique())

    def curve(method: str, value: float) -> dict:
        chosen = (mean["method"] == method) & (mean[other] == value)
        rows = mean[chosen].sort_values(x)
        data: dict = {"x": rows[x].tolist(), "y": rows[y].tolist()}
        if y == "pooled":
            up, down = rows["pooled_high"] - rows[y], rows[y] - rows["pooled_low"]
            data["error_y"] = {"array": up.tolist(), "arrayminus": down.tolist(), "thickness": 1}
        return data

    frames = {f"{stop:g}": [curve(method, stop) for method in methods] for stop in stops}
    active = len(stops) // 2 if start is None else int(np.abs(np.array(stops) - start).argmin())
    figure = go.Figure()
    for method, data in zip(methods, list(frames.values())[active], strict=True):
        look = LOOK[method]
        line = {"color": look["color"], "dash": look["dash"]}
        marker = {"symbol": look["symbol"], "size": 8}
        figure.add_scatter(
            mode="lines+markers", name=method, line=line, marker=marker, connectgaps=False, **data
        )
    styled(figure, title, _TITLES[x], _TITLES[y])
    if x == "workers":
        ticks = sorted(mean["workers"].unique())
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{v:g}" for v in ticks])
    label = "m" if other == "workers" else "ε"
    return with_slider(figure, label, frames, active)


def promise(figure: go.Figure, delta: float) -> go.Figure:
    """Draw the promised δ into a figure of error rates; returns the same figure."""
    figure.add_hline(
        delta,
        line={"color": "#333", "dash": "dash"},
        annotation_text=f"promised δ = {delta:g}",
        annotation_position="top left",
    )
    # no axis from zero: what decides is on which side of δ an interval lies
    return figure.update_yaxes(rangemode="normal", autorangeoptions={"include": [delta]})


def coverage(rates: pd.DataFrame, delta: float, workers: int) -> go.Figure:
    """Share of estimates within ε under greedy assignment to m workers, for each reading.

    `rates` has reading, epsilon, share and its interval low, high.
    """
    figure = go.Figure()
    for (reading, rows), color in zip(rates.groupby("reading"), (BLUE, ORANGE), strict=False):
        figure.add_scatter(
            x=rows["epsilon"], y=rows["share"], name=str(reading), mode="markers+lines",
            error_y={"array": rows["high"] - rows["share"],
                     "arrayminus": rows["share"] - rows["low"]},
            line={"color": color}, marker={"size": 9},
        )  # fmt: skip
    figure.add_hline(
        1 - delta, line={"color": "#333", "dash": "dash"}, annotation_text="promised 1 − δ"
    )
    title = f"Would the promise have held? (greedy, m = {workers})"
    return styled(figure, title, "tolerance ε (unit of the sensors)", "estimates within ε")


def explore(
    model: GaussianModel, m: int, epsilon: float, delta: float, block: int | None = None
) -> Any:
    """Reliability of each of `m` workers; in JupyterLab below sliders for ε, δ and m.

    `block` is the number of keys in a block of a `block_model`: a slider sets it, too.
    """

    def draw(epsilon: float, delta: float, m: int, block: int | None = None) -> go.Figure:
        inside = float(model.covariance[0, 1])
        known = block_model(n, n // block, model.covariance[0, 0], inside) if block else model
        figure, counts = go.Figure(), []
        for name, assign in ASSIGNMENTS.items():
            found, look = assign(known, m, Requirement(epsilon, delta)), LOOK[name]
            counts.append(f"{name} {found.estimable.sum()}")
            figure.add_scatter(
                x=list(range(1, m + 1)), y=np.sort(found.reliability)[::-1], mode="markers",
                marker={"color": look["color"], "symbol": look["symbol"], "size": 9}, name=name,
            )  # fmt: skip
        figure.add_hline(1 - delta, line={"color": "#333", "dash": "dash"})
        title = f"Estimable of {m} workers at ε = {epsilon:g}: {', '.join(counts)}"
        styled(figure, title, "workers, most reliable first", "reliability R")
        return figure.update_layout(hovermode="closest")

    n = model.size
    divisors = [number for number in range(2, n + 1) if n % number == 0]
    controls: dict[str, tuple[str, Sequence, Any]] = {
        "epsilon": ("ε", np.linspace(epsilon / 4, 3 * epsilon, 45).round(3).tolist(), epsilon),
        "delta": ("δ", [0.01, 0.02, 0.05, 0.1, 0.2], delta),
        "m": ("m", divisors, m),
    }
    if block is not None:
        controls["block"] = ("block size", divisors[:-1], block)
    return explorable(draw, **controls)
