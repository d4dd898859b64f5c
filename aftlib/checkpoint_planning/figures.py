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
from aftlib.reports.style import BLUE, GREEN, GREY, ORANGE, RED, explorable, styled, with_slider

LOOK: Mapping[str, dict] = {
    "exactly-once": {"color": RED, "symbol": "square", "dash": "dot"},
    "no-relaxation": {"color": ORANGE, "symbol": "triangle-up", "dash": "dash"},
    "proposed": {"color": BLUE, "symbol": "circle", "dash": "solid"},
    "adaptive": {"color": GREEN, "symbol": "diamond", "dash": "dashdot"},
}
_STATES = {"checkpointed": GREY, "replayed": BLUE, "estimated": ORANGE}
_AXES = {
    "epsilon": ("tolerance ε", "ε"),
    "delta": ("permitted failure probability δ", "δ"),
    "t_sla_ms": ("T_SLA (ms, logarithmic)", "T_SLA (ms)"),
}
_MEASURES: Mapping[str, tuple[str, str, str]] = {
    "worst": ("worst case of (12)", BLUE, "circle"),
    "single": ("this failure alone", GREEN, "triangle-up"),
    "restored": ("checkpoint (no promise)", GREY, "x"),
}
_NO_BARS: dict[str, Any] = {"error_y": {"array": None}}
_PARTS = {
    "res_ms": ("T_res: restore, load gain", GREY),
    "rep_ms": ("T_rep: replay", BLUE),
    "est_ms": ("T_est: estimate", ORANGE),
}
_PHASES = {
    "python_ms": ("Python, imports", GREY),
    "open_ms": ("opening the state", ORANGE),
    "recovery_ms": ("T_rec, cold", BLUE),
    "commit_ms": ("commit", GREEN),
    "plan_ms": ("afterwards: planning anew", RED),
}


def three_sensors(cells: pd.DataFrame, times: Sequence[int], failure: int) -> go.Figure:
    """Fig. 1's values by step, coloured by where a recovery takes them from."""
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
    figure.update_yaxes(
        range=[-1, 3], tickvals=[0, 1, 2], categoryorder="array", categoryarray=["X3", "X2", "X1"]
    )
    figure.update_xaxes(dtick=1, range=[0.4, max(times) + 0.6])
    return figure.update_layout(hovermode="closest")


