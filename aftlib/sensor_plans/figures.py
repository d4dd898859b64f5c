"""Figures, tables and sentences of a plan; names from a user's file are escaped for HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from IPython.display import Markdown
from pandas.io.formats.style import Styler
from plotly.subplots import make_subplots

from aftlib.sensor_plans.backtest import ALWAYS, BASELINE, GUARD, HINDSIGHT, LINEAR
from aftlib.workbench.style import BLUE, GREEN, GREY, HEIGHT, ORANGE, RED, styled

LOOK = {
    GUARD: (BLUE, "circle"),
    BASELINE: (RED, "x"),
    HINDSIGHT: (RED, "x-open"),
    ALWAYS: (GREEN, "triangle-up"),
    LINEAR: (GREY, "square"),
}
GUARANTEE = {"color": RED, "dash": "dash"}
MOST, LISTED = 60, 200
"""Most sensors in a figure, and in a table."""


def facts(plan: Mapping[str, Any]) -> Markdown:
    """What was read, and the warnings to see before a plan is trusted."""
    data, cautions = plan["data"], plan["cautions"] or ["No warnings."]
    read = "; ".join(map(_plain, data["read"]))
    lines = [f"**{_plain(data['name'])}** — {read}.", "", *(f"- {_plain(c)}" for c in cautions)]
    return Markdown("\n".join(lines))


def result(plan: Mapping[str, Any]) -> Markdown:
    """The plan's answer in three sentences."""
    test, least = plan["backtest"], 1 - plan["question"]["delta"]
    text = f"{test['declared_recoverable']:.1%} of the losses were certified beforehand"
    if test["within_epsilon"] is not None:
        low, high = test["interval"]
        text += f", of these {test['within_epsilon']:.1%} [{low:.1%}, {high:.1%}] within ε"
    text += f" (guaranteed: {least:.0%})."
    if plan["worth"] is not None:
        text += f" Take {plan['worth']['recommended']}. {plan['worth']['reason']}"
    elif plan["pays_below"]:
        text += (
            f" Estimating pays below a read rate of {plan['pays_below']:.3g} samples per second."
        )
    return Markdown(f"**{text}**")


def outage(plan: Mapping[str, Any]) -> go.Figure:
    """One outage of the user's own sensors: the truth, and estimates with their half-widths."""
    shown = plan["outage"]
    names = [escape(sensor["name"]) for sensor in shown["sensors"]]
    figure = make_subplots(rows=len(names), shared_xaxes=True, subplot_titles=names)
    for row, sensor in enumerate(shown["sensors"], 1):
        place: dict[str, Any] = {"row": row, "col": 1, "showlegend": row == 1}
        line = {"color": GREY}
        figure.add_scatter(x=shown["times"], y=sensor["truth"], name="truth", line=line, **place)
        colors = [BLUE if certified else ORANGE for certified in sensor["certified"]]
        figure.add_scatter(
            x=shown["lost"],
            y=sensor["estimate"],
            error_y={"array": sensor["half_width"]},
            name="estimate (blue: certified, orange: not)",
            mode="markers",
            marker={"color": colors, "symbol": "circle-open", "size": 9},
            **place,
        )
    title = f"An outage of machine {escape(plan['machines'][shown['machine']]['name'])}"
    styled(figure, title, "", "window's result", height=160 + 150 * len(names))
    figure.update_layout(legend_y=1.12)  # above the first panel's name
    return figure.update_xaxes(title_text="start of the window", row=len(names), col=1)


def guarantee(plan: Mapping[str, Any]) -> go.Figure:
    """Share certified against share within ε, for every method; dashed: the guarantee."""
    figure = go.Figure()
    for line in plan["compared"]:
        if (within := line["within"]) is None:
            continue
        color, symbol = LOOK[line["method"]]
        low, high = line["interval"] or (within, within)
        figure.add_scatter(
            x=[line["declared"]],
            y=[within],
            error_y={"array": [high - within], "arrayminus": [within - low]},
            name=line["method"],
            mode="markers",
            marker={"color": color, "symbol": symbol, "size": 12},
        )
    figure.add_hline(1 - plan["question"]["delta"], line=GUARANTEE)
    title = "Guarantee and measurement (dashed: 1 − δ)"
    styled(figure, title, "share certified", "share of these within ε")
    figure.update_xaxes(range=[-0.05, 1.05], tickformat=".0%").update_yaxes(tickformat=".0%")
    return figure.update_layout(hovermode="closest")


def over_time(plan: Mapping[str, Any]) -> go.Figure:
    """Share certified, and share within ε, by segment of the second half."""
    parts, pale = pd.DataFrame(plan["segments"]), {"color": "#cfe3f2"}
    figure = go.Figure()
    figure.add_bar(x=parts["start"], y=parts["declared"], name="certified", marker=pale)
    line = {"color": BLUE}
    figure.add_scatter(x=parts["start"], y=parts["within"], name="of these within ε", line=line)
    figure.add_hline(1 - plan["question"]["delta"], line=GUARANTEE)
    styled(figure, "The back-test over time (dashed: 1 − δ)", "start of the segment", "share")
    return figure.update_yaxes(tickformat=".0%")


