"""Figures and tables of a plan; names from a user's file are escaped for HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from pandas.io.formats.style import Styler
from plotly.subplots import make_subplots

from aftlib.sensor_plans.backtest import ALWAYS, BASELINE, CONFORMAL, GUARD, HINDSIGHT, LAST, LINEAR
from aftlib.workbench.style import BLUE, GREEN, GREY, HEIGHT, ORANGE, PURPLE, RED, named, styled

LOOK = {
    GUARD: (BLUE, "circle"),
    BASELINE: (RED, "x"),
    HINDSIGHT: (RED, "x-open"),
    ALWAYS: (GREEN, "triangle-up"),
    CONFORMAL: (ORANGE, "diamond"),
    LINEAR: (GREY, "square"),
    LAST: (PURPLE, "square-open"),
}
GUARANTEE = {"color": RED, "dash": "dash"}
MOST, LISTED = 60, 200
"""Most sensors in a figure, and in a table."""


def _heatmap(
    sensors: list[dict], z: list, x: list[str], hover: str, titles: tuple[str, str], **look: Any
) -> go.Figure:
    """A heat map with one row per sensor; `titles` are the figure's and that of the x axis."""
    y = [escape(sensor["name"]) for sensor in sensors]
    hover = f"%{{y}}, %{{x}}: {hover}<extra></extra>"
    figure = go.Figure(go.Heatmap(z=z, x=x, y=y, hovertemplate=hover, **look))
    styled(figure, *titles, "", height=210 + 15 * len(sensors))
    return figure.update_yaxes(autorange="reversed", dtick=1).update_layout(hovermode="closest")


def recoverable(plan: Mapping) -> go.Figure:
    """Share of the time in which a sensor's loss was certified, by sensor and outage length."""
    sensors = sorted(plan["sensors"], key=lambda sensor: -sum(sensor["declared"]))[:MOST]
    longest = int(plan["question"]["horizons"])
    horizons = [f"{h} windows" if h > 1 else "1 window" for h in range(1, longest + 1)]
    shares = [sensor["declared"] for sensor in sensors]
    title = "Which sensors may be lost: share of the time certified recoverable"
    titles = (title, "how long the outage has lasted")
    look = {"zmin": 0, "zmax": 1, "colorscale": "Blues"}
    figure = _heatmap(sensors, shares, horizons, "%{z:.0%} of the time", titles, **look)
    return named(figure, y="sensor", z="share certified")


def _panels(titles: list[str], title: str, x: str, y: float) -> go.Figure:
    """Panels side by side with a common axis of shares and a legend below."""
    figure = make_subplots(
        cols=len(titles), shared_yaxes=True, subplot_titles=[escape(text) for text in titles]
    )
    legend = {"orientation": "h", "y": y, "yanchor": "top", "x": 0, "xanchor": "left"}
    styled(figure, title, x, "").update_layout(legend=legend, margin={"t": 90})
    return figure.update_yaxes(tickformat=".0%")


def guarantee(plans: Mapping[str, Mapping]) -> go.Figure:
    """Share certified against share within ε, for every method and set; dashed: the guarantee."""
    title = "Guarantee and measurement (dashed: 1 − δ)"
    figure = _panels([*plans], title, "share certified", -0.25)
    for column, plan in enumerate(plans.values(), 1):
        for line in plan["compared"]:
            if line["within"] is None:
                continue
            color, symbol = LOOK[line["method"]]
            low, high = line["interval"] or (line["within"], line["within"])
            above, below = [high - line["within"]], [line["within"] - low]
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
                error_y={"array": above, "arrayminus": below, "symmetric": False},
            )
        figure.add_hline(1 - plan["question"]["delta"], line=GUARANTEE, row=1, col=column)
    figure.update_yaxes(title_text="share of these within ε", row=1, col=1)
    figure.update_xaxes(range=[-0.05, 1.05], tickformat=".0%")
    return figure.update_layout(hovermode="closest", height=HEIGHT + 90)


def over_time(plan: Mapping) -> go.Figure:
    """Share certified, and share within ε, by segment of the second half."""
    parts = pd.DataFrame(plan["stretches"])
    figure = go.Figure()
    marker, line = {"color": "#cfe3f2"}, {"color": BLUE}
    figure.add_bar(x=parts["start"], y=parts["declared"], name="certified", marker=marker)
    named = {"name": "of these within ε", "mode": "lines+markers", "connectgaps": False}
    figure.add_scatter(x=parts["start"], y=parts["within"], line=line, **named)
    figure.add_hline(1 - plan["question"]["delta"], line=GUARANTEE)
    styled(figure, "The back-test over time (dashed: guaranteed)", "start of the segment", "share")
    return figure.update_yaxes(tickformat=".0%")


def recovery(plan: Mapping) -> go.Figure:
    """Sensors read again after a failure, by the step of the failure in the window."""
    parts, n = plan["replay"], len(plan["sensors"])
    steps = [step for part in parts for step in (part["from"], part["until"])]
    counts = [len(part["sensors"]) for part in parts for _ in range(2)]
    figure = go.Figure(
        go.Scatter(x=steps, y=counts, fill="tozeroy", line={"color": BLUE}, name="read again")
    )
    for time in plan["checkpoints"]:
        figure.add_vline(time, line={"color": GREY, "dash": "dot"})
    figure.add_hline(n, line=GUARANTEE, annotation_text="all sensors")
    title = "Sensors that a failure reads again (dotted: checkpoints)"
    styled(figure, title, "steps since the window began", "sensors")
    return figure.update_yaxes(range=[0, 1.1 * n])


