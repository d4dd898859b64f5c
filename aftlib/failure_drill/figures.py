"""Figures and tables of the drill; the first answers which scheme is for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from pandas.io.formats.style import Styler
from plotly.subplots import make_subplots

from aftlib.failure_drill.coordinators import COORDINATORS
from aftlib.failure_drill.experiments import Drilled
from aftlib.reports.style import BLUE, GREEN, GREY, HEIGHT, ORANGE, PURPLE, RED, styled

COLORS = (RED, ORANGE, PURPLE, GREY, BLUE, GREEN, "#56B4E9", "#004D40")
GOOD, FAIR, BAD = 1.0, 0.5, 0.0
SCALE = [(0.0, "#f3c1ab"), (0.5, "#f6e7b8"), (1.0, "#bfe3d3")]


def which_for_whom(drilled: Drilled) -> go.Figure:
    """A table in colours: what each scheme lost, doubled, estimated, read again, and took."""
    table, delta = drilled.table, drilled.drill.requirement.delta
    texts, goods = [], []
    exactly = table["again"]["exactly once"] / table["strikes"]["exactly once"]
    for _, row in table.iterrows():
        cells = [
            share_cell(row["lost"] / row["due"]),
            share_cell(row["doubled"] / row["due"]),
            estimates(row, delta),
            again_cell(row, exactly),
            graded(row["recovery_ms"] / 1000, "{:.2f} s", 0.5, 2.5),
            graded(row["overhead"], "{:+.0%}", 0.05, 0.25),
        ]
        texts.append([text for text, _ in cells])
        goods.append([float(good) for _, good in cells])
    names = [f"{name}<br><sup>{for_whom(row)}</sup>" for name, row in table.iterrows()]
    columns = (
        *("windows<br>lost", "windows<br>doubled", "estimated,<br>within ε"),
        *("read again<br>a strike", "back<br>after", "cost in<br>calm"),
    )
    figure = go.Figure(
        go.Heatmap(
            z=goods, x=columns, y=names, text=texts, texttemplate="%{text}", colorscale=SCALE,
            zmin=0, zmax=1, showscale=False, xgap=3, ygap=3, hoverinfo="skip",
        )
    )  # fmt: skip
    title = "Which scheme, for whom?"
    styled(figure, title, "", "", 180 + 46 * len(names))
    figure.update_xaxes(side="top", showline=False, ticks="", tickangle=0)
    figure.update_yaxes(autorange="reversed", showline=False, ticks="")
    figure.update_layout(meta={"least": 720})  # pixels: on a phone it is scrolled
    return figure.update_layout(margin={"l": 250, "t": 110, "r": 10, "b": 20})


def share_cell(share: float) -> tuple[str, float]:
    """What should not be at all."""
    return (f"{share:.1%}", BAD) if share else ("none", GOOD)


def again_cell(row: pd.Series, exactly: float) -> tuple[str, float]:
    """What is read again a strike; of D4 that depends on the rate alone, so it is neither."""
    again = row["again"] / row["strikes"]
    _, good = graded(again / exactly, "", 0.5, 0.9)
    return f"{again:,.0f}", FAIR if str(row.name).startswith("D4") else good


def estimates(row: pd.Series, delta: float) -> tuple[str, float]:
    """How much was estimated, and how much of that was good enough."""
    if not row["estimated"]:
        return "none", GOOD
    kept = row["share_high"] >= 1 - delta
    return f"{row['estimated'] / row['due']:.1%}, {row['within']:.1%}", FAIR if kept else BAD


def graded(value: float, text: str, good: float, fair: float) -> tuple[str, float]:
    """A number, good or fair up to a limit each; fair where there is none."""
    if not np.isfinite(value):
        return "–", FAIR
    return text.format(value), GOOD if value <= good else FAIR if value <= fair else BAD


def for_whom(row: pd.Series) -> str:
    """Whom a scheme with such results serves."""
    if row["lost"] and not row["recovery_ms"] > 0:
        return "for nobody who looks at the results"
    if row["lost"]:
        return "for live displays: a gap does no harm"
    if row["doubled"]:
        return "for readers that bear repeats"
    if row["estimated"]:
        return "for monitoring: input is dear, ±ε is enough"
    if row.name in COORDINATORS:
        return "for all: the one process beside the workers"
    if str(row.name).startswith("D4"):
        return "for results that may not pause: a second machine"
    if str(row.name).startswith("D3"):
        return "for exact sums that many tasks share"
    return "for exact results: every one counts"


def outcomes(drilled: Drilled) -> go.Figure:
    """Windows lost, doubled and estimated by each scheme, in a share of all that were due."""
    table, figure = drilled.table, go.Figure()
    for name, color in (("lost", RED), ("doubled", ORANGE), ("estimated", BLUE)):
        share = table[name] / table["due"]
        figure.add_bar(
            y=table.index, x=share.where(share > 0), name=name, orientation="h",
            marker={"color": color}, hovertemplate="%{x:.2%}",
        )  # fmt: skip
    title = "What came of the windows"
    styled(figure, title, "share of all windows and sensors", "", 150 + 28 * len(table))
    figure.update_xaxes(tickformat=".0%").update_yaxes(autorange="reversed")
    return figure.update_layout(barmode="stack", margin={"l": 230})


def recovery(drilled: Drilled) -> go.Figure:
    """The parts of a recovery, cold: until somebody works again, until what was lost is out."""
    table = drilled.table[drilled.table["recovery_ms"] > 0]
    whole = table["recovery_ms"].where(table["rework_ms"].isna())
    table = table.assign(rework_ms=table["rework_ms"].fillna(whole))
    figure = go.Figure()
    for name, text, color in (
        ("restart_ms", "until it is noticed and a substitute works", GREY),
        ("rework_ms", "until what was lost is out", BLUE),
    ):
        figure.add_bar(
            y=table.index, x=table[name], name=text, orientation="h", marker={"color": color},
            hovertemplate="%{x:.0f} ms",
        )  # fmt: skip
    figure.add_scatter(  # the short ones would be read off no axis
        y=table.index, x=table["recovery_ms"], text=[f"{t:,.0f}" for t in table["recovery_ms"]],
        mode="text", textposition="middle right", cliponaxis=False, showlegend=False,
        hoverinfo="skip",
    )  # fmt: skip
    styled(figure, "Recovery in its parts, median", "ms", "", 150 + 28 * len(table))
    # room for the longest's number
    figure.update_xaxes(range=[0, 1.25 * table["recovery_ms"].max()])
    figure.update_yaxes(autorange="reversed")
    return figure.update_layout(barmode="stack", margin={"l": 230})


def read_again(drilled: Drilled) -> go.Figure:
    """What is read again of what an exact recovery reads, beside the plan."""
    table = drilled.table.dropna(subset=["planned"])
    figure = go.Figure()
    figure.add_bar(x=table.index, y=table["read"], name="measured", marker={"color": BLUE})
    figure.add_scatter(
        x=table.index, y=table["planned"], name="planned", mode="markers",
        marker={"color": "#333", "symbol": "line-ew-open", "size": 42, "line": {"width": 3}},
    )  # fmt: skip
    title = "Samples read again, of what an exact recovery reads of the same kills"
    return styled(figure, title, "", "share", HEIGHT).update_yaxes(
        tickformat=".0%", rangemode="tozero"
    )


def latency(drilled: Drilled) -> go.Figure:
    """Latency of the micro-batches at a constant rate of input, and when something was struck."""
    paces = drilled.paces
    figure = make_subplots(
        rows=len(paces), shared_xaxes=True, subplot_titles=[*paces],
        vertical_spacing=0.35 / len(paces),
    )  # fmt: skip
    struck = sorted({drilled.drill.batch_of(s.step) for s in drilled.drill.strikes})
    for number, (name, found) in enumerate(paces.items(), 1):
        figure.add_scatter(
            y=found.latency_s, mode="lines+markers", name=name, showlegend=False, row=number, col=1,
            line={"color": COLORS[(number - 1) % len(COLORS)]},
            hovertemplate="micro-batch %{x}: %{y:.2f} s<extra></extra>",
        )  # fmt: skip
        for batch in struck:
            figure.add_vline(batch, line={"color": "#bbb", "dash": "dot"}, row=number, col=1)
    title = "Latency (s) at a constant input of 70 % of what each can bear; dotted: struck"
    styled(figure, title, "", "", 140 + 130 * len(paces))
    figure.update_xaxes(title_text="micro-batch", row=len(paces), col=1)
    return figure.update_yaxes(rangemode="tozero")


def soak(result: Mapping) -> go.Figure:
    """Memory of each scheme over a soak, and what it kept on disk beyond its input."""
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.12)
    for color, (name, one) in zip(COLORS, result["schemes"].items(), strict=False):
        look = {"x": np.array(one["at_s"]) / 60, "name": name, "line": {"color": color}}
        figure.add_scatter(**look, y=one["memory_mb"], row=1, col=1)
        figure.add_scatter(**look, y=one["kept_mb"], row=2, col=1, showlegend=False)
    title = "A soak: memory and files of four schemes struck side by side"
    styled(figure, title, "", "", HEIGHT + 150)
    figure.update_yaxes(title_text="memory, MB", row=1, col=1, rangemode="tozero")
    figure.update_yaxes(title_text="on disk, MB", row=2, col=1, rangemode="tozero")
    return figure.update_xaxes(title_text="minutes", row=2, col=1)


def soak_table(result: Mapping) -> pd.DataFrame:
    """What each scheme of a soak came to: its own account, and how its memory grew, MB an hour."""
    rows = {
        name: one["found"] | {f"memory_{part}": v for part, v in (one["growth"] or {}).items()}
        for name, one in result["schemes"].items()
    }
    return pd.DataFrame(rows).T.convert_dtypes().round(2)


def table(drilled: Drilled) -> Styler:
    """The whole table."""
    named: dict[Any, Any] = {
        "basis": None,
        **dict.fromkeys(
            ("strikes", "due", "lost", "doubled", "estimated", "wrong", "rows", "again"), "{:,.0f}"
        ),
        **dict.fromkeys(("within", "share_low", "share_high"), "{:.2%}"),
        **dict.fromkeys(("planned", "read"), "{:.1%}"),
        "largest_error": "{:.2f} ε",
        **dict.fromkeys(("restart_ms", "rework_ms", "recovery_ms"), "{:,.0f}"),
        **dict.fromkeys(("latency_s", "throughput_s"), "{:.2f}"),
        "worst": "{:.1f} ×",
        "unsteady": "{:.0f}",
        **dict.fromkeys(("kept_bytes", "sent_bytes"), "{:,.0f}"),
        **dict.fromkeys(("overhead", "overhead_low", "overhead_high"), "{:+.1%}"),
        "checkpoint_ms": "{:.2f}",
    }
    shown = drilled.table[[*named]]
    return shown.style.format(named, na_rep="–")
