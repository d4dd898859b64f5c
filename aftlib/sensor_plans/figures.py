"""Figures, tables and sentences of a plan; names from a user's file are escaped for HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from IPython.display import HTML, Markdown
from pandas.io.formats.style import Styler
from plotly.subplots import make_subplots

from aftlib.notebook.style import BLUE, GREY, HEIGHT, ORANGE, RED, Text, caption, styled
from aftlib.sensor_plans.backtest import ALWAYS, BASELINE, GUARD, HINDSIGHT, percent
from aftlib.sensor_plans.command import report_text, show_rate
from aftlib.sensor_plans.experiments import EPSILON_SD, SetBacktest

GUARANTEE = {"color": GREY, "dash": "dash"}
LISTED = 200
"""Most sensors in a table."""


def answer(plan: Mapping[str, Any]) -> Markdown:
    """What was read, the plan's answer, and the warnings to see before it is trusted."""
    data, test = plan["data"], plan["backtest"]
    text = f"{percent(test['declared_recoverable'], 1)} of the losses were certified beforehand"
    if test["within_epsilon"] is not None:
        low, high = (percent(end, 1) for end in test["interval"])
        text += f", of these {percent(test['within_epsilon'], 1)} [{low}, {high}] within ε"
    text += f" (guaranteed: {percent(1 - plan['question']['delta'])})."
    if plan["worth"] is not None:
        text += f" Take {plan['worth']['recommended']}."
    if plan["pays_below"]:
        text += (
            f" Estimating pays below {show_rate(plan['pays_below'])} samples per second: there "
            "exact recovery misses T_SLA, and the guard is faster."
        )
    read = f"{_plain(data['name'])} — {'; '.join(map(_plain, data['read']))}."
    cautions = [f"- {_plain(caution)}" for caution in plan["cautions"] or ["No warnings."]]
    return Markdown("\n".join([read, "", f"**{text}**", "", *cautions]))


def outage(plan: Mapping[str, Any], unit: str) -> go.Figure:
    """One outage of the user's own sensors: the truth, and estimates with their half-widths."""
    shown = plan["outage"]
    names = [escape(sensor["name"]) for sensor in shown["sensors"]]
    figure = make_subplots(rows=len(names), shared_xaxes=True, subplot_titles=names)
    looks = {True: ("estimate, certified", BLUE), False: ("estimate, not certified", ORANGE)}
    for name, color in looks.values():  # in the legend, whatever the sensors have
        marker = {"color": color, "symbol": "circle-open", "size": 9}
        figure.add_scatter(x=shown["lost"][:1], y=[None], name=name, mode="markers", marker=marker)
    for row, sensor in enumerate(shown["sensors"], 1):
        place: dict[str, Any] = {"row": row, "col": 1}
        line = {"color": GREY}
        figure.add_scatter(
            x=shown["times"],
            y=sensor["truth"],
            name="truth",
            line=line,
            showlegend=row == 1,
            **place,
        )
        estimates = pd.DataFrame({"x": shown["lost"], "y": sensor["estimate"]})
        estimates["half_width"] = sensor["half_width"]
        for certified, (name, color) in looks.items():
            chosen = estimates[[each is certified for each in sensor["certified"]]]
            error = {"array": chosen["half_width"], "color": color, "thickness": 1, "width": 3}
            figure.add_scatter(
                x=chosen["x"],
                y=chosen["y"],
                error_y=error,
                name=name,
                mode="markers",
                marker={"color": color, "symbol": "circle-open", "size": 9, "line": {"width": 2}},
                showlegend=False,
                **place,
            )
    title = f"An outage of machine {escape(plan['machines'][shown['machine']]['name'])}"
    query = f"{plan['question']['query']}, {unit}"
    styled(figure, title, "", query, height=160 + 150 * len(names))
    figure.update_layout(legend_y=1.12)  # above the first panel's name
    return figure.update_xaxes(title_text="start of the window", row=len(names), col=1)


