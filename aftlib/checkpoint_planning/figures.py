"""Figures of D2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go

from aftlib.checkpoint_planning.experiments import AXES, SPARED
from aftlib.checkpoint_planning.plan import METHODS, CheckpointPlan
from aftlib.workbench.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    line_figure,
    line_look,
    nearest,
    styled,
)

LOOKS = {
    "exactly-once": line_look(RED, "square", "dot"),
    SPARED: line_look(PURPLE, "x", "dot"),
    "no-relaxation": line_look(ORANGE, "triangle-up", "dash"),
    "proposed": line_look(BLUE),
    "adaptive": line_look(GREEN, "diamond", "dashdot"),
}
_STATES = {"checkpointed": GREY, "replayed": BLUE, "estimated": ORANGE}
_TITLES = {"epsilon": "tolerance ε", "delta": "δ", "t_sla_ms": "T_SLA (ms, logarithmic)"}
_LABELS = {"epsilon": "ε", "delta": "δ", "t_sla_ms": "T_SLA (ms)"}
_EXACT, _SAMPLED, _GUARANTEED = "expected", "sampled, 95 % interval", "guaranteed 1 − δ"
_SUCCESS = {
    _GUARANTEED: {"mode": "lines", "line": {"color": "#333", "dash": "dash"}},
    _EXACT: {"mode": "lines", "line": {"color": BLUE}},
    _SAMPLED: {"mode": "markers", "marker": {"color": BLUE, "symbol": "circle-open"}},
}
_PARTS = {
    "full_ms": "replaying all sensors",
    "total_ms": "T_rec: the sum of the parts",
    "rep_ms": "T_rep: replay",
    "res_ms": "T_res: restore, load the gain matrix",
    "est_ms": "T_est: estimate",
}
_TIMES = dict(zip(_PARTS.values(), map(line_look, (RED, GREEN, BLUE, GREY, ORANGE)), strict=True))
_TIMES[_PARTS["full_ms"]] = {"mode": "lines", "line": {"color": RED, "dash": "dash"}}


def three_sensors(cells: pd.DataFrame, times: Sequence[int], failure: int) -> go.Figure:
    """Draw fig. 1's values by step, coloured by their source in a recovery."""
    figure = px.scatter(
        cells.assign(text=cells["value"].map("{:g}".format)), "step", "sensor", "state",
        text="text", symbol="state", color_discrete_map=_STATES,
        symbol_map=dict.fromkeys(_STATES, "square") | {"estimated": "square-open"},
        category_orders={"state": [*_STATES], "sensor": ["X1", "X2", "X3"]},
    )  # fmt: skip
    figure.update_traces(
        marker={"size": 38, "line_width": 3}, textfont={"size": 15, "color": "white"}
    )
    figure.update_traces(textfont_color=ORANGE, selector={"name": "estimated"})
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
    figure.update_yaxes(range=[-1, 3])
    figure.update_xaxes(dtick=1, range=[0.4, max(times) + 0.6])
    return figure.update_layout(hovermode="closest")


def plan(
    plan_window: Callable[[float, float, float, str], CheckpointPlan],
    epsilon: float,
    delta: float,
    t_sla_ms: float,
) -> go.Figure:
    """Draw the sensors replayed after a failure, by its time and the method; marks: checkpoints.

    `plan_window` is called with ε, δ, T_SLA in ms and a method. The figure leaves out a method
    that has no plan, because a recovery takes longer than T_SLA.
    """
    figure = go.Figure()
    for method in (name for name in LOOKS if name in METHODS):
        look = LOOKS[method]
        with suppress(ValueError):
            planned = plan_window(epsilon, delta, t_sla_ms, method)
            sizes = [len(replay.sensors) for replay in planned.replay]
            figure.add_scatter(
                x=planned.times, y=[*sizes, sizes[-1]], mode="lines",
                line=look["line"] | {"shape": "hv"},
                fill="tozeroy" if method == "proposed" else None,
                name=f"{method} ({len(planned.checkpoints)})",
            )  # fmt: skip
            figure.add_scatter(
                x=planned.checkpoints, y=sizes[:-1], mode="markers", marker=look["marker"],
                showlegend=False, name=f"{method}: checkpoint",
                hovertemplate="τ = %{x:,}<extra></extra>",
            )  # fmt: skip
    title = f"One plan (ε = {epsilon:g}, δ = {delta:g}, T_SLA = {t_sla_ms:g} ms)"
    styled(figure, title, "steps since the window began", "sensors |O| replayed on failure")
    return figure.update_layout(hovermode="closest").update_yaxes(rangemode="tozero")


def counts(frame: pd.DataFrame, x: str, delta: float, start: float) -> go.Figure:
    """Draw checkpoints per window along one axis by method, with a slider for the other (fig. 6).

    `frame` is that of `experiments.checkpoint_counts`, `x` "epsilon" or "t_sla_ms". The slider
    begins at `start`.
    """
    rows = _at_delta(frame, delta)
    slider = "t_sla_ms" if x == "epsilon" else "epsilon"
    figure = line_figure(
        rows, x, "checkpoints", "method", LOOKS,
        (f"Checkpoints against {_LABELS[x]} (fig. 6)", _TITLES[x], "checkpoints per window"),
        slider=slider, label=_LABELS[slider], start=start, logarithmic=x == "t_sla_ms",
    )  # fmt: skip
    return figure.update_yaxes(rangemode="tozero")


def success(frame: pd.DataFrame, delta: float, start: float) -> go.Figure:
    """Draw the mean success of plans' checkpoints against ε, with a slider for T_SLA (fig. 7).

    `frame` is that of `experiments.sampled_failures`.
    """
    rows = _at_delta(frame, delta)
    curves = [
        rows[AXES].assign(curve=_GUARANTEED, share=1 - rows["delta"]),
        rows[AXES].assign(curve=_EXACT, share=1 - rows["failed"]),
        rows[AXES].assign(
            curve=_SAMPLED, share=1 - rows["sampled"], low=1 - rows["high"], high=1 - rows["low"]
        ),
    ]
    return line_figure(
        pd.concat(curves, ignore_index=True), "epsilon", "share", "curve", _SUCCESS,
        ("Success against ε (fig. 7)", _TITLES["epsilon"], "share of results within ε"),
        slider="t_sla_ms", label=_LABELS["t_sla_ms"], start=start, bounds=("low", "high"),
    )  # fmt: skip


def recovery_times(times: pd.DataFrame, start: int) -> go.Figure:
    """Draw median recovery times and their parts against |O|, with a slider for n (fig. 5).

    `times` is the frame of `recoveries.recovery_times`.
    """
    median = times.groupby(["n", "sensors"]).median(numeric_only=True).reset_index()
    median["res_ms"] = median["state_ms"] + median["gain_ms"]
    full = median[median["sensors"] == median["n"]].set_index("n")["total_ms"]
    partial = median[median["sensors"] < median["n"]].assign(full_ms=lambda t: t["n"].map(full))
    rows = partial.rename(columns=_PARTS).melt(
        ["n", "sensors"], list(_PARTS.values()), "part", "milliseconds"
    )
    titles = "Recovery time in one process (fig. 5)", "sensors replayed |O|", "milliseconds"
    figure = line_figure(
        rows, "sensors", "milliseconds", "part", _TIMES, titles, slider="n", label="n", start=start
    )
    return figure.update_yaxes(rangemode="tozero")


def _at_delta(frame: pd.DataFrame, delta: float) -> pd.DataFrame:
    """Return the rows at the δ nearest to `delta`."""
    known = sorted(frame["delta"].unique())
    return frame[frame["delta"] == known[nearest(known, delta)]]
