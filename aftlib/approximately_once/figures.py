"""Figures of D1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from aftlib.approximately_once.experiments.grid import (
    ASSIGN,
    CHANCE,
    DOCUMENT,
    added_to,
)
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.workbench.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    explorable,
    line_figure,
    line_look,
    styled,
    threshold,
)

LOOKS = {
    "greedy": line_look(BLUE),
    "h-best": line_look(GREEN, "triangle-up"),
    "h-worst": line_look(RED, "triangle-down"),
    "random": line_look(GREY, "x", "dot"),
    CHANCE: line_look(ORANGE, "diamond", "dot"),
}
_AXES = {"workers": ("workers m (logarithmic)", "m"), "epsilon": ("tolerance ε", "ε")}
_VALUES = {"estimable": "estimable workers", "pooled": "error rate (9), estimable keys"}
HEADINGS = {
    "estimable": "estimable workers",
    "expected": "expected error rate",
    "pooled": "measured error rate",
    "pooled_low": "95 % interval, low",
    "pooled_high": "95 % interval, high",
}
"""Headings of columns in the tables of notebook 01."""


def correlation(model: GaussianModel, sample: np.ndarray, observed: float) -> go.Figure:
    """Two correlated variables and the observed X2 (fig. 4); `sample` has shape (rows, 2)."""
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
    styled(figure, "Two correlated sensors (fig. 4)", model.names[1], model.names[0])
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
        off = (x - known.mean[0]) ** 2 / known.variance[0]
        density = np.exp(-off / 2) / np.sqrt(2 * np.pi * known.variance[0])
        figure.add_scatter(x=x, y=density, name=name, line={"color": color, "width": 2.5})
    centre = float(posterior.mean[0])
    figure.add_vrect(centre - epsilon, centre + epsilon, fillcolor=BLUE, opacity=0.1, line_width=0)
    figure.add_annotation(
        x=centre, y=0, text=f"estimate ± ε = {epsilon:g}", yshift=-2, showarrow=False
    )
    title = f"{first} before and after {second} = {observed:g} is known (figs 5, 6)"
    return styled(figure, title, first, "probability density")


def six_sensors(table: pd.DataFrame, failure: float, recovery: float) -> go.Figure:
    """Window means of fig. 8 as they reached the sink; estimates have half-widths."""
    figure = go.Figure()
    colors = (BLUE, GREEN, ORANGE, RED, PURPLE, "#56B4E9")
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
    """Estimable workers or error rate along m or ε, with a slider for the other (figs 10–13).

    `x` is "workers" or "epsilon", `y` "estimable" or "pooled", columns of `experiments.grid` (or
    `bests`); the slider begins at the value nearest to `start`, by default the middle one.
    """
    other = "epsilon" if x == "workers" else "workers"
    return line_figure(
        grid.groupby(["method", "workers", "epsilon"], as_index=False).mean(numeric_only=True),
        x,
        y,
        "method",
        LOOKS,
        (title, _AXES[x][0], _VALUES[y]),
        slider=other,
        label=_AXES[other][1],
        start=start,
        bounds=("pooled_low", "pooled_high") if y == "pooled" else None,
        logarithmic=x == "workers",
    )


def error_rates(grid: pd.DataFrame, x: str, title: str, start: float, delta: float) -> go.Figure:
    """Draw the error rates by `sweep`, with a line at δ, which they must not exceed."""
    figure = sweep(grid, x, "pooled", title, start)
    threshold(figure, delta, f"δ = {delta:g}", "top left")
    # the axis need not begin at zero: only the intervals' positions relative to δ matter
    return figure.update_yaxes(rangemode="normal", autorangeoptions={"include": [delta]})


def coverage(rates: pd.DataFrame, delta: float, workers: int) -> go.Figure:
    """Share of estimates within ε under greedy assignment to m workers, for each reading.

    `rates` has reading, epsilon, share and its interval low, high.
    """
    colors = zip(sorted(rates["reading"].unique()), (BLUE, ORANGE, GREEN), strict=False)
    figure = line_figure(
        rates,
        "epsilon",
        "share",
        "reading",
        {reading: line_look(color) for reading, color in colors},
        (
            f"Would the guarantee have held? (greedy, m = {workers})",
            "tolerance ε (unit of the sensors)",
            "estimates within ε",
        ),
        bounds=("low", "high"),
    )
    return threshold(figure, 1 - delta, "guaranteed 1 − δ")


def explore(
    model: GaussianModel, m: int, epsilon: float, delta: float, block: int | None = None
) -> Any:
    """Reliability of each of `m` workers; in JupyterLab with sliders for ε, δ and m.

    `block` is the number of keys per block of a `block_model`; if given, it has a slider, too.
    """

    def draw(epsilon: float, delta: float, m: int, block: int | None = None) -> go.Figure:
        inside = float(model.covariance[0, 1])
        known = block_model(n, n // block, model.covariance[0, 0], inside) if block else model
        figure, counts = go.Figure(), []
        for name in added_to(DOCUMENT):
            rng = np.random.default_rng(m)
            assignment = ASSIGN[name](known, m, Requirement(epsilon, delta), rng=rng)
            counts.append(f"{name} {assignment.estimable.sum()}")
            reliability = np.sort(assignment.reliability)[::-1]
            look = LOOKS.get(name, line_look("#56B4E9", "star")) | {"mode": "markers"}
            figure.add_scatter(x=list(range(1, m + 1)), y=reliability, name=name, **look)
        threshold(figure, 1 - delta, "")
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
