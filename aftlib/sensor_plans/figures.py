"""Figures, tables and sentences of a plan; names from a user's file are escaped for HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from IPython.display import HTML, Markdown
from pandas.io.formats.style import Styler
from plotly.subplots import make_subplots

from aftlib.notebook.style import (
    BLUE,
    GREEN,
    GREY,
    HEIGHT,
    ORANGE,
    PURPLE,
    RED,
    Text,
    caption,
    panel_titles,
    styled,
    table,
)
from aftlib.notebook.texts import percent
from aftlib.sensor_plans.backtest import ALWAYS, BASELINE, GUARD, HINDSIGHT
from aftlib.sensor_plans.experiments import EPSILON_SD, TITLES, SetBacktest
from aftlib.sensor_plans.sensor_plan import SensorPlan, report_text, show_rate

GUARANTEE = {"color": GREY, "dash": "dash"}
#: Names of the stored comparison's real sets for readers.
PEER_TITLES = TITLES | {
    "gefcom12_temp": "GEFCom's temperatures",
    "intel50_temperature": "Intel's laboratory",
}
#: δ of that comparison, and the largest share of wrong windows that its figure shows.
PEERS_DELTA = 0.05
MOST_WRONG = 0.16
#: Most sensors in a table.
LISTED = 200


def answer(plan: SensorPlan) -> Markdown:
    """What was read, the plan's answer, and the warnings to see before it is trusted."""
    score = plan.backtest.score
    text = f"{percent(score.certified, 1)} of the losses were certified beforehand"
    if score.within is not None and score.interval is not None:
        low, high = (percent(end, 1) for end in score.interval)
        text += f", of these {percent(score.within, 1)} [{low}, {high}] within ε"
    text += f" (guaranteed: {percent(1 - plan.question.delta)})."
    if plan.worth is not None:
        text += f" Take {plan.worth.recommended}."
    if plan.criteria is not None and plan.criteria.pays_below:
        text += (
            f" Estimating pays below {show_rate(plan.criteria.pays_below)} samples per second: "
            "there exact recovery misses T_SLA, and the guard is faster."
        )
    read = f"{_plain(plan.data.name)} — {'; '.join(map(_plain, plan.data.read))}."
    cautions = [f"- {_plain(caution)}" for caution in plan.cautions or ["No warnings."]]
    return Markdown("\n".join([read, "", f"**{text}**", "", *cautions]))


def outage(plan: SensorPlan, unit: str) -> go.Figure:
    """One outage of the user's own sensors: the truth, and estimates with their half-widths."""
    shown = plan.outage
    names = [escape(sensor.name) for sensor in shown.sensors]
    figure = make_subplots(rows=len(names), shared_xaxes=True, subplot_titles=names)
    looks = {True: ("estimate, certified", BLUE), False: ("estimate, not certified", ORANGE)}
    for name, color in looks.values():  # in the legend, whatever the sensors have
        marker = {"color": color, "symbol": "circle-open", "size": 9}
        figure.add_scatter(x=shown.lost[:1], y=[None], name=name, mode="markers", marker=marker)
    for row, sensor in enumerate(shown.sensors, 1):
        place: dict[str, Any] = {"row": row, "col": 1}
        line = {"color": GREY}
        figure.add_scatter(
            x=shown.times,
            y=sensor.truth,
            name="truth",
            line=line,
            showlegend=row == 1,
            **place,
        )
        estimates = pd.DataFrame({"x": shown.lost, "y": sensor.estimate})
        estimates["half_width"] = sensor.half_width
        for certified, (name, color) in looks.items():
            chosen = estimates[[each is certified for each in sensor.certified]]
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
    title = f"An outage of machine {escape(plan.machines[shown.machine].name)}"
    query = f"{plan.question.query}, {unit}"
    styled(figure, title, "", query, height=160 + 150 * len(names))
    figure.update_layout(legend_y=1.12)  # above the first panel's name
    return figure.update_xaxes(title_text="start of the window", row=len(names), col=1)