def plan(plans: Mapping[str, CheckpointPlan], title: str) -> go.Figure:
    """Sensors that a failure makes replay, by its time, for each method; steps are checkpoints."""
    figure = go.Figure()
    for method, planned in plans.items():
        look = LOOK[method]
        x = [t for pair in pairwise(planned.times) for t in pair]
        y = [len(replay.sensors) for replay in planned.replay for _ in (0, 1)]
        figure.add_scatter(
            x=x, y=y, mode="lines", line={"color": look["color"], "dash": look["dash"]},
            fill="tozeroy" if method == "proposed" else None,
            name=f"{method} ({len(planned.checkpoints)})",
        )  # fmt: skip
        figure.add_scatter(
            x=planned.checkpoints, y=[len(r.sensors) for r in planned.replay[:-1]], mode="markers",
            marker={"color": look["color"], "symbol": look["symbol"], "size": 8}, showlegend=False,
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
    """What a failure replays, by its time; in JupyterLab below sliders for ε, δ and T_SLA.

    `plan_window` is called with ε, δ, T_SLA in ms and a method. A method that has no plan for a
    T_SLA, because one recovery takes longer, is missing in the figure.
    """

    def draw(epsilon: float, delta: float, t_sla_ms: float) -> go.Figure:
        plans = {}
        for method in LOOK:
            with suppress(ValueError):
                plans[method] = plan_window(epsilon, delta, t_sla_ms, method)
        title = f"What is replayed when (ε = {epsilon:g}, δ = {delta:g}, T_SLA = {t_sla_ms:g} ms)"
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
    """Checkpoints a window along one axis, one curve a method, a slider for another (fig. 6).

    `frame` is what `experiments.checkpoint_counts` gave, `x` "epsilon", "delta" or "t_sla_ms".
    `fixed` holds the value of one other axis; the slider takes the third and begins at `start`, or
    in the middle.
    """
    chosen, other = _reduced(frame, x, fixed)
    frames: dict[Any, list[dict]] = {}
    for stop, rows in chosen.sort_values(x).groupby(other):
        each = [rows[rows["method"] == method] for method in LOOK]
        frames[stop] = [{"x": r[x].tolist(), "y": r["checkpoints"].tolist()} for r in each]
    looks: list[dict] = [
        dict(
            mode="lines+markers", name=method, marker={"symbol": look["symbol"], "size": 9},
            line={"color": look["color"], "dash": look["dash"], "width": 2.5},
        )
        for method, look in LOOK.items()
    ]  # fmt: skip
    titles = title, _AXES[x][0], "checkpoints a window"
    figure = _with_curves(frames, looks, titles, _AXES[other][1], start)
    return _scaled(figure, chosen, x).update_yaxes(rangemode="tozero")


def success_by_time(
    frame: pd.DataFrame, delta: float, t_sla_ms: float, start: float | None = None
) -> go.Figure:
    """Success at every checkpoint of a plan, a slider for ε (fig. 7); bars are 95 % intervals."""
    chosen = frame[np.isclose(frame["delta"], delta) & np.isclose(frame["t_sla_ms"], t_sla_ms)]
    frames: dict[Any, list[dict]] = {}
    for stop, rows in chosen.sort_values("time").groupby("epsilon"):
        expected: dict = {"x": rows["time"].tolist(), "y": rows["worst_expected"].tolist()}
        frames[stop] = [*_success_curves(rows, "time"), expected | _NO_BARS]
    looks: list[dict] = [
        {"mode": "markers", "name": name, "marker": {"color": color, "symbol": symbol, "size": 9}}
        for name, color, symbol in _MEASURES.values()
    ]
    dotted = {"color": BLUE, "dash": "dot"}
    looks.append({"mode": "lines", "name": "expected, worst case", "line": dotted})
    title = f"Success by checkpoint, T_SLA = {t_sla_ms:g} (fig. 7)"
    titles = title, "checkpoint τ from which it is recovered (steps)", "within ε"
    figure = _with_curves(frames, looks, titles, "ε", start)
    line, text = {"color": "#333", "dash": "dash"}, f"1 − δ = {1 - delta:g}"
    return figure.add_hline(1 - delta, line=line, annotation_text=text)


def success(
    frame: pd.DataFrame, x: str, title: str, fixed: Mapping[str, float], start: float | None = None
) -> go.Figure:
    """Success along one axis, all checkpoints of a plan averaged, a slider for another (fig. 7).

    The arguments are those of `counts`.
    """
    columns = [f"{m}{end}" for m in _MEASURES for end in ("", "_low", "_high")]
    mean = frame.groupby(list(_AXES), as_index=False)[[*columns, "worst_expected"]].mean()
    chosen, other = _reduced(mean, x, fixed)
    frames: dict[Any, list[dict]] = {}
    for stop, rows in chosen.sort_values(x).groupby(other):
        promised: dict = {"x": rows[x].tolist(), "y": (1 - rows["delta"]).tolist()}
        frames[stop] = [*_success_curves(rows, x), promised | _NO_BARS]
    looks: list[dict] = [
        dict(mode="lines+markers", name=name, marker={"color": color, "symbol": symbol, "size": 8})
        for name, color, symbol in _MEASURES.values()
    ]
    dashed = {"color": "#333", "dash": "dash"}
    looks.append({"mode": "lines", "name": "promised 1 − δ", "line": dashed})
    titles = title, _AXES[x][0], "within ε, mean over the plan's checkpoints"
    return _scaled(_with_curves(frames, looks, titles, _AXES[other][1], start), chosen, x)


def recovery_times(times: pd.DataFrame, title: str, start: int | None = None) -> go.Figure:
    """Parts of the recovery time against |O|, a slider for n, full replay beside (fig. 5).

    `times` has one row for each (n, |O|), as `experiments.fastest` gives.
    """
    parts = [*_PARTS, "total_ms"]
    frames: dict[Any, list[dict]] = {}
    for n, rows in times.sort_values("sensors").groupby("n"):
        part, full = rows[rows["sensors"] < n], rows[rows["sensors"] == n]["total_ms"].item()
        x = part["sensors"].tolist()
        curves = [{"x": x, "y": part[name].tolist()} for name in parts]
        frames[n] = [*curves, {"x": x, "y": [full] * len(x)}]
    looks: list[dict] = [
        {"mode": "lines+markers", "name": name, "line": {"color": color}}
        for name, color in [*_PARTS.values(), ("T_rec: their sum", GREEN)]
    ]
    dashed = {"color": RED, "dash": "dash"}
    looks.append({"mode": "lines", "name": "replaying everything", "line": dashed})
    titles = title, "sensors replayed |O|", "milliseconds"
    return _with_curves(frames, looks, titles, "n", start).update_yaxes(rangemode="tozero")


def fitted(points: pd.DataFrame, reserve: float, title: str) -> go.Figure:
    """Measured recoveries, the line through them, and the reserve above it."""
    line = points.sort_values("tuples")
    figure = go.Figure()
    figure.add_scatter(
        x=points["tuples"], y=points["total_ms"], mode="markers", name="measured recovery",
        marker={"color": BLUE, "size": 7, "opacity": 0.6},
    )  # fmt: skip
    for name, times, dash in (("fitted", 1, "solid"), ("with reserve", reserve, "dash")):
        figure.add_scatter(
            x=line["tuples"], y=times * line["fitted_ms"], mode="lines", name=name,
            line={"color": ORANGE, "dash": dash},
        )  # fmt: skip
    styled(figure, title, "tuples replayed |o|", "T_rec (ms)").update_yaxes(rangemode="tozero")
    return figure.update_layout(hovermode="closest")


def t_sla(recoveries: pd.DataFrame) -> go.Figure:
    """Every recovery's T_rec beside the T_SLA that it was planned for."""
    figure = go.Figure()
    for t_sla_ms, rows in recoveries.groupby("t_sla_ms"):
        figure.add_box(
            y=rows["total_ms"], name=f"{t_sla_ms:.0f} ms", boxpoints="all", jitter=0.6,
            pointpos=0, marker={"color": BLUE, "size": 4, "opacity": 0.6}, showlegend=False,
        )  # fmt: skip
    stops = sorted(recoveries["t_sla_ms"].unique())
    figure.add_scatter(
        x=[f"{s:.0f} ms" for s in stops], y=stops, mode="markers", name="T_SLA",
        marker={"symbol": "line-ew-open", "size": 70, "color": RED, "line": {"width": 3}},
    )  # fmt: skip
    title = "Recoveries, one by one, against the T_SLA they were planned for"
    styled(figure, title, "T_SLA", "T_rec (ms)").update_yaxes(rangemode="tozero")
    return figure.update_layout(hovermode="closest")


def restarts(frame: pd.DataFrame) -> go.Figure:
    """Median milliseconds of each phase from the new process's start to its next plan."""
    median = frame.groupby("kind")[list(_PHASES)].median()
    figure = go.Figure()
    for phase, (name, color) in _PHASES.items():
        figure.add_bar(
            y=median.index, x=median[phase], name=name, orientation="h", marker={"color": color}
        )
    styled(figure, "From a new process to the recovered interval", "milliseconds", "")
    return figure.update_layout(barmode="stack", height=300, hovermode="closest")


def promises(frame: pd.DataFrame, delta: float, tau: int, over: int = 40) -> go.Figure:
    """Shares of the last windows lost after τ: estimated, and of those within ε, for each way."""
    figure = go.Figure()
    colors = {"guard": BLUE, "Σ/L": ORANGE}
    for way, rows in frame[frame["tau"] == tau].groupby("way"):
        each = rows.assign(wrong=rows["wrong"] & rows["estimated"]).groupby("window")
        sums = each[["estimated", "wrong"]].sum().rolling(over, min_periods=1).sum()
        estimated = sums["estimated"] / each.size().rolling(over, min_periods=1).sum()
        within = 1 - sums["wrong"] / sums["estimated"].where(sums["estimated"] > 0)
        for name, y, dash in (("within ε", within, "solid"), ("estimated", estimated, "dot")):
            figure.add_scatter(
                x=y.index,
                y=y,
                name=f"{way}: {name}",
                line={"color": colors[str(way)], "dash": dash},
            )
    line, text = {"color": "#333", "dash": "dash"}, f"1 − δ = {1 - delta:g}"
    figure.add_hline(1 - delta, line=line, annotation_text=text, annotation_position="bottom right")
    title = f"Losing all that follows a checkpoint at τ = {tau}"
    return styled(figure, title, "window", f"share, last {over} windows")


def guarded_plans(plans: pd.DataFrame) -> go.Figure:
    """Checkpoints of each window's plan, and the most sensors that a failure makes replay."""
    figure = go.Figure()
    for column, color in (("checkpoints", BLUE), ("sensors", ORANGE)):
        figure.add_scatter(
            x=plans["window"], y=plans[column], name=column,
            line={"color": color, "shape": "hv"},
        )  # fmt: skip
    title = "The plan follows the accounts: checkpoints, and sensors replayed at most"
    most = int(plans[["checkpoints", "sensors"]].to_numpy().max())
    figure = styled(figure, title, "window", "number", 360)
    return figure.update_yaxes(rangemode="tozero", dtick=max(1, most // 6))


def _reduced(frame: pd.DataFrame, x: str, fixed: Mapping[str, float]) -> tuple[pd.DataFrame, str]:
    """Rows nearest to the fixed axes' values, and the axis that is left for the slider."""
    for axis, value in fixed.items():
        known = np.sort(frame[axis].unique())
        frame = frame[frame[axis] == known[_nearest(known, value)]]
    (other,) = set(_AXES) - {x, *fixed}
    return frame, other


def _nearest(stops: Sequence[float] | np.ndarray, value: float | None) -> int:
    if value is None:
        return len(stops) // 2
    return int(np.abs(np.asarray(stops, dtype=float) - value).argmin())


def _with_curves(
    frames: Mapping[Any, Sequence[dict]],
    looks: Sequence[dict],
    titles: tuple[str, str, str],
    label: str,
    start: float | None,
) -> go.Figure:
    """A curve a look, and a slider that exchanges the data of all of them."""
    stops = list(frames)
    active = _nearest(stops, start)
    figure = go.Figure()
    for look, data in zip(looks, frames[stops[active]], strict=True):
        figure.add_scatter(**look, **data)
    named = {f"{stop:,.12g}": data for stop, data in frames.items()}
    return with_slider(styled(figure, *titles), label, named, active)


def _success_curves(rows: pd.DataFrame, x: str) -> list[dict]:
    """Each measure with its interval."""
    curves = []
    for measure in _MEASURES:
        up, down = rows[f"{measure}_high"] - rows[measure], rows[measure] - rows[f"{measure}_low"]
        error = {"array": up.tolist(), "arrayminus": down.tolist(), "thickness": 1}
        curves.append({"x": rows[x].tolist(), "y": rows[measure].tolist(), "error_y": error})
    return curves


def _scaled(figure: go.Figure, frame: pd.DataFrame, x: str) -> go.Figure:
    if x == "t_sla_ms":
        ticks = sorted(frame[x].unique())
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{v:g}" for v in ticks])
    return figure
