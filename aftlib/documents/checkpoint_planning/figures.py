"""Figures of D2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from aftlib.documents.checkpoint_planning.cases import AXES, UNCHARGED
from aftlib.documents.checkpoint_planning.operator import ReplayQuery
from aftlib.documents.checkpoint_planning.success_rates import (
    BOTH_LEARNED,
    PREDICTED,
    SIGMA_LEARNED,
)
from aftlib.documents.checkpoint_planning.timing import partial_medians
from aftlib.notebook.style import (
    BLUE,
    GREEN,
    GREY,
    LIMIT,
    ORANGE,
    PURPLE,
    RED,
    line_figure,
    line_look,
    nearest,
    styled,
    threshold,
)

LOOKS = {
    "exactly-once": line_look(RED, "square", "dot"),
    UNCHARGED: line_look(PURPLE, "x", "dot"),
    "no-relaxation": line_look(ORANGE, "triangle-up", "dash"),
    "proposed": line_look(BLUE),
    "adaptive": line_look(GREEN, "diamond", "dashdot"),
}
_STATES = {"checkpointed": GREY, "replayed": BLUE, "estimated": ORANGE}
_NAMES = {"epsilon": "ε", "delta": "δ", "t_sla_ms": "T_SLA"}
_TITLES = {
    "epsilon": "tolerance ε, sensor units",
    "delta": "permitted failure probability δ",
    "t_sla_ms": "T_SLA (ms, logarithmic)",
}
_GAINS = {"total_ms": "gain prepared with the plan", "solved_ms": "(6) solved at recovery"}
_EXACT = "expected"
_SAMPLED = "sampled, 95 % interval"
_GUARANTEED = "guaranteed 1 − δ"
_SUCCESS = {
    _GUARANTEED: {"mode": "lines", "line": LIMIT},
    _EXACT: {"mode": "lines", "line": {"color": BLUE}},
    _SAMPLED: {"mode": "markers", "marker": {"color": BLUE, "symbol": "circle-open"}},
}
_TIMES = {
    "replaying all sensors": ("full_ms", line_look(RED, "square", "dash")),
    "T_rec: the sum of the parts": ("total_ms", line_look(GREEN, "diamond")),
    "T_rep: replay": ("rep_ms", line_look(BLUE, "circle", "dot")),
    "T_res: restore, load the gain matrix": ("res_ms", line_look(GREY)),
    "T_est: estimate": ("est_ms", line_look(ORANGE)),
}


def three_sensors(cells: pd.DataFrame, times: Sequence[int], failure: int) -> go.Figure:
    """Draw fig. 1's values by step, coloured by their source in a recovery."""
    figure = px.scatter(
        cells,
        x="step",
        y="sensor",
        color="state",
        text=cells["value"].map("{:g}".format),
        color_discrete_map=_STATES,
        category_orders={"state": [*_STATES], "sensor": ["X1", "X2", "X3"]},
    )
    look = {"size": 38, "symbol": "square"}
    figure.update_traces(marker=look, textfont={"size": 15, "color": "white"})
    black = {"textfont_color": "black"}  # white on orange has too little contrast
    figure.update_traces(black, selector={"name": "estimated"})
    for time in times[1:-1]:
        label = {"annotation_text": f"checkpoint τ = {time}", "annotation_position": "bottom right"}
        figure.add_vline(time + 0.5, line_color=GREEN, **label)
    line = {"color": RED, "dash": "dot"}
    text = f"failure at t = {failure}"
    figure.add_vline(failure, line=line, layer="below", annotation_text=text)
    title = "Three sensors, a checkpoint and a failure (fig. 1)"
    styled(figure, title, "time step", "", 360, "closest")
    return figure.update_xaxes(dtick=1).update_yaxes(range=[-1, 3])


