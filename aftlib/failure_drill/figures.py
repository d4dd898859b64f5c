"""Figures and tables of the drill; the first answers which scheme is for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from pandas.io.formats.style import Styler
from plotly.subplots import make_subplots

from aftlib.failure_drill.experiments import COLUMNS, DRIVER, SUPERVISOR, DrillResult
from aftlib.workbench.style import BLUE, GREEN, GREY, HEIGHT, ORANGE, PURPLE, RED, named, styled

COLORS = (RED, ORANGE, PURPLE, GREY, BLUE, GREEN, "#56B4E9", "#004D40")
GOOD, FAIR, BAD = 1.0, 0.5, 0.0
SCALE = [(0.0, "#f3c1ab"), (0.5, "#f6e7b8"), (1.0, "#bfe3d3")]
FORMATS = {
    "{:,.0f}": ("faults", "due", "lost", "doubled", "estimated", "wrong", "rows", "again"),
    "{:.2%}": ("within", "share_low", "share_high"),
    "{:.1%}": ("planned", "read"),
    "{:.2f} ε": ("largest_error",),
    "{:,.0f} ": ("restart_ms", "rework_ms", "recovery_ms", "stored_bytes", "sent_bytes"),
    "{:.2f}": ("latency_s", "throughput_s", "checkpoint_ms"),
    "{:.1f} ×": ("worst",),
    "{:.0f}": ("unsteady",),
    "{:+.1%}": ("overhead", "overhead_low", "overhead_high"),
}
"""Columns of the table that are shown, by their format."""
HEADINGS = {
    "basis": "measured or simulated",
    "due": "results due",
    "share_low": "95 % interval, low",
    "share_high": "95 % interval, high",
    "largest_error": "largest error",
    "rows": "samples",
    "again": "samples read again",
    "planned": "planned share read again",
    "read": "measured share read again",
    "restart_ms": "until a replacement runs, ms",
    "rework_ms": "then until results are emitted, ms",
    "latency_s": "until latency is normal, s",
    "throughput_s": "until throughput is normal, s",
    "worst": "longest / normal latency",
    "unsteady": "slow micro-batches afterwards",
    "stored_bytes": "bytes on disk",
    "sent_bytes": "bytes sent to the coordinator",
    "overhead": "overhead without failures",
    "overhead_low": "overhead, low",
    "overhead_high": "overhead, high",
    "checkpoint_ms": "checkpoint, ms",
    "seconds": "median s per window",
    "rate": "tuples per second",
}
"""Column headings of the notebook's tables."""


def which_for_whom(result: DrillResult) -> go.Figure:
    """A table in colours: windows lost, doubled and estimated, samples read again, and times."""
    table = result.table
    exact = table["again"]["exactly once"] / table["faults"]["exactly once"]
    cells = [
        scheme_cells(row, result.drill.requirement.delta, exact) for _, row in table.iterrows()
    ]
    names = [f"{name}<br><sup>{for_whom(row)}</sup>" for name, row in table.iterrows()]
    columns = (
        *("windows<br>lost", "windows<br>doubled", "estimated,<br>within ε"),
        *("read again<br>per fault", "back<br>after", "cost without<br>failures"),
    )
    figure = go.Figure(
        go.Heatmap(
            z=[[grade for _, grade in row] for row in cells],
            text=[[text for text, _ in row] for row in cells],
            x=columns, y=names, texttemplate="%{text}", colorscale=SCALE,
            zmin=0, zmax=1, showscale=False, xgap=3, ygap=3, hoverinfo="skip",
        )
    )  # fmt: skip
    styled(figure, "Which scheme, for whom?", "", "", 180 + 46 * len(names))
    figure.update_xaxes(side="top", showline=False, ticks="", tickangle=0)
    figure.update_yaxes(autorange="reversed", showline=False, ticks="")
    figure.update_layout(meta={"least": 720})  # pixels: on a phone it is scrolled
    figure.update_layout(margin={"l": 250, "t": 110, "r": 10, "b": 20})
    return named(figure, x="measure", y="scheme", z="grade")


def scheme_cells(row: pd.Series, delta: float, exact: float) -> list[tuple[str, float]]:
    """Text and grade of a scheme's cells; `exact`: samples reread by "exactly once" per fault."""
    again = row["again"] / row["faults"]
    # in D4 the samples read again depend on the rate alone
    _, again_grade = ("", FAIR) if is_of("D4", row) else graded(again / exact, "", 0.5, 0.9)
    estimates = ("none", GOOD)
    if row["estimated"]:
        text = f"{row['estimated'] / row['due']:.1%}, {row['within']:.1%}"
        estimates = (text, FAIR if row["share_high"] >= 1 - delta else BAD)
    harms = (row["lost"] / row["due"], row["doubled"] / row["due"])
    return [
        *((f"{share:.1%}", BAD) if share else ("none", GOOD) for share in harms),
        estimates,
        (f"{again:,.0f}", again_grade),
        graded(row["recovery_ms"] / 1000, "{:.2f} s", 0.5, 2.5),
        graded(row["overhead"], "{:+.0%}", 0.05, 0.25),
    ]


def graded(value: float, text: str, good: float, fair: float) -> tuple[str, float]:
    """Text and grade of a number: good, fair or bad by two limits, and fair if it is missing."""
    if not np.isfinite(value):
        return "–", FAIR
    return text.format(value), GOOD if value <= good else FAIR if value <= fair else BAD


