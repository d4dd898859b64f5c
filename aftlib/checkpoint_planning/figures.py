"""Figures of D2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go

from aftlib.checkpoint_planning.experiments import AXES, SPARED
from aftlib.checkpoint_planning.operator import ReplayQuery
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
_TIMES = {
    "replaying all sensors": {"mode": "lines", "line": {"color": RED, "dash": "dash"}},
    "T_rec: the sum of the parts": line_look(GREEN),
    "T_rep: replay": line_look(BLUE),
    "T_res: restore, load the gain matrix": line_look(GREY),
    "T_est: estimate": line_look(ORANGE),
}


def three_sensors(cells: pd.DataFrame, times: Sequence[int], failure: int) -> go.Figure:
    """Draw fig. 1's values by step, coloured by their source in a recovery."""
    figure = px.scatter(
        cells, "step", "sensor", "state", text=cells["value"].map("{:g}".format),
        color_discrete_map=_STATES,
        category_orders={"state": [*_STATES], "sensor": ["X1", "X2", "X3"]},
    )  # fmt: skip
    look = {"size": 38, "symbol": "square"}
    figure.update_traces(marker=look, textfont={"size": 15, "color": "white"})
    for time in times[1:-1]:
        label = {"annotation_text": f"checkpoint τ = {time}", "annotation_position": "bottom right"}
        figure.add_vline(time + 0.5, line_color=GREEN, **label)
    line, text = {"color": RED, "dash": "dot"}, f"failure at t = {failure}"
    figure.add_vline(failure, line=line, layer="below", annotation_text=text)
    styled(figure, "Three sensors, a checkpoint and a failure (fig. 1)", "time step", "", 360)
    figure.update_xaxes(dtick=1).update_yaxes(range=[-1, 3])
    return figure.update_layout(hovermode="closest")


def plan(queries: Mapping[str, ReplayQuery]) -> go.Figure:
    """Draw the sensors replayed after a failure, by its time and the method; marks: checkpoints."""
    rows = []
    for method, query in queries.items():
        times, replay = query.first_plan.times, query.first_plan.replay
        sizes = [len(each.sensors) for each in (*replay, replay[-1])]
        rows += [(method, tau, size) for tau, size in zip(times, sizes, strict=True)]
    frame = pd.DataFrame(rows, columns=["method", "step", "sensors"])
    titles = "Replayed sensors", "steps since the window began", "sensors |O| replayed on failure"
    figure = line_figure(frame, "step", "sensors", "method", LOOKS, titles)
    figure.update_traces(line_shape="hv").update_yaxes(rangemode="tozero")
    return figure.update_layout(hovermode="closest")


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
    full = median[median["sensors"] == median["n"]].set_index("n")["total_ms"]
    median["full_ms"] = median["n"].map(full)
    median["res_ms"] = median["state_ms"] + median["gain_ms"]
    parts = dict(zip(["full_ms", "total_ms", "rep_ms", "res_ms", "est_ms"], _TIMES, strict=True))
    partial = median[median["sensors"] < median["n"]].rename(columns=parts)
    rows = partial.melt(["n", "sensors"], [*_TIMES], "part", "milliseconds")
    titles = "Recovery time in one process (fig. 5)", "sensors replayed |O|", "milliseconds"
    figure = line_figure(
        rows, "sensors", "milliseconds", "part", _TIMES, titles, slider="n", label="n", start=start
    )
    return figure.update_yaxes(rangemode="tozero")


def _at_delta(frame: pd.DataFrame, delta: float) -> pd.DataFrame:
    """Return the rows at the δ nearest to `delta`."""
    known = sorted(frame["delta"].unique())
    return frame[frame["delta"] == known[nearest(known, delta)]]
