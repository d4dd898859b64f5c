"""Figures, tables and sentences of a plan; names from a user's file are escaped for HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from IPython.display import Markdown
from pandas.io.formats.style import Styler
from plotly.subplots import make_subplots

from aftlib.sensor_plans.backtest import ALWAYS, BASELINE, CONFORMAL, GUARD, HINDSIGHT, LINEAR
from aftlib.workbench.style import BLUE, GREEN, GREY, HEIGHT, ORANGE, RED, styled

LOOK = {
    GUARD: (BLUE, "circle"),
    BASELINE: (RED, "x"),
    HINDSIGHT: (RED, "x-open"),
    ALWAYS: (GREEN, "triangle-up"),
    CONFORMAL: (ORANGE, "diamond"),
    LINEAR: (GREY, "square"),
}
GUARANTEE = {"color": RED, "dash": "dash"}
MOST, LISTED = 60, 200
"""Most sensors in a figure, and in a table."""


def facts(plans: Mapping[str, Mapping[str, Any]]) -> Markdown:
    """What was read, and the warnings to see before a plan is trusted."""
    lines = []
    for name, plan in plans.items():
        lines.append(f"**{_plain(name)}** — " + "; ".join(map(_plain, plan["data"]["read"])) + ".")
        lines += [f"- {_plain(caution)}" for caution in plan["cautions"]] or ["- No warnings."]
        lines.append("")
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
    shown, sensors = plan["outage"], plan["outage"]["sensors"]
    titles = [escape(sensor["name"]) for sensor in sensors]
    figure = make_subplots(rows=len(sensors), shared_xaxes=True, subplot_titles=titles)
    for row, sensor in enumerate(sensors, 1):
        first = row == 1
        figure.add_scatter(
            x=shown["times"],
            y=sensor["truth"],
            name="truth",
            mode="lines+markers",
            marker={"size": 4},
            line={"color": GREY},
            showlegend=first,
            row=row,
            col=1,
        )
        for certified, color, name in ((True, BLUE, "certified"), (False, ORANGE, "not certified")):
            chosen = [i for i, flag in enumerate(sensor["certified"]) if flag is certified]
            figure.add_scatter(
                x=[shown["lost"][i] for i in chosen],
                y=[sensor["estimate"][i] for i in chosen],
                error_y={"array": [sensor["half_width"][i] for i in chosen]},
                name=f"estimate, {name}",
                mode="markers",
                marker={"color": color, "symbol": "circle-open", "size": 9},
                legendgroup=name,
                showlegend=first,
                row=row,
                col=1,
            )
    machine = escape(plan["machines"][shown["machine"]]["name"])
    styled(figure, f"An outage of machine {machine}", "", "", height=160 + 150 * len(sensors))
    figure.update_xaxes(title_text="start of the window", row=len(sensors), col=1)
    return figure.update_yaxes(title_text="result")


def guarantee(plans: Mapping[str, Mapping[str, Any]]) -> go.Figure:
    """Share certified against share within ε, for every method and set; dashed: the guarantee."""
    figure = _panels([*plans], "Guarantee and measurement (dashed: 1 − δ)", "share certified")
    for column, plan in enumerate(plans.values(), 1):
        for line in plan["compared"]:
            if line["within"] is None:
                continue
            color, symbol = LOOK[line["method"]]
            low, high = line["interval"] or (line["within"], line["within"])
            figure.add_scatter(
                x=[line["declared"]],
                y=[line["within"]],
                name=line["method"],
                mode="markers",
                legendgroup=line["method"],
                showlegend=column == 1,
                row=1,
                col=column,
                marker={"color": color, "symbol": symbol, "size": 12},
                error_y={
                    "array": [high - line["within"]],
                    "arrayminus": [line["within"] - low],
                    "symmetric": False,
                },
            )
        figure.add_hline(1 - plan["question"]["delta"], line=GUARANTEE, row=1, col=column)
    figure.update_yaxes(title_text="share of these within ε", row=1, col=1)
    figure.update_xaxes(range=[-0.05, 1.05], tickformat=".0%")
    return figure.update_layout(hovermode="closest", height=HEIGHT + 90)


def over_time(plan: Mapping[str, Any]) -> go.Figure:
    """Share certified, and share within ε, by segment of the second half."""
    parts = pd.DataFrame(plan["segments"])
    figure = go.Figure()
    figure.add_bar(
        x=parts["start"], y=parts["declared"], name="certified", marker={"color": "#cfe3f2"}
    )
    figure.add_scatter(
        x=parts["start"],
        y=parts["within"],
        name="of these within ε",
        mode="lines+markers",
        line={"color": BLUE},
        connectgaps=False,
    )
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


def troubles(table: pd.DataFrame, delta: float) -> go.Figure:
    """Share certified and share within ε in disturbed streams."""
    names = list(table["trouble"].unique())
    figure = _panels(names, "When something goes wrong (dashed: 1 − δ)", "window")
    shares = {"within": ("within ε", None), "declared": ("certified", "dot")}
    for column, name in enumerate(names, 1):
        for method, color in ((GUARD, BLUE), (BASELINE, RED)):
            part = table[(table["trouble"] == name) & (table["method"] == method)]
            for share, (text, dash) in shares.items():
                figure.add_scatter(
                    x=part["window"],
                    y=part[share],
                    name=f"{method}: {text}",
                    row=1,
                    col=column,
                    legendgroup=method,
                    showlegend=column == 1,
                    line={"color": color, "dash": dash},
                )
        figure.add_hline(1 - delta, line={"color": GREY, "dash": "dash"}, row=1, col=column)
    figure.update_yaxes(range=[0, 1.03]).update_yaxes(title_text="share", row=1, col=1)
    return figure.update_layout(height=HEIGHT + 60)


def _panels(titles: Sequence[str], title: str, x: str) -> go.Figure:
    """Panels side by side with a common axis of shares and a legend below."""
    figure = make_subplots(
        cols=len(titles), shared_yaxes=True, subplot_titles=[escape(text) for text in titles]
    )
    legend = {"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0, "xanchor": "left"}
    styled(figure, title, x, "").update_layout(legend=legend, margin={"t": 90})
    return figure.update_yaxes(tickformat=".0%")


def machines(plan: Mapping[str, Any]) -> Styler:
    """What is certified if a machine fails, and its sensors that are certified below half."""
    rows = [
        [
            machine["name"],
            ", ".join(machine["sensors"]),
            machine["declared"],
            ", ".join(machine["problems"]) or "–",
        ]
        for machine in plan["machines"]
    ]
    return table(rows, ["machine", "sensors", "certified", "certified below half of the time"])


def details(plan: Mapping[str, Any]) -> Styler:
    """One row per sensor, the least certified first."""
    sensors = sorted(plan["sensors"], key=lambda sensor: sensor["declared"][0])[:LISTED]
    rows = [
        [
            sensor["name"],
            plan["machines"][sensor["worker"]]["name"],
            sensor["epsilon"],
            sensor["declared"][0],
            sensor["within"][0],
            sensor["N"][0],
            sensor["longest"],
            sensor["explained"],
            sensor["least_epsilon"],
        ]
        for sensor in sensors
    ]
    columns = ["sensor", "machine", "ε", "certified", "within ε", "N", "may be lost for, windows"]
    return table(rows, [*columns, "explained by other machines", "smallest useful ε"])


def recoveries(plan: Mapping[str, Any]) -> Styler:
    """What is read again after a failure of all machines, and of one."""
    n = len(plan["sensors"])
    rows = [
        [
            f"all machines, between steps {part['from']} and {part['until']}",
            f"{len(part['sensors'])} of {n} sensors",
            part["tuples"],
            None if part["ms"] is None else part["ms"] / 1e3,
        ]
        for part in plan["replay"]
    ]
    for scheme in (plan["worth"] or {"schemes": []})["schemes"]:
        rows.append(
            [
                f"one machine, at a window's end: {scheme['scheme']}",
                "its sensors"
                if scheme["scheme"] != GUARD
                else "its sensors that are not certified",
                scheme["samples_read_again"],
                scheme["longest_s"],
            ]
        )
    return table(rows, ["failure", "read again", "samples", "recovery, s"])


def table(rows: list[list[Any]], columns: Sequence[str]) -> Styler:
    """Rows of texts and numbers as a table; a missing number is a dash; texts are escaped."""
    frame = pd.DataFrame(rows, columns=[escape(name) for name in columns])
    missing = [name for name in frame if frame[name].isna().any()]
    frame = frame.astype(dict.fromkeys(missing, float))
    return frame.style.format(precision=3, na_rep="–", escape="html").hide(axis="index")


def _plain(text: str) -> str:
    """A text of the user's file in Markdown: on one line, without markup."""
    marks = {ord(mark): f"\\{mark}" for mark in "\\`*_[]#|$~"}
    return escape(" ".join(text.split()), quote=False).translate(marks)