def is_of(document: str, row: pd.Series) -> bool:
    """Whether a row's scheme belongs to the document `document`."""
    return str(row.name).startswith(document)


def for_whom(row: pd.Series) -> str:
    """Users whom a scheme with such results serves."""
    if row["lost"]:
        replaced = row["recovery_ms"] > 0
        return "for live displays that tolerate a gap" if replaced else "for nobody"
    if row["doubled"]:
        return "for readers that tolerate repeats"
    if row["estimated"]:
        return "for monitoring: input is expensive, ±ε is enough"
    if row.name in (DRIVER, SUPERVISOR):
        return "a test, not a further scheme"
    if is_of("D4", row):
        return "for results that may not pause: a second machine"
    if is_of("D3", row):
        return "for exact sums that many tasks share"
    return "for exact results: every one counts"


def stacked(
    table: pd.DataFrame, colors: Mapping[str, str], title: str, x: str, text: str
) -> go.Figure:
    """Horizontal stacked bars of the columns that have a colour, one bar per scheme."""
    figure = px.bar(table, x=[*colors], orientation="h", color_discrete_sequence=[*colors.values()])
    figure.update_traces(hovertemplate=text).update_layout(legend_title="")
    named(styled(figure, title, x, "", 150 + 28 * len(table)), y="scheme")
    return figure.update_yaxes(autorange="reversed").update_layout(margin={"l": 230})


def outcomes(result: DrillResult) -> go.Figure:
    """Windows lost, doubled and estimated by each scheme, as shares of all windows."""
    colors = {"lost": RED, "doubled": ORANGE, "estimated": BLUE}
    shares = result.table[[*colors]].div(result.table["due"], axis=0).astype(float)
    x = "share of all windows and sensors"
    figure = stacked(shares.where(shares > 0), colors, "Outcome of the windows", x, "%{x:.2%}")
    return figure.update_xaxes(tickformat=".0%")


def recovery(result: DrillResult) -> go.Figure:
    """Phases of a recovery: until a replacement works, until the lost results are emitted."""
    table = result.table[result.table["recovery_ms"] > 0]
    whole = table["recovery_ms"].where(table["rework_ms"].isna())
    parts = pd.DataFrame(
        {
            "until the failure is noticed and a replacement runs": table["restart_ms"],
            "until the lost results are emitted": table["rework_ms"].fillna(whole),
        }
    ).astype(float)
    colors = {str(name): color for name, color in zip(parts, (GREY, BLUE), strict=True)}
    title = "Recovery and its phases, median"
    figure = stacked(parts, colors, title, "ms", "%{x:.0f} ms")
    figure.add_scatter(  # numbers, because short bars are hard to read
        y=table.index, x=table["recovery_ms"], text=[f"{t:,.0f}" for t in table["recovery_ms"]],
        mode="text", textposition="middle right", cliponaxis=False, showlegend=False,
        hoverinfo="skip",
    )  # fmt: skip
    # space for the number of the longest bar
    return figure.update_xaxes(range=[0, 1.25 * table["recovery_ms"].max()])


def read_again(result: DrillResult) -> go.Figure:
    """Samples read again as a share of an exact recovery's, and the plan's share."""
    table = result.table.dropna(subset=["planned"])
    figure = go.Figure()
    figure.add_bar(x=table.index, y=table["read"], name="measured", marker={"color": BLUE})
    figure.add_scatter(
        x=table.index, y=table["planned"], name="planned", mode="markers",
        marker={"color": "#333", "symbol": "line-ew-open", "size": 42, "line": {"width": 3}},
    )  # fmt: skip
    title = "Samples read again, as a share of an exact recovery's after the same kills"
    named(styled(figure, title, "", "share", HEIGHT), x="scheme")
    return figure.update_yaxes(tickformat=".0%", rangemode="tozero")


def latency(result: DrillResult) -> go.Figure:
    """Latency of the micro-batches at a constant rate of input, one panel per scheme."""
    metrics = result.metrics
    figure = make_subplots(
        rows=len(metrics), shared_xaxes=True, subplot_titles=[*metrics],
        vertical_spacing=0.35 / len(metrics),
    )  # fmt: skip
    batches = sorted({result.drill.batch_of(fault.step) for fault in result.drill.schedule})
    for number, each in enumerate(metrics.values(), 1):
        figure.add_scatter(
            y=each.latency_s, mode="lines+markers", showlegend=False, row=number, col=1,
            line={"color": COLORS[(number - 1) % len(COLORS)]},
            hovertemplate="micro-batch %{x}: %{y:.2f} s<extra></extra>",
        )  # fmt: skip
        for batch in batches:
            figure.add_vline(batch, line={"color": "#bbb", "dash": "dot"}, row=number, col=1)
    title = "Latency (s) at a constant input of 70 % of the throughput; dotted: faults"
    named(styled(figure, title, "", "", 140 + 130 * len(metrics)), y="latency (s)")
    figure.update_xaxes(title_text="micro-batch", row=len(metrics), col=1)
    return figure.update_yaxes(rangemode="tozero")


def table(result: DrillResult) -> Styler:
    """The whole table."""
    formats: dict[Any, Any] = {
        column: text for text, columns in FORMATS.items() for column in columns
    }
    shown = result.table[[c for c in COLUMNS if c == "basis" or c in formats]]
    return shown.style.format(formats, na_rep="–")