def plan(queries: Mapping[str, ReplayQuery]) -> go.Figure:
    """Draw the sensors replayed after a failure, by its time and the method; marks: checkpoints."""
    rows = []
    for method, query in queries.items():
        plan = query.first_plan
        sizes = [len(each.sensors) for each in (*plan.replay, plan.replay[-1])]
        rows += [(method, tau, size) for tau, size in zip(plan.times, sizes, strict=True)]
    frame = pd.DataFrame(rows, columns=["method", "step", "sensors"])
    titles = "Replayed sensors", "steps since the window began", "sensors |O| replayed on failure"
    figure = line_figure(frame, "step", "sensors", "method", LOOKS, titles)
    figure.update_traces(line_shape="hv").update_yaxes(rangemode="tozero")
    return figure.update_layout(hovermode="closest")


def counts(frame: pd.DataFrame, x: str, point: Mapping[str, float]) -> go.Figure:
    """Draw checkpoints per window along one axis by method, with a slider for another (fig. 6).

    `frame` is that of `cases.checkpoint_counts`, `x` one of the `AXES`. The slider, of T_SLA
    or, if `x` is that, of ε, begins at the value of `point`, which also has that of the third axis.
    """
    titles = (f"Checkpoints against {_NAMES[x]} (fig. 6)", _TITLES[x], "checkpoints per window")
    figure = _figure_along(x, point, frame, "checkpoints", "method", LOOKS, titles)
    return figure.update_yaxes(rangemode="tozero")


def success(frame: pd.DataFrame, x: str, point: Mapping[str, float]) -> go.Figure:
    """Draw the mean success of plans' checkpoints along one axis, with a slider (fig. 7).

    `frame` is that of `success_rates.sampled_failures`; `x` and `point` are as for `counts`.
    """
    rows = frame[AXES]
    sampled = rows.assign(low=1 - frame["high"], high=1 - frame["low"])
    curves = [
        rows.assign(curve=_GUARANTEED, share=1 - frame["delta"]),
        rows.assign(curve=_EXACT, share=1 - frame["failed"]),
        sampled.assign(curve=_SAMPLED, share=1 - frame["sampled"]),
    ]
    titles = (f"Success against {_NAMES[x]} (fig. 7)", _TITLES[x], "share of results within ε")
    every = pd.concat(curves, ignore_index=True)
    return _figure_along(x, point, every, "share", "curve", _SUCCESS, titles, ("low", "high"))


def _figure_along(
    x: str,
    point: Mapping[str, float],
    frame: pd.DataFrame,
    y: str,
    curve: str,
    looks: Mapping[str, Mapping[str, Any]],
    titles: tuple[str, str, str],
    bounds: tuple[str, str] | None = None,
) -> go.Figure:
    """Draw curves along one axis of the grid; a slider has another, and the third is fixed."""
    slider = "t_sla_ms" if x == "epsilon" else "epsilon"
    (fixed,) = set(AXES) - {x, slider}
    known = sorted(frame[fixed].unique())
    return line_figure(
        frame[frame[fixed] == known[nearest(known, point[fixed])]],
        x,
        y,
        curve,
        looks,
        titles,
        slider=slider,
        label="T_SLA (ms)" if slider == "t_sla_ms" else _NAMES[slider],
        start=point[slider],
        bounds=bounds,
        logarithmic=x == "t_sla_ms",
    )


def recovery_times(times: pd.DataFrame, start: int) -> go.Figure:
    """Draw median recovery times and their parts against |O|, with a slider for n (fig. 5).

    `times` is the frame of `timing.recovery_times`; the gain is prepared.
    """
    partial = partial_medians(times)
    partial["res_ms"] = partial["state_ms"] + partial["gain_ms"]
    columns = {column: name for name, (column, _) in _TIMES.items()}
    looks = {name: look for name, (_, look) in _TIMES.items()}
    rows = partial.rename(columns=columns).melt(["n", "sensors"], [*looks], "part", "milliseconds")
    titles = "Recovery time in one thread (fig. 5)", "sensors replayed |O|", "milliseconds"
    figure = line_figure(
        rows, "sensors", "milliseconds", "part", looks, titles, slider="n", label="n", start=start
    )
    legend = {"x": 0, "xanchor": "left"}  # at the right its first entry would be cut
    return figure.update_yaxes(rangemode="tozero").update_layout(legend=legend)


