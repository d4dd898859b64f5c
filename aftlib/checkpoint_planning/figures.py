"""Figures of D2."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from aftlib.checkpoint_planning.plan import CheckpointPlan
from aftlib.workbench.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    explorable,
    line_figure,
    line_look,
    named,
    nearest,
    styled,
    threshold,
)

LOOKS = {
    "exactly-once": line_look(RED, "square", "dot"),
    "no-relaxation": line_look(ORANGE, "triangle-up", "dash"),
    "proposed": line_look(BLUE),
    "adaptive": line_look(GREEN, "diamond", "dashdot"),
}
_STATES = {"checkpointed": GREY, "replayed": BLUE, "estimated": ORANGE}
_AXES = {
    "epsilon": ("tolerance ε", "ε"),
    "delta": ("permitted failure probability δ", "δ"),
    "t_sla_ms": ("T_SLA (ms, logarithmic)", "T_SLA (ms)"),
}
_MEASURES = {
    "worst": "worst case of (12)",
    "single": "this failure alone",
    "restored": "checkpoint (no guarantee)",
}
_EXPECTED, _GUARANTEED, _BOUNDS = "expected, worst case", "guaranteed 1 − δ", ("low", "high")
_SUCCESS = {
    _MEASURES["worst"]: line_look(BLUE),
    _MEASURES["single"]: line_look(GREEN, "triangle-up"),
    _MEASURES["restored"]: line_look(GREY, "x"),
}
_PARTS = {
    "res_ms": "T_res: restore, load gain",
    "rep_ms": "T_rep: replay",
    "est_ms": "T_est: estimate",
    "total_ms": "T_rec: their sum",
    "full_ms": "replaying everything",
}
_TIMES = dict(zip(_PARTS.values(), map(line_look, (GREY, BLUE, ORANGE, GREEN, RED)), strict=True))
_TIMES[_PARTS["full_ms"]] |= {"mode": "lines", "line": {"color": RED, "dash": "dash"}}
_PHASES = {
    "python_ms": ("Python, imports", GREY),
    "open_ms": ("opening the state", ORANGE),
    "recovery_ms": ("T_rec in the new process", BLUE),
    "commit_ms": ("commit", GREEN),
    "plan_ms": ("afterwards: planning the rest", RED),
}
HEADINGS = {
    "checkpoint": "mean at the checkpoint",
    "restored": "result after recovery",
    "truth": "true result",
    "charging": "recoveries that pay T_est",
    "deviations": "ε in standard deviations",
    "sensors first": "sensors replayed first",
    "sensors last": "sensors replayed last",
    "time": "checkpoint at step",
    "worst_expected": "worst case, expected",
    "worst": "worst case, measured",
    "worst_low": "95 % interval, low",
    "worst_high": "95 % interval, high",
    "document": "one data set",
    "document_low": "one data set, low",
    "document_high": "one data set, high",
    "below": "success rates below 1 − δ",
    "furthest": "furthest below",
    "n": "sensors n",
    "tuples": "tuples replayed",
    "res_ms": "T_res, ms",
    "rep_ms": "T_rep, ms",
    "est_ms": "T_est, ms",
    "total_ms": "T_rec, ms",
    "solve_ms": "solving, ms",
    "product_ms": "with a stored matrix, ms",
    "fixed_ms": "fixed, ms",
    "per_tuple_ms": "per tuple, ms",
    "in_time": "within T_SLA",
    "median_ms": "median, ms",
    "longest_ms": "longest, ms",
    "python_ms": "start of Python, ms",
    "open_ms": "opening the state, ms",
    "commit_ms": "commit, ms",
    "plan_ms": "planning afterwards, ms",
    "all_ms": "from start to commit, ms",
    "rate": "tuples per second",
    "part": "data",
    "estimated": "share estimated",
    "worst_sensor": "worst sensor",
    "windows": "estimates per sensor",
    "slack": "slack of the theorem",
    "exact": "share of the others that is exact",
}
"""Headings of columns in the tables of notebook 02."""


def three_sensors(cells: pd.DataFrame, times: Sequence[int], failure: int) -> go.Figure:
    """Fig. 1's values by step, coloured by their source in a recovery."""
    figure = go.Figure()
    for state, color in _STATES.items():
        chosen = cells[cells["state"] == state]
        figure.add_scatter(
            x=chosen["step"], y=chosen["sensor"], mode="markers+text", name=state,
            text=chosen["value"].map("{:g}".format), textfont={"color": "white", "size": 15},
            marker={"symbol": "square", "size": 38, "color": color},
            hovertemplate="%{y} at step %{x}: %{text}<extra>" + state + "</extra>",
        )  # fmt: skip
    for time in times[1:-1]:
        figure.add_vline(time + 0.5, line={"color": GREEN, "width": 3})
        figure.add_annotation(
            x=time + 0.5, y=-0.75, text=f"checkpoint τ = {time}", showarrow=False, xshift=8,
            xanchor="left", font={"color": GREEN},
        )  # fmt: skip
    figure.add_annotation(
        x=failure, y=2.75, text=f"failure at t = {failure}", showarrow=False, font={"color": RED}
    )
    styled(figure, "Three sensors, a checkpoint and a failure (fig. 1)", "time step", "", 360)
    named(figure, y="sensor")
    figure.update_yaxes(
        range=[-1, 3], tickvals=[0, 1, 2], categoryorder="array", categoryarray=["X3", "X2", "X1"]
    )
    figure.update_xaxes(dtick=1, range=[0.4, max(times) + 0.6])
    return figure.update_layout(hovermode="closest")