def about_outage(plan: Mapping[str, Any], unit: str) -> Text:
    """The caption of `outage`, with ε of the sensors that it shows."""
    limits = plan["question"]["epsilon"]
    drawn = [sensor["name"] for sensor in plan["outage"]["sensors"]]
    texts = [f"{limits[name]:.3g} for {_plain(name)}" for name in drawn]
    return caption(
        f"Here ε is {', '.join(texts)} ({unit}), and δ is {percent(plan['question']['delta'])}. "
        "Open marks are estimates of lost windows, made from the other machines' sensors; their "
        "bars are the half-widths of these single estimates. The grey line is the truth, which the "
        "guard did not see."
    )


def over_time(plan: Mapping[str, Any]) -> go.Figure:
    """Share certified, and share within ε, by segment of the second half."""
    parts, pale = pd.DataFrame(plan["segments"]), {"color": "#cfe3f2"}
    figure = go.Figure()
    figure.add_bar(x=parts["start"], y=parts["declared"], name="certified", marker=pale)
    line = {"color": BLUE}
    figure.add_scatter(x=parts["start"], y=parts["within"], name="of these within ε", line=line)
    figure.add_hline(1 - plan["question"]["delta"], line=GUARANTEE)
    title = "The back-test over time (dashed: 1 − δ)"
    styled(figure, title, "start of the segment", "share of the windows")
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
        color_discrete_map={GUARD: BLUE, BASELINE: ORANGE},
    )
    figure.for_each_annotation(lambda note: note.update(text=note.text.removeprefix("trouble=")))
    figure.add_hline(1 - delta, line=GUARANTEE)
    title = "When something goes wrong (dashed: 1 − δ)"
    styled(figure, title, "window", "", HEIGHT + 30)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.03])
    figure.update_yaxes(title_text="share of the windows", col=1)
    figure.update_layout(margin={"t": 120}, title_y=0.97)
    return figure.update_layout(legend={"y": 1.08, "x": 0, "xanchor": "left", "title": ""})


def about_troubles(shares: pd.DataFrame, delta: float) -> Text:
    """The caption of `troubles`: what each method certified, and how much of it was right."""
    rows = shares.assign(right=shares["within"].fillna(0) * shares["declared"])
    means = rows.groupby(["trouble", "method"], sort=False)[["declared", "right"]].mean()
    texts = []
    for trouble in rows["trouble"].unique():
        parts = []
        for method in (GUARD, BASELINE):
            certified, right = means.loc[(trouble, method)]
            within = f", {percent(right / certified)} of these within ε" if certified else ""
            parts.append(f"the {method} certifies {percent(certified)}{within}")
        texts.append(f"*{trouble}*: {'; '.join(parts)}.")
    return caption(
        f"Solid: share of the certified windows within ε, which is {EPSILON_SD:g} standard "
        f"deviations of each sensor; dotted: share certified; guaranteed: {percent(1 - delta)}. "
        "Over the whole time, " + " ".join(texts)
    )


def compare_sets(backtests: Sequence[SetBacktest]) -> Styler:
    """One row per real set and width of windows: the guard, and what it is compared with."""
    rows = list[dict[Any, Any]]()
    for each in backtests:
        guard, always = each.lines[GUARD], each.lines[ALWAYS]
        baseline, hindsight = each.lines[BASELINE], each.lines[HINDSIGHT]
        rows.append(
            {
                ("", "sensors"): each.title,
                ("", "samples per window"): each.samples,
                (GUARD, "certified"): guard["declared"],
                (GUARD, "within ε"): guard["within"],
                (ALWAYS, "within ε"): always["within"],
                (BASELINE, "certified"): baseline["declared"],
                (BASELINE, "within ε"): baseline["within"],
                (HINDSIGHT, "certified"): hindsight["declared"],
                ("price", "points"): each.price,
            }
        )
    frame = pd.DataFrame(rows)
    frame.columns = pd.MultiIndex.from_tuples([*rows[0]])
    shares: list[Any] = [name for name in rows[0] if name[0] not in ("", "price")]
    within: list[Any] = [name for name in shares if name[1] == "within ε"]
    needed = 1 - backtests[0].walk.delta

    def mark(share: Any) -> str:
        return f"color: {RED}; font-weight: bold" if share < needed else ""

    style = frame.style.format(tenths, subset=shares, na_rep="–")
    style = style.format(show_price, subset=[("price", "points")])
    style = style.map(mark, subset=within).hide(axis="index")
    return style.set_properties(subset=[("", "sensors")], **{"text-align": "left"})


