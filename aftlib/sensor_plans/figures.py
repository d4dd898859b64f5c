"""Figures and tables of a plan; names come from a user's file, and are never taken as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from pandas.io.formats.style import Styler
from plotly.subplots import make_subplots

from aftlib.reports.style import BLUE, GREEN, GREY, HEIGHT, ORANGE, PURPLE, RED, styled
from aftlib.sensor_plans.backtest import (
    ALWAYS,
    BASELINE,
    CONFORMAL,
    GUARD,
    HINDSIGHT,
    LAST,
    LINEAR,
)

LOOK = {
    GUARD: (BLUE, "circle"),
    BASELINE: (RED, "x"),
    HINDSIGHT: (RED, "x-open"),
    ALWAYS: (GREEN, "triangle-up"),
    CONFORMAL: (ORANGE, "diamond"),
    LINEAR: (GREY, "square"),
    LAST: (PURPLE, "square-open"),
}
MOST, LISTED = 60, 200
"""Sensors that a figure shows at most, and a table."""


def correlations(plan: Mapping) -> go.Figure:
    """How the sensors' window results go together."""
    names = [escape(sensor["name"]) for sensor in plan["sensors"]]
    if plan["correlation"] is None or len(names) > MOST:
        shares = [sensor["explained"] for sensor in plan["sensors"]]
        figure = go.Figure(go.Histogram(x=shares, marker={"color": BLUE}, nbinsx=40))
        title = "What the other workers' sensors tell of each"
        return styled(figure, title, "share of the variance explained", "sensors")
    figure = go.Figure(
        go.Heatmap(
            z=plan["correlation"], x=names, y=names, zmin=-1, zmax=1, colorscale="RdBu_r",
            hovertemplate="%{y}, %{x}: %{z:.2f}<extra></extra>",
        )
    )  # fmt: skip
    styled(figure, "Correlation of the window results, first half", "", "", 200 + 14 * len(names))
    figure.update_yaxes(autorange="reversed", dtick=1).update_xaxes(dtick=1)
    return figure.update_layout(hovermode="closest")


def recoverable(plan: Mapping) -> go.Figure:
    """Share of the time that each sensor could have been lost, by how long the outage lasts."""
    sensors = sorted(plan["sensors"], key=lambda sensor: -sum(sensor["declared"]))[:MOST]
    longest = int(plan["question"]["horizons"])
    horizons = [f"{h} windows" if h > 1 else "1 window" for h in range(1, longest + 1)]
    figure = go.Figure(
        go.Heatmap(
            z=[sensor["declared"] for sensor in sensors], x=horizons,
            y=[escape(sensor["name"]) for sensor in sensors], zmin=0, zmax=1, colorscale="Blues",
            hovertemplate="%{y}, %{x}: %{z:.0%} of the time<extra></extra>",
        )
    )  # fmt: skip
    title = "Which sensors may be lost: share of the time certified recoverable"
    styled(figure, title, "how long the outage has lasted", "", 220 + 16 * len(sensors))
    return figure.update_yaxes(autorange="reversed", dtick=1).update_layout(hovermode="closest")