def plan(plans: Mapping[str, CheckpointPlan], title: str) -> go.Figure:
    """Sensors replayed after a failure, by time of the failure and method; markers: checkpoints."""
    figure = go.Figure()
    for method, planned in plans.items():
        look = LOOKS[method]
        x = [t for pair in pairwise(planned.times) for t in pair]
        y = [len(replay.sensors) for replay in planned.replay for _ in (0, 1)]
        figure.add_scatter(
            x=x, y=y, mode="lines", line=look["line"],
            fill="tozeroy" if method == "proposed" else None,
            name=f"{method} ({len(planned.checkpoints)})",
        )  # fmt: skip
        figure.add_scatter(
            x=planned.checkpoints, y=[len(r.sensors) for r in planned.replay[:-1]], mode="markers",
            marker=look["marker"], showlegend=False,
            name=f"{method}: checkpoint", hovertemplate="τ = %{x:,}<extra></extra>",
        )  # fmt: skip
    styled(figure, title, "steps since the window began", "sensors |O| replayed on failure")
    return figure.update_layout(hovermode="closest").update_yaxes(rangemode="tozero")


def explore(
    plan_window: Callable[[float, float, float, str], CheckpointPlan],
    epsilon: float,
    delta: float,
    t_sla_ms: float,
) -> Any:
    """Sensors replayed after a failure; in JupyterLab with sliders for ε, δ and T_SLA.

    `plan_window` is called with ε, δ, T_SLA in ms and a method. The figure leaves out a method
    that has no plan, because a recovery takes longer than T_SLA.
    """

    def draw(epsilon: float, delta: float, t_sla_ms: float) -> go.Figure:
        plans = {}
        for method in LOOKS:
            with suppress(ValueError):
                plans[method] = plan_window(epsilon, delta, t_sla_ms, method)
        title = f"Sensors replayed (ε = {epsilon:g}, δ = {delta:g}, T_SLA = {t_sla_ms:g} ms)"
        return plan(plans, title)

    return explorable(
        draw,
        epsilon=("ε", np.linspace(epsilon / 4, 2 * epsilon, 36).round(4).tolist(), epsilon),
        delta=("δ", [0.01, 0.02, 0.05, 0.1, 0.2], delta),
        t_sla_ms=("T_SLA (ms)", [30, 35, 40, 50, 60, 75, 100, 150, 200, 300], t_sla_ms),
    )


def counts(
    frame: pd.DataFrame, x: str, title: str, fixed: Mapping[str, float], start: float | None = None
) -> go.Figure:
    """Checkpoints per window along one axis by method, with a slider for another axis (fig. 6).

    `frame` is that of `experiments.cases.checkpoint_counts`, `x` "epsilon", "delta" or "t_sla_ms".
    `fixed` holds the value of one other axis; the slider sets the third and begins at `start`, or
    in the middle.
    """
    titles = title, _AXES[x][0], "checkpoints per window"
    figure = _along(frame, x, "checkpoints", "method", LOOKS, titles, fixed=fixed, start=start)
    return figure.update_yaxes(rangemode="tozero")


