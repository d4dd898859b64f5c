"""Figures, tables and sentences of a plan; names from a user's file are escaped for HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from IPython.display import HTML, Markdown
from pandas.io.formats.style import Styler
from plotly.subplots import make_subplots

from aftlib.sensor_plans.command import report_text
from aftlib.workbench.style import BLUE, GREY, HEIGHT, ORANGE, styled

GUARANTEE = {"color": GREY, "dash": "dash"}
LISTED = 200
"""Most sensors in a table."""


def answer(plan: Mapping[str, Any]) -> Markdown:
    """What was read, the plan's answer, and the warnings to see before it is trusted."""
    data, test = plan["data"], plan["backtest"]
    text = f"{test['declared_recoverable']:.1%} of the losses were certified beforehand"
    if test["within_epsilon"] is not None:
        low, high = test["interval"]
        text += f", of these {test['within_epsilon']:.1%} [{low:.1%}, {high:.1%}] within ε"
    text += f" (guaranteed: {1 - plan['question']['delta']:.0%})."
    if plan["worth"] is not None:
        text += f" Take {plan['worth']['recommended']}."
    if plan["pays_below"]:
        text += f" Estimating pays below {plan['pays_below']:.3g} samples per second."
    read = f"{_plain(data['name'])} — {'; '.join(map(_plain, data['read']))}."
    cautions = [f"- {_plain(caution)}" for caution in plan["cautions"] or ["No warnings."]]
    return Markdown("\n".join([read, "", f"**{text}**", "", *cautions]))


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


def troubles(shares: pd.DataFrame, delta: float) -> go.Figure:
    """Share certified and share within ε in disturbed streams."""
    lines = shares.rename(columns={"declared": "certified", "within": "within ε"})
    figure = px.line(
        lines.melt(["trouble", "method", "window"], ["within ε", "certified"]),
        x="window",
        y="value",
        color="method",
        line_dash="variable",
        facet_col="trouble",
    )
    figure.for_each_annotation(lambda note: note.update(text=note.text.removeprefix("trouble=")))
    figure.add_hline(1 - delta, line=GUARANTEE)
    styled(figure, "When something goes wrong (dashed: 1 − δ)", "window", "", HEIGHT + 60)
    legend = {"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0, "title": ""}
    figure.update_yaxes(tickformat=".0%", range=[0, 1.03]).update_yaxes(title_text="share", col=1)
    return figure.update_layout(legend=legend, margin={"t": 90})


def details(plan: Mapping[str, Any]) -> Styler:
    """One row per sensor, the least certified first."""
    frame = pd.DataFrame(plan["sensors"])
    for name in ("declared", "within", "N"):
        frame[name] = [each[0] for each in frame[name]]
    frame["worker"] = [plan["machines"][worker]["name"] for worker in frame["worker"]]
    headings = {"name": "sensor", "worker": "machine", "epsilon": "ε", "declared": "certified"}
    headings |= {"within": "within ε", "N": "N", "longest": "may be lost for, windows"}
    headings |= {"explained": "explained by other machines", "least_epsilon": "smallest useful ε"}
    frame = frame.sort_values("declared", kind="stable")[:LISTED][[*headings]]
    frame = frame.astype({name: float for name in frame if frame[name].isna().any()})
    style = frame.rename(columns=headings).style.format(precision=3, na_rep="–", escape="html")
    return style.hide(axis="index")


def text(plan: Mapping[str, Any]) -> HTML:
    """Everything that `aft plan` prints about a plan."""
    return HTML(f'<pre style="white-space: pre-wrap">{escape(report_text(dict(plan)))}</pre>')


def _plain(text: str) -> str:
    """A text of the user's file in Markdown: on one line, without markup."""
    marks = {ord(mark): f"\\{mark}" for mark in "\\`*_[]#|$~"}
    return escape(" ".join(text.split()), quote=False).translate(marks)