def promise(plans: Mapping[str, Mapping]) -> go.Figure:
    """Share promised against share kept: every method, every set, and the promise as a line."""
    figure = make_subplots(
        cols=len(plans), shared_yaxes=True, subplot_titles=[escape(name) for name in plans]
    )
    for column, plan in enumerate(plans.values(), 1):
        for line in plan["compared"]:
            color, symbol = LOOK[line["method"]]
            low, high = line["interval"] or (line["within"], line["within"])
            if line["within"] is None:
                continue
            figure.add_scatter(
                x=[line["declared"]], y=[line["within"]], name=line["method"], mode="markers",
                legendgroup=line["method"], showlegend=column == 1, row=1, col=column,
                marker={"color": color, "symbol": symbol, "size": 12},
                error_y={
                    "array": [high - line["within"]], "arrayminus": [line["within"] - low],
                    "symmetric": False,
                },
            )  # fmt: skip
        promised = 1 - plan["question"]["delta"]
        line_look = {"color": RED, "dash": "dash"}
        figure.add_hline(promised, line=line_look, row=1, col=column)
    title = "Promise and measurement (dashed: guaranteed)"
    styled(figure, title, "share certified", "", HEIGHT + 90)
    figure.update_yaxes(title_text="share of these within ε", row=1, col=1)
    figure.update_xaxes(range=[-0.05, 1.05], tickformat=".0%").update_yaxes(tickformat=".0%")
    legend = {"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0, "xanchor": "left"}
    return figure.update_layout(legend=legend, hovermode="closest", margin={"t": 90})


def over_time(plan: Mapping) -> go.Figure:
    """What was promised and what was kept, stretch by stretch of the second half."""
    parts = pd.DataFrame(plan["stretches"])
    figure = go.Figure()
    figure.add_bar(
        x=parts["start"], y=parts["declared"], name="certified", marker={"color": "#cfe3f2"}
    )
    figure.add_scatter(
        x=parts["start"], y=parts["within"], name="of these within ε", mode="lines+markers",
        line={"color": BLUE}, connectgaps=False,
    )  # fmt: skip
    figure.add_hline(1 - plan["question"]["delta"], line={"color": RED, "dash": "dash"})
    styled(figure, "The back-test over time (dashed: guaranteed)", "start of the stretch", "share")
    return figure.update_yaxes(tickformat=".0%")


def sensors(plan: Mapping) -> go.Figure:
    """Share within ε of each sensor's promises one window ahead, the worst first."""
    kept = [s for s in plan["sensors"] if s["within"][0] is not None]
    kept = sorted(kept, key=lambda sensor: sensor["within"][0])[:MOST]
    figure = go.Figure(
        go.Scatter(
            mode="markers",
            x=[escape(sensor["name"]) for sensor in kept], y=[s["within"][0] for s in kept],
            customdata=[s["N"][0] for s in kept], marker={"color": BLUE, "size": 11},
            hovertemplate="%{x}: %{y:.2%} of N = %{customdata:,}<extra></extra>",
        )
    )  # fmt: skip
    figure.add_hline(1 - plan["question"]["delta"], line={"color": RED, "dash": "dash"})
    lowest = min([0.9, *(sensor["within"][0] for sensor in kept)])
    styled(figure, "Guarantees that held, by sensor (dashed: guaranteed)", "", "share within ε")
    low = max(0, lowest - 0.03)
    figure.update_yaxes(tickformat=".0%", range=[low, 1 + 0.04 * (1 - low)])
    return figure.update_layout(hovermode="closest")


def recovery(plan: Mapping) -> go.Figure:
    """Sensors read again when a window fails, over the window."""
    steps, counts = [], []
    for part in plan["replay"]:
        steps += [part["from"], part["until"]]
        counts += [len(part["sensors"])] * 2
    figure = go.Figure(
        go.Scatter(x=steps, y=counts, fill="tozeroy", line={"color": BLUE}, name="read again")
    )
    for time in plan["checkpoints"]:
        figure.add_vline(time, line={"color": GREY, "dash": "dot"})
    n = len(plan["sensors"])
    figure.add_hline(n, line={"color": RED, "dash": "dash"}, annotation_text="all sensors")
    title = "What a failure reads again (dotted: checkpoints)"
    return styled(figure, title, "steps since the window began", "sensors").update_yaxes(
        range=[0, 1.1 * n]
    )


def troubles(table: pd.DataFrame, delta: float) -> go.Figure:
    """Share of the promises kept before one's eyes while something goes wrong."""
    names = list(table["trouble"].unique())
    figure = make_subplots(cols=len(names), shared_yaxes=True, subplot_titles=names)
    for column, name in enumerate(names, 1):
        for method, color in ((GUARD, BLUE), (BASELINE, RED)):
            part = table[(table["trouble"] == name) & (table["method"] == method)]
            figure.add_scatter(
                x=part["window"], y=part["within"], name=f"{method}: within ε", row=1, col=column,
                legendgroup=method, showlegend=column == 1, line={"color": color},
            )  # fmt: skip
            figure.add_scatter(
                x=part["window"], y=part["declared"], name=f"{method}: certified",
                row=1, col=column,
                legendgroup=method, showlegend=column == 1, line={"color": color, "dash": "dot"},
            )  # fmt: skip
        figure.add_hline(1 - delta, line={"color": GREY, "dash": "dash"}, row=1, col=column)
    styled(figure, "When something goes wrong (dashed: guaranteed)", "window", "", HEIGHT + 60)
    legend = {"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0, "xanchor": "left"}
    figure.update_layout(legend=legend, margin={"t": 90})
    return figure.update_yaxes(tickformat=".0%", range=[0, 1.03])


def taken(plans: Mapping[str, Mapping]) -> Styler:
    """What was taken for time, step and sensors, a line a fact."""
    rows = [(name, fact) for name, plan in plans.items() for fact in plan["data"]["taken"]]
    return _table(pd.DataFrame(rows, columns=["set", "taken"]))


def cautions(plans: Mapping[str, Mapping]) -> Styler:
    """What to know before trusting the plans."""
    rows = [(name, line) for name, plan in plans.items() for line in plan["cautions"]]
    return _table(pd.DataFrame(rows or [("–", "No warnings.")], columns=["set", "warning"]))


def backtests(plans: Mapping[str, Mapping]) -> Styler:
    """The back-tests in numbers, a row a set."""
    rows = []
    for name, plan in plans.items():
        test = plan["backtest"]
        low, high = test["interval"] or (np.nan, np.nan)
        promised = 1 - plan["question"]["delta"]
        kept = "–" if test["interval"] is None else "✔ yes" if high >= promised else "✘ no"
        rows.append(
            {
                "set": name,
                "certified": test["declared_recoverable"],
                "within ε": test["within_epsilon"],
                "low": low,
                "high": high,
                "guaranteed": promised,
                "kept": kept,
                "worst sensor": test["worst_sensor"],
                "N": test["N"],
                "slack/N": test["slack"],
            }
        )
    return _table(pd.DataFrame(rows).astype({"within ε": float, "worst sensor": float}))


def compared(plans: Mapping[str, Mapping]) -> Styler:
    """Every method on every set: share promised / share of these within ε."""
    cells: dict = {}
    for name, plan in plans.items():
        for line in plan["compared"]:
            within = "–" if line["within"] is None else f"{line['within']:.3f}"
            cells.setdefault(line["method"], {"method": line["method"]})[name] = (
                f"{line['declared']:.3f} / {within}"
            )
    return _table(pd.DataFrame(cells.values()))


def replayed(plan: Mapping) -> Styler:
    """What a failure in each interval reads again, and how long that takes."""
    limit, n = plan["question"]["t_sla_ms"], len(plan["sensors"])
    rows = [
        {
            "fails between steps": f"{part['from']} and {part['until']}",
            "sensors read again": f"{len(part['sensors'])} of {n}",
            "samples": part["tuples"],
            "takes, ms": part["ms"],
            "permitted, ms": limit,
        }
        for part in plan["replay"]
    ]
    return _table(pd.DataFrame(rows))


def replay_kept(plan: Mapping) -> Styler:
    """What the replay set promises, and what was measured of it."""
    promised, test = 1 - plan["question"]["delta"], plan["backtest"]
    rows = [
        ("all that is estimated", promised, test["replay_within"]),
        ("the worst sensor", promised, test["replay_worst_sensor"]),
    ]
    frame = pd.DataFrame(rows, columns=["within ε", "guaranteed", "measured"])
    return _table(frame.astype({"measured": float}))


def details(plan: Mapping) -> Styler:
    """What is known of each sensor, of very many those declared least."""
    listed = plan["sensors"]
    if len(listed) > LISTED:
        listed = sorted(listed, key=lambda sensor: sensor["declared"][0])[:LISTED]
    rows = [
        {
            "sensor": sensor["name"],
            "worker": sensor["worker"],
            "ε": sensor["epsilon"],
            "explained": sensor["explained"],
            "best predictor": sensor["closest"] or "–",
            "certified": sensor["declared"][0],
            "within ε": sensor["within"][0],
            "may be lost for": sensor["longest"],
            "N": sensor["N"][0],
            "slack/N": sensor["slack"][0],
            "smallest ε worth asking": sensor["least_epsilon"],
        }
        for sensor in listed
    ]
    floats = ["within ε", "slack/N", "smallest ε worth asking"]
    return _table(pd.DataFrame(rows).astype(dict.fromkeys(floats, float)))


def table(rows: list, columns: list[str]) -> Styler:
    """Rows of texts and numbers as a table."""
    return _table(pd.DataFrame(rows, columns=columns))


def _table(frame: pd.DataFrame) -> Styler:
    """A table without its index; texts, also of its heads, are escaped."""
    frame = frame.rename(columns=lambda name: escape(str(name)))
    return frame.style.format(precision=3, na_rep="–", escape="html").hide(axis="index")