def success_by_time(
    frame: pd.DataFrame, delta: float, t_sla_ms: float, start: float | None = None
) -> go.Figure:
    """Success at a plan's checkpoints, with a slider for ε (fig. 7); bars are 95 % intervals."""
    chosen = frame[np.isclose(frame["delta"], delta) & np.isclose(frame["t_sla_ms"], t_sla_ms)]
    looks = {name: look | {"mode": "markers"} for name, look in _SUCCESS.items()}
    looks[_EXPECTED] = {"mode": "lines", "line": {"color": BLUE, "dash": "dot"}}
    rows = _by_measure(chosen, [*_AXES, "time"], {_EXPECTED: chosen["worst_expected"]})
    title = f"Success by checkpoint, T_SLA = {t_sla_ms:g} (fig. 7)"
    titles = title, "checkpoint τ from which the window is recovered (steps)", "within ε"
    slider: dict[str, Any] = {"slider": "epsilon", "label": "ε", "start": start, "bounds": _BOUNDS}
    figure = line_figure(rows, "time", "share", "measure", looks, titles, **slider)
    return threshold(figure, 1 - delta, f"1 − δ = {1 - delta:g}")


def success(
    frame: pd.DataFrame, x: str, title: str, fixed: Mapping[str, float], start: float | None = None
) -> go.Figure:
    """Mean success of a plan's checkpoints along one axis, with a slider for another (fig. 7).

    The arguments are those of `counts`.
    """
    mean = frame.groupby(list(_AXES), as_index=False).mean(numeric_only=True)
    looks = _SUCCESS | {_GUARANTEED: {"mode": "lines", "line": {"color": "#333", "dash": "dash"}}}
    rows = _by_measure(mean, list(_AXES), {_GUARANTEED: 1 - mean["delta"]})
    titles = title, _AXES[x][0], "within ε, mean over the plan's checkpoints"
    curves: dict[str, Any] = {"start": start, "bounds": _BOUNDS}
    return _along(rows, x, "share", "measure", looks, titles, fixed=fixed, **curves)


def recovery_times(times: pd.DataFrame, title: str, start: int | None = None) -> go.Figure:
    """Recovery time, its parts, and full replay's time against |O|, with a slider for n (fig. 5).

    `times` has one row for each (n, |O|), as `experiments.costs.fastest` gives.
    """
    full = times[times["sensors"] == times["n"]].set_index("n")["total_ms"]
    part = times[times["sensors"] < times["n"]].assign(full_ms=lambda t: t["n"].map(full))
    rows = part.rename(columns=_PARTS).melt(
        ["n", "sensors"], list(_PARTS.values()), "part", "milliseconds"
    )
    titles = title, "sensors replayed |O|", "milliseconds"
    return line_figure(
        rows, "sensors", "milliseconds", "part", _TIMES, titles, slider="n", label="n", start=start
    ).update_yaxes(rangemode="tozero")


def restarts(frame: pd.DataFrame) -> go.Figure:
    """Median milliseconds of each phase from the new process's start to its next plan."""
    median = frame.groupby("kind")[list(_PHASES)].median()
    figure = go.Figure()
    for phase, (name, color) in _PHASES.items():
        figure.add_bar(
            y=median.index, x=median[phase], name=name, orientation="h", marker={"color": color}
        )
    styled(figure, "From a new process to the recovered interval", "milliseconds", "")
    named(figure, y="process")
    return figure.update_layout(barmode="stack", height=300, hovermode="closest")


def _along(frame: pd.DataFrame, x: str, *curves: Any, fixed: Any, **options: Any) -> go.Figure:
    """Curves along axis `x` at the values nearest to `fixed`, with a slider for the third axis.

    `curves` and `options` are those of `line_figure`.
    """
    for axis, value in fixed.items():
        known = sorted(frame[axis].unique())
        frame = frame[frame[axis] == known[nearest(known, value)]]
    (other,) = set(_AXES) - {x, *fixed}
    options |= {"slider": other, "label": _AXES[other][1], "logarithmic": x == "t_sla_ms"}
    return line_figure(frame, x, *curves, **options)


def _by_measure(
    frame: pd.DataFrame, about: list[str], more: Mapping[str, pd.Series]
) -> pd.DataFrame:
    """One row per point and measure, with its interval; `more` are curves without intervals."""
    curves = [frame[about].assign(measure=name, share=share) for name, share in more.items()]
    for column, name in _MEASURES.items():
        low, high = frame[f"{column}_low"], frame[f"{column}_high"]
        curve = frame[about].assign(measure=name, share=frame[column], low=low, high=high)
        curves.append(curve)
    return pd.concat(curves, ignore_index=True)