def about_outage(plan: SensorPlan, unit: str) -> Text:
    """The caption of `outage`, with ε of the sensors that it shows."""
    limits = plan.question.epsilon
    drawn = [sensor.name for sensor in plan.outage.sensors]
    texts = [f"{limits[name]:.3g} for {_plain(name)}" for name in drawn]
    return caption(
        f"Here ε is {', '.join(texts)} ({unit}), and δ is {percent(plan.question.delta)}. "
        "Open marks are estimates of lost windows, made from the other machines' sensors; their "
        "bars are the half-widths of these single estimates. The grey line is the truth, which the "
        "guard did not see."
    )


def over_time(plan: SensorPlan) -> go.Figure:
    """Share certified, and share within ε, by segment of the second half."""
    parts = pd.DataFrame(plan.segments)
    figure = go.Figure()
    pale = {"color": "#cfe3f2"}
    figure.add_bar(x=parts["start"], y=parts["certified"], name="certified", marker=pale)
    line = {"color": BLUE}
    figure.add_scatter(x=parts["start"], y=parts["within"], name="of these within ε", line=line)
    figure.add_hline(1 - plan.question.delta, line=GUARANTEE)
    title = "The back-test over time (dashed: 1 − δ)"
    styled(figure, title, "start of the segment", "share of the windows")
    return figure.update_yaxes(tickformat=".0%")


def troubles(shares: pd.DataFrame, delta: float) -> go.Figure:
    """Share certified and share within ε in disturbed streams."""
    lines = shares.rename(columns={"within": "within ε"})
    figure = px.line(
        lines.melt(["trouble", "method", "window"], ["within ε", "certified"]),
        x="window",
        y="value",
        color="method",
        line_dash="variable",
        facet_col="trouble",
        color_discrete_map={GUARD: BLUE, BASELINE: ORANGE},
    )
    figure.add_hline(1 - delta, line=GUARANTEE)
    title = "When something goes wrong (dashed: 1 − δ)"
    styled(figure, title, "window", "", HEIGHT + 30)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.03])
    figure.update_yaxes(title_text="share of the windows", col=1)
    return _with_panels(figure)


def _with_panels(figure: go.Figure) -> go.Figure:
    """The figure with the names of its panels below the legend."""
    figure.update_layout(margin={"t": 120}, title_y=0.97)
    figure.update_layout(legend={"y": 1.08, "x": 0, "xanchor": "left", "title": ""})
    return panel_titles(figure)