def tenths(share: Any) -> str:
    """A share of a table as text, with one decimal."""
    return percent(share, 1)


def show_price(price: Any) -> str:
    """A price in percentage points, with its sign.

    >>> show_price(-0.1234)
    '−12.3'
    """
    sign = "+" if price > 0 else "−" if price < 0 else ""
    return f"{sign}{abs(100 * price):.1f}"


def about_sets(backtests: Sequence[SetBacktest]) -> Text:
    """The caption of `compare_sets`: where the guard loses, and where always estimating errs."""
    delta = backtests[0].walk.delta
    names = [f"{each.title} ({each.samples} samples)" for each in backtests]
    loses = [name for name, each in zip(names, backtests, strict=True) if each.price > 0]
    fails = [name for name, each in zip(names, backtests, strict=True) if not each.always_suffices]
    below = [
        f"{name}: {percent(each.within, 2)} of {each.guarantees:,} certified windows"
        for name, each in zip(names, backtests, strict=True)
        if each.within < 1 - delta
    ]
    texts = [
        f"ε is {EPSILON_SD:g} standard deviations of each sensor's window results, and δ is "
        f"{percent(delta)}. Red: less than {percent(1 - delta)} within ε.",
        f"Always estimating errs too often on {len(fails)} of {len(names)} rows.",
        f"The guard certifies fewer windows than hindsight on {', '.join(loses) or 'none'}.",
    ]
    if below:
        texts.append(
            f"Its share within ε is below {percent(1 - delta)}, which the slack permits, on "
            f"{'; '.join(below)}."
        )
    return caption(" ".join(texts))


def followed(counts: pd.DataFrame | None, unit: str) -> Styler | Text:
    """What a stream emitted, by machine and state, and its errors; `counts` of `count_states`."""
    if counts is None:
        return caption("Not run: a stored plan has no samples, and data need times.")
    headings = {
        "machine": "machine",
        "state": "state of the row",
        "windows": "windows",
        "compared": "compared with the truth",
        "within": "of these within ε",
        "largest_error": f"largest error, {unit}",
    }
    style = counts.rename(columns=headings).style.hide(axis="index")
    style = style.format(tenths, subset=["of these within ε"], na_rep="–")
    largest = headings["largest_error"]
    style = style.format("{:.3g}", subset=[largest], na_rep="–")
    names: Any = ["machine", "state of the row"]
    return style.set_properties(subset=names, **{"text-align": "left"})


def details(plan: Mapping[str, Any], unit: str) -> Styler:
    """One row per sensor, the least certified first."""
    frame = pd.DataFrame(plan["sensors"])
    for name in ("declared", "within", "N"):
        frame[name] = [each[0] for each in frame[name]]
    frame["worker"] = [plan["machines"][worker]["name"] for worker in frame["worker"]]
    headings = {
        "name": "sensor",
        "worker": "machine",
        "epsilon": f"ε, {unit}",
        "declared": "certified",
        "within": "within ε",
        "N": "N",
        "longest": "may be lost for, windows",
        "explained": "explained by other machines",
        "least_epsilon": f"smallest useful ε, {unit}",
    }
    frame = frame.sort_values("declared", kind="stable")[:LISTED][[*headings]]
    frame = frame.astype({name: float for name in frame if frame[name].isna().any()})
    shares: Any = [headings[name] for name in ("declared", "within", "explained")]
    table = frame.rename(columns=headings)
    style = table.style.format(precision=3, na_rep="–", escape="html").hide(axis="index")
    limits: Any = [headings["epsilon"], headings["least_epsilon"]]
    style = style.format("{:.3g}", subset=limits, na_rep="–").format("{:,.0f}", subset=["N"])
    style = style.format(tenths, subset=shares, na_rep="–")
    return style.set_properties(subset=["sensor", "machine"], **{"text-align": "left"})


def text(plan: Mapping[str, Any]) -> HTML:
    """Everything that `aft plan` prints about a plan."""
    return HTML(f'<pre style="white-space: pre-wrap">{escape(report_text(dict(plan)))}</pre>')


def _plain(text: str) -> str:
    """A text of the user's file in Markdown: on one line, without markup."""
    marks = {ord(mark): f"\\{mark}" for mark in "\\`*_[]#|$~"}
    return escape(" ".join(text.split()), quote=False).translate(marks)