def solving_times(times: pd.DataFrame) -> go.Figure:
    """Draw the median of T_est, (6) solved at recovery, against n, by |O|/n (fig. 5)."""
    partial = partial_medians(times)
    rows = partial.assign(curve=partial["share"].map("|O| = {:.1f} n".format))
    titles = (
        "T_est against n, (6) solved at recovery (fig. 5)",
        "sensors n (logarithmic)",
        "T_est, ms (logarithmic)",
    )
    figure = line_figure(rows, "n", "solve_ms", "curve", {}, titles, logarithmic=True)
    return figure.update_yaxes(type="log", dtick=1)


def recovery_surface(times: pd.DataFrame) -> go.Figure:
    """Draw T_rec over a full replay's time for each n and |O|/n, gain prepared or (6) solved."""
    partial = partial_medians(times)
    figure = make_subplots(1, 2, shared_yaxes=True, subplot_titles=[*_GAINS.values()])
    for column, part in enumerate(_GAINS, start=1):
        ratios = partial.assign(ratio=partial[part] / partial["full_ms"])
        wide = ratios.pivot_table(index="n", columns="share", values="ratio")
        figure.add_heatmap(
            x=[f"{share:g}" for share in wide.columns],
            y=[f"{n:,}" for n in wide.index],
            z=wide.to_numpy().tolist(),
            texttemplate="%{z:.2f}",
            colorscale=[[0, BLUE], [0.5, "#FFFFFF"], [1, RED]],
            zmin=0,
            zmax=2,
            showscale=False,
            hovertemplate="n = %{y}<br>|O|/n = %{x}<br>%{z:.3f} × full replay<extra></extra>",
            row=1,
            col=column,
        )
    styled(figure, "T_rec over a full replay's time", "share replayed, |O|/n", "", 330, "closest")
    return figure.update_yaxes(title_text="sensors n", col=1)


def throughput(rates: pd.DataFrame) -> go.Figure:
    """Draw the throughput of each plan: the median of its windows, and their range."""
    millions = rates.assign(rate=rates["rate"] / 1e6).groupby("plan", sort=False)
    rate = millions["rate"]
    median = rate.median()
    names = [
        f"{plan}, {taken} checkpoints" for plan, taken in millions["checkpoints"].first().items()
    ]
    bounds = {"array": rate.max() - median, "arrayminus": median - rate.min()}
    colors = [LOOKS[plan]["marker"]["color"] for plan in median.index]
    figure = go.Figure()
    figure.add_bar(x=median, y=names, orientation="h", marker_color=colors, error_x=bounds)
    title = "Throughput while nothing fails"
    styled(figure, title, "million samples per second", "", 260, "closest")
    return figure.update_xaxes(rangemode="tozero").update_yaxes(automargin=True)


def learned_success(curve: pd.DataFrame, delta: float) -> go.Figure:
    """Draw the success of plans against the rows that their models are learned from.

    `curve` is the frame of `success_rates.learning_curve`; the bars are the range over turns.
    """
    by = curve.groupby(["rows", "curve"])["success"]
    frame = by.mean().reset_index()
    frame["low"] = by.min().to_numpy()
    frame["high"] = by.max().to_numpy()
    titles = (
        "Success of plans with learned models",
        "rows that the model is learned from (logarithmic)",
        "share of estimates within ε",
    )
    looks = {
        BOTH_LEARNED: line_look(RED, "square"),
        SIGMA_LEARNED: line_look(BLUE),
        PREDICTED: line_look(GREY, "x", "dash"),
    }
    figure = line_figure(
        frame, "rows", "success", "curve", looks, titles, bounds=("low", "high"), logarithmic=True
    )
    return threshold(figure, 1 - delta, f"1 − δ = {1 - delta:g}", "bottom right")