def recoverable(plan: Mapping[str, Any]) -> go.Figure:
    """Share of the time in which a sensor's loss was certified, by sensor and outage length."""
    sensors = sorted(plan["sensors"], key=lambda sensor: sum(sensor["declared"]))[:MOST]
    longest = int(plan["question"]["horizons"])
    heat = go.Heatmap(
        x=[f"{h} window{'s' * (h > 1)}" for h in range(1, longest + 1)],
        y=[escape(sensor["name"]) for sensor in sensors],
        z=[sensor["declared"] for sensor in sensors],
        zmin=0,
        zmax=1,
        colorscale="Blues",
        colorbar={"tickformat": ".0%"},
        hovertemplate="%{y}, %{x}: %{z:.0%} of the time<extra></extra>",
    )
    title = "Which sensors may be lost: share of the time certified"
    figure = styled(go.Figure(heat), title, "length of the outage", "", 210 + 15 * len(sensors))
    figure.update_yaxes(autorange="reversed", dtick=1)
    return figure.update_layout(hovermode="closest")


def troubles(shares: pd.DataFrame, delta: float) -> go.Figure:
    """Share certified and share within ε in disturbed streams."""
    names = {"declared": "certified", "within": "within ε"}
    figure = px.line(
        shares.rename(columns=names).melt(["trouble", "method", "window"], [*names.values()]),
        x="window",
        y="value",
        color="method",
        line_dash="variable",
        facet_col="trouble",
        color_discrete_map={method: color for method, (color, _) in LOOK.items()},
        line_dash_map={"certified": "dot", "within ε": "solid"},
    )
    figure.for_each_annotation(lambda note: note.update(text=note.text.removeprefix("trouble=")))
    figure.add_hline(1 - delta, line={"color": GREY, "dash": "dash"})
    styled(figure, "When something goes wrong (dashed: 1 − δ)", "window", "", HEIGHT + 60)
    legend = {"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0, "title": ""}
    figure.update_yaxes(tickformat=".0%", range=[0, 1.03]).update_yaxes(title_text="share", col=1)
    return figure.update_layout(legend=legend, margin={"t": 90})


def machines(plan: Mapping[str, Any]) -> Styler:
    """What is certified if a machine fails, and its sensors that are certified below half."""
    frame = pd.DataFrame(plan["machines"])
    frame["sensors"] = [", ".join(names) for names in frame["sensors"]]
    frame["problems"] = [", ".join(names) or "–" for names in frame["problems"]]
    headings = {"name": "machine", "declared": "certified", "problems": "certified below half"}
    return table(frame.rename(columns=headings))


def details(plan: Mapping[str, Any]) -> Styler:
    """One row per sensor, the least certified first."""
    frame = pd.DataFrame(plan["sensors"])
    for name in ("declared", "within", "N"):
        frame[name] = [each[0] for each in frame[name]]
    frame["worker"] = [plan["machines"][worker]["name"] for worker in frame["worker"]]
    headings = {"name": "sensor", "worker": "machine", "epsilon": "ε", "declared": "certified"}
    headings |= {"within": "within ε", "N": "N", "longest": "may be lost for, windows"}
    headings |= {"explained": "explained by other machines", "least_epsilon": "smallest useful ε"}
    frame = frame.sort_values("declared", kind="stable")[:LISTED]
    return table(frame[[*headings]].rename(columns=headings))


def recoveries(plan: Mapping[str, Any]) -> Styler:
    """What is read again after a failure of all machines, and of one."""
    n, rows = len(plan["sensors"]), []
    for part in plan["replay"]:
        seconds = None if part["ms"] is None else part["ms"] / 1e3
        where = f"all machines, between steps {part['from']} and {part['until']}"
        rows.append([where, f"{len(part['sensors'])} of {n} sensors", part["tuples"], seconds])
    for scheme in (plan["worth"] or {"schemes": []})["schemes"]:
        where = f"one machine, at a window's end: {scheme['scheme']}"
        what = "its sensors" + " that are not certified" * (scheme["scheme"] == GUARD)
        rows.append([where, what, scheme["samples_read_again"], scheme["longest_s"]])
    columns = ["failure", "read again", "samples", "recovery, s"]
    return table(pd.DataFrame(rows, columns=columns))


def table(frame: pd.DataFrame) -> Styler:
    """Rows of texts and numbers as a table; a missing number is a dash; texts are escaped."""
    frame = frame.astype({name: float for name in frame if frame[name].isna().any()})
    return frame.style.format(precision=3, na_rep="–", escape="html").hide(axis="index")


def _plain(text: str) -> str:
    """A text of the user's file in Markdown: on one line, without markup."""
    marks = {ord(mark): f"\\{mark}" for mark in "\\`*_[]#|$~"}
    return escape(" ".join(text.split()), quote=False).translate(marks)