def about_troubles(shares: pd.DataFrame, delta: float) -> Text:
    """The caption of `troubles`: what each method certified, and how much of it was right."""
    rows = shares.assign(right=shares["within"].fillna(0) * shares["certified"])
    means = rows.groupby(["trouble", "method"], sort=False)[["certified", "right"]].mean()
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
        rows.append(
            {
                ("", "sensors"): each.title,
                ("", "samples per window"): each.samples,
                (GUARD, "certified"): each.lines[GUARD].certified,
                (GUARD, "within ε"): each.lines[GUARD].within,
                (ALWAYS, "within ε"): each.lines[ALWAYS].within,
                (BASELINE, "certified"): each.lines[BASELINE].certified,
                (BASELINE, "within ε"): each.lines[BASELINE].within,
                (HINDSIGHT, "certified"): each.lines[HINDSIGHT].certified,
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
        f"{name}: {percent(each.within_below, 2)} of {each.guarantees:,} certified windows"
        for name, each in zip(names, backtests, strict=True)
        if each.within_below is not None
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


def peers(rows: pd.DataFrame) -> go.Figure:
    """Share certified against share wrong at the real sets, a mark per rule of `stored_peers`."""
    real = scaled_rules(rows[(rows["epsilon"] == EPSILON_SD) & rows["data"].isin(PEER_TITLES)])
    figure = px.scatter(
        real,
        x="wrong",
        y="certified",
        color="rule",
        symbol="rule",
        facet_col="stream",
        facet_col_wrap=3,
        color_discrete_sequence=[BLUE, GREEN, PURPLE, GREY, RED, "#56B4E9", ORANGE],
    )
    figure.update_traces(marker={"size": 10, "opacity": 0.8})
    figure.add_vline(PEERS_DELTA, line=GUARANTEE)
    title = "The guard beside other rules (dashed: δ)"
    styled(figure, title, "", "", HEIGHT + 130, hover="closest")
    figure.update_xaxes(tickformat=".0%", range=[-0.01, MOST_WRONG])
    figure.update_xaxes(title_text="of these wrong", row=1)
    figure.update_yaxes(tickformat=".0%", range=[-0.05, 1.07])
    figure.update_yaxes(title_text="certified", col=1)
    return _with_panels(figure)


def scaled_rules(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of `stored_peers` without those of plain intervals, with a name for readers each."""
    scaled = rows[~rows["rule"].str.endswith(", plain")]
    names = scaled["rule"].str.removesuffix(", scaled")
    return scaled.assign(rule=names, stream=scaled["data"].replace(PEER_TITLES))


def list_peers(rows: pd.DataFrame) -> Styler:
    """One row per stream and ε, one column per rule: share certified, and share of these wrong."""
    scaled = scaled_rules(rows)
    wrong = scaled["wrong"].map(tenths, na_action="ignore").fillna("–")
    both = scaled.assign(both=scaled["certified"].map(tenths) + ", " + wrong)
    wide = both.pivot_table("both", ["stream", "epsilon"], "rule", aggfunc="first", sort=False)
    return table(wide.reset_index().rename(columns={"epsilon": "ε, sd"}))


def about_peers(rows: pd.DataFrame) -> Text:
    """The caption of `peers`, with the stored run's command, commit and date."""
    run = rows.iloc[0]
    return caption(
        f"A stored run of `python -m benchmarks guard_peers` (commit {run['commit']}, "
        f"{run['date']}) at ε = {EPSILON_SD:g} standard deviations: higher marks certify more "
        f"windows, and left of the dashed line at most δ = {percent(PEERS_DELTA)} of these are "
        f"wrong. A rule without a mark certifies nothing there, or errs in more than "
        f"{percent(MOST_WRONG)}."
    )


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
    return table(counts.rename(columns=headings), {"of these within ε": tenths})


def details(plan: SensorPlan, unit: str) -> Styler:
    """One row per sensor, the least certified first."""
    rows = sorted(plan.sensors, key=lambda sensor: sensor.certified[0])[:LISTED]
    useful = pd.Series([row.least_epsilon for row in rows], dtype=float)
    frame = pd.DataFrame(
        {
            "sensor": [row.name for row in rows],
            "machine": [plan.machines[row.worker].name for row in rows],
            f"ε, {unit}": [row.epsilon for row in rows],
            "certified": [row.certified[0] for row in rows],
            "within ε": pd.Series([row.within[0] for row in rows], dtype=float),
            "N, both halves": [row.N for row in rows],
            "may be lost for, windows": [row.longest for row in rows],
            "explained by other machines": [row.explained for row in rows],
            f"smallest useful ε, {unit}": useful,
        }
    )
    shares = ("certified", "within ε", "explained by other machines")
    return table(frame, dict.fromkeys(shares, tenths))


def text(plan: SensorPlan) -> HTML:
    """Everything that `aft plan` prints about a plan."""
    return HTML(f'<pre style="white-space: pre-wrap">{escape(report_text(plan))}</pre>')


def _plain(text: str) -> str:
    """A text of the user's file in Markdown: on one line, without markup."""
    marks = {ord(mark): f"\\{mark}" for mark in "\\`*_[]#|$~"}
    return escape(" ".join(text.split()), quote=False).translate(marks)
