"""Figures of D1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from aftlib.approximately_once.experiments import CHANCE, RANDOM
from aftlib.core.gaussian import GaussianModel
from aftlib.workbench.style import (
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
WORKERS = "workers m (logarithmic)"


def densities(model: GaussianModel, observed: float, epsilon: float) -> go.Figure:
    """Density of the first sensor and its posterior given the second, with ±ε (figs 4–6)."""
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
    title = f"{first} before and after {second} = {observed:g} is known (figs 4–6)"
    return styled(figure, title, first, "probability density")


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
    """Estimable workers of the document's methods over m (fig. 10), with a slider for ε."""
    shown = grid[~grid["method"].isin([RANDOM, CHANCE])]
    return _over_workers(shown, "estimable", (title, WORKERS, "estimable workers"), start)


def behind_h_best(grid: pd.DataFrame, title: str, start: float) -> go.Figure:
    """Estimable workers that h-best has more, over m, with a slider for ε; means over draws."""
    best = grid[grid["method"] == "h-best"][["workers", "epsilon", "estimable"]]
    others = grid[~grid["method"].isin(["h-best", "h-worst"])]
    both = others.merge(best, on=["workers", "epsilon"], suffixes=("", "_of_best"))
    behind = both.assign(behind=both["estimable_of_best"] - both["estimable"])
    titles = title, WORKERS, "estimable workers fewer than h-best"
    return _over_workers(behind, "behind", titles, start)


def error_rates(grid: pd.DataFrame, title: str, start: float, delta: float) -> go.Figure:
    """Error rates of greedy and h-best over m (fig. 12): lines by formula, marks sampled."""
    grid = grid[grid["method"].isin(["greedy", "h-best"])]
    half = 1.96 * grid["error"]
    sampled = grid.assign(
        rate=grid["sampled"],
        low=grid["sampled"] - half,
        high=grid["sampled"] + half,
        method=grid["method"] + ", sampled",
    )
    looks = {name: LOOKS[name] | {"mode": "lines"} for name in ("greedy", "h-best")}
    looks |= {f"{name}, sampled": look | {"mode": "markers"} for name, look in LOOKS.items()}
    both = pd.concat([grid.assign(low=np.nan, high=np.nan), sampled])
    titles = title, WORKERS, "error rate (9)"
    figure = _over_workers(both, "rate", titles, start, looks, ("low", "high"))
    threshold(figure, delta, f"δ = {delta:g}", "top left")
    # the axis need not begin at zero: only the positions relative to δ matter
    return figure.update_yaxes(rangemode="normal", autorangeoptions={"include": [delta]})


def _over_workers(
    rows: pd.DataFrame,
    y: str,
    titles: tuple[str, str, str],
    start: float,
    looks: dict[str, dict[str, Any]] = LOOKS,
    bounds: tuple[str, str] | None = None,
) -> go.Figure:
    """One line per method over m, with a slider for ε that begins near `start`."""
    means = rows.groupby(["method", "workers", "epsilon"], as_index=False).mean(numeric_only=True)
    return line_figure(
        means, "workers", y, "method", looks, titles,
        slider="epsilon", label="ε", start=start, bounds=bounds, logarithmic=True,
    )  # fmt: skip