def troubles(table: pd.DataFrame, delta: float) -> go.Figure:
    """Share certified and share within ε in disturbed streams."""
    names = list(table["trouble"].unique())
    title = "When something goes wrong (dashed: guaranteed)"
    shares = {"within": ("within ε", None), "declared": ("certified", "dot")}
    figure = _panels(names, title, "window", -0.2)
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
    figure.update_yaxes(range=[0, 1.03]).update_layout(height=HEIGHT + 60)
    return named(figure, y="share")


def inputs(plans: Mapping[str, Mapping]) -> Styler:
    """Time, step and sensors as they were read, one fact per line."""
    rows = [(name, fact) for name, plan in plans.items() for fact in plan["data"]["taken"]]
    return _table(pd.DataFrame(rows, columns=["set", "taken"]))


def cautions(plans: Mapping[str, Mapping]) -> Styler:
    """Warnings to read before trusting the plans."""
    rows = [(name, line) for name, plan in plans.items() for line in plan["cautions"]]
    return _table(pd.DataFrame(rows or [("–", "No warnings.")], columns=["set", "warning"]))


def worth(plan: Mapping) -> Styler:
    """Exact recovery and the guard at the user's read rate, one row per scheme."""
    comparison = plan.get("worth") or {"schemes": []}
    names = ["scheme", "longest_s", "outage_minutes", "gb_read_again", "estimated_results"]
    rows = [[row[name] for name in names] for row in comparison["schemes"]]
    columns = ["recovery", "longest recovery, s", "minutes of outage per month"]
    return table(rows, [*columns, "GB read again per month", "results estimated per month"])


def backtests(plans: Mapping[str, Mapping]) -> Styler:
    """The back-tests in numbers, one row per set."""
    rows = []
    for name, plan in plans.items():
        test, guaranteed = plan["backtest"], 1 - plan["question"]["delta"]
        low, high = test["interval"] or (None, None)
        satisfied = "–" if high is None else "✔ yes" if high >= guaranteed else "✘ no"
        shares = test["declared_recoverable"], test["within_epsilon"], low, high, guaranteed
        rows.append([name, *shares, satisfied, test["worst_sensor"], test["N"], test["slack"]])
    columns = ["set", "certified", "within ε", "low", "high", "guaranteed", "satisfied"]
    return table(rows, [*columns, "worst sensor", "N", "slack/N"])


def methods(plans: Mapping[str, Mapping]) -> Styler:
    """Every method on every set: share certified / share of these within ε."""
    lines = {
        name: {
            line["method"]: f"{line['declared']:.3f} / "
            + ("–" if line["within"] is None else f"{line['within']:.3f}")
            for line in plan["compared"]
        }
        for name, plan in plans.items()
    }
    return _table(pd.DataFrame(lines).rename_axis("method").reset_index())


def replays(plan: Mapping) -> Styler:
    """Sensors read again after a failure in each interval, and the duration of the recovery."""
    limit, n = plan["question"]["t_sla_ms"], len(plan["sensors"])
    rows = []
    for part in plan["replay"]:
        span, count = f"{part['from']} and {part['until']}", f"{len(part['sensors'])} of {n}"
        rows.append([span, count, part["tuples"], part["ms"], limit])
    columns = ["fails between steps", "sensors read again", "samples"]
    return table(rows, [*columns, "takes, ms", "permitted, ms"])


def details(plan: Mapping) -> Styler:
    """One row per sensor; if there are many, only the sensors that are certified least."""
    sensors = plan["sensors"]
    if len(sensors) > LISTED:
        sensors = sorted(sensors, key=lambda sensor: sensor["declared"][0])[:LISTED]
    first = ("declared", "within", "N", "slack")
    rows = pd.DataFrame(sensors).assign(
        closest=[sensor["closest"] or "–" for sensor in sensors],
        **{name: [sensor[name][0] for sensor in sensors] for name in first},
    )
    columns = {"name": "sensor", "worker": "worker", "epsilon": "ε", "explained": "explained"}
    columns |= {"closest": "best predictor", "declared": "certified", "within": "within ε"}
    columns |= {"longest": "may be lost for", "N": "N", "slack": "slack/N"}
    columns |= {"least_epsilon": "smallest ε"}
    return table(rows[[*columns]].to_numpy().tolist(), [*columns.values()])


def table(rows: list, columns: list[str]) -> Styler:
    """Rows of texts and numbers as a table; a number that is missing is NaN."""
    frame = pd.DataFrame(rows, columns=columns)
    missing = [name for name in frame if frame[name].isna().any()]
    return _table(frame.astype(dict.fromkeys(missing, float)))


def _table(frame: pd.DataFrame) -> Styler:
    """A table without its index; texts and headings are escaped."""
    frame = frame.rename(columns=lambda name: escape(str(name)))
    return frame.style.format(precision=3, na_rep="–", escape="html").hide(axis="index")
