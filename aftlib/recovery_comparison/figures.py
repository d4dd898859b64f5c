"""Figures and tables of recoveries; the first shows from which read rate on estimating pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.express as px
import plotly.graph_objects as go
from pandas.io.formats.style import Styler

from aftlib.core.recovery_costs import Operation
from aftlib.notebook.style import BLUE, GREEN, GREY, ORANGE, styled, table, threshold
from aftlib.recovery_comparison import tables
from aftlib.recovery_comparison.experiments import Measurements
from aftlib.recovery_comparison.schemes import GUARD, LAST, MODEL, PARTIAL

COLORS = {MODEL: BLUE, GUARD: GREEN, LAST: GREY, PARTIAL: ORANGE}
SYMBOLS = {MODEL: "circle", GUARD: "square", LAST: "x", PARTIAL: "diamond"}
BEYOND = 8
"""Where “unlimited” stands on an axis of rates, as a multiple of the highest rate."""
APART = 1.06
"""Factor between the rates at which the marks of two schemes are drawn, so that all show."""
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


def recovery_ratios(measured: Measurements) -> go.Figure:
    """Time of each approximate recovery over that of the exact one, against the read rate.

    One panel per window length.
    """
    ratios = measured.ratios.sort_values("rate")
    limited = sorted(ratios["rate"][np.isfinite(ratios["rate"])].unique())
    beyond = BEYOND * limited[-1]
    schemes = ratios["scheme"].unique().tolist()
    places = {name: APART ** (i - (len(schemes) - 1) / 2) for i, name in enumerate(schemes)}
    ratios = ratios.assign(
        rate=ratios["rate"].replace(np.inf, beyond) * ratios["scheme"].map(places),
        up=ratios["high"] - ratios["ratio"],
        down=ratios["ratio"] - ratios["low"],
        window=ratios["width"].map("windows of {} hours".format),
    )
    look: dict[str, Any] = {
        "x": "rate",
        "color": "scheme",
        "facet_col": "window",
        "category_orders": {"scheme": schemes},
        "color_discrete_map": COLORS,
    }
    figure = px.scatter(
        ratios,
        **look,
        y="ratio",
        error_y="up",
        error_y_minus="down",
        symbol="scheme",
        symbol_map=SYMBOLS,
    )
    figure.update_traces(marker_size=9, error_y_thickness=1)
    lines = px.line(ratios, **look, y="predicted")
    lines.update_traces(line_dash="dot", line_width=1.5, showlegend=False, hoverinfo="skip")
    figure.add_traces(lines.data)
    figure.for_each_annotation(lambda title: title.update(text=title.text.partition("=")[2]))
    styled(
        figure, "Time of approximate over exact recovery; below 1 estimating is faster", "", "", 470
    )
    threshold(figure, 1.0, "")
    labels = [f"{rate:g}" for rate in limited] + ["unlimited"]
    figure.update_xaxes(type="log", tickvals=[*limited, beyond], ticktext=labels)
    panels = ratios["window"].nunique()
    title = "samples read again per second, logarithmic"
    figure.update_xaxes(title_text=title, col=(panels + 1) // 2)  # once, because panels are narrow
    figure.update_yaxes(type="log", tickvals=TICKS, ticktext=[f"{tick:g}" for tick in TICKS])
    figure.update_yaxes(title_text="ratio of times, logarithmic", col=1)
    legend = {"y": -0.25, "yanchor": "top", "x": 0, "xanchor": "left"}  # below the axis titles
    return figure.update_layout(hovermode="closest", legend=legend, margin={"b": 110})


def outcome_table(measured: Measurements) -> Styler:
    """All schemes under the same kills, in the longest windows at the slowest rate."""
    titles = {
        "lost": "results lost",
        "doubled": "results doubled",
        "estimated": "results estimated",
        "again": "samples replayed",
        "fixed_ms": "start and work, ms",
        "reading_s": "waiting for samples, s",
        "recovery_s": "recovery, s",
        "added_ms": "added to each window, ms",
    }
    return table(tables.scheme_table(measured).reset_index().rename(columns=titles))


def accuracy_table(measured: Measurements) -> Styler:
    """How many of the lost results are estimated, and how many of the estimates are within ε."""
    rows = measured.accuracy
    interval = [
        f"{percent(low)} to {percent(high)}" if np.isfinite(low) else "–"
        for low, high in rows[["low", "high"]].itertuples(index=False)
    ]
    frame = rows[["scheme", "width", "lost"]].assign(
        estimated=rows["estimated"].map(percent),
        within=rows["within"].map(percent),
        interval=interval,
    )
    titles = {
        "width": "window, hours",
        "lost": "results lost",
        "estimated": "of them estimated",
        "within": "estimates within ε",
        "interval": "95 % interval",
    }
    return table(frame.rename(columns=titles))


def threshold_table(measured: Measurements) -> Styler:
    """Backups and errors with AF-Stream's threshold Θ, under the same kills."""
    frame = measured.thresholds.copy()
    shares = ["restored", "item_lost", "outage"]
    frame[shares] = frame[shares].map(percent)
    titles = {
        "width": "window, hours",
        "threshold": "Θ, in ε",
        "backups": "backups per sensor and window",
        "again": "samples replayed",
        "largest": "largest error, in ε",
        "restored": "within ε",
        "item_lost": "last sample lost, too: within ε",
        "outage": "next window lost: within ε",
    }
    return table(frame.rename(columns=titles))


def operation_table(measured: Measurements) -> Styler:
    """Throughput and latency of each method while nothing fails."""
    frame = tables.normal_table(measured).reset_index()
    frame["speed"] = frame["speed"].map(percent)
    titles = {
        "per_s": "samples per second",
        "speed": "share of the first row's speed",
        "latency_ms": "latency of a result, ms",
        "outage_s": f"longest outage at {measured.recoveries['rate'].min():,g} samples/s, s",
    }
    return table(frame.rename(columns=titles))


def break_even_table(measured: Measurements) -> Styler:
    """Break-even rates in samples per second; ∞: faster at every rate."""
    titles = {
        "width": "window, hours",
        "saved": "samples saved",
        "extra_ms": "extra time, ms",
        "predicted": "predicted break-even, samples/s",
        "measured": "measured break-even, samples/s",
    }
    return table(measured.break_even.rename(columns=titles))


def own_table(measured: Measurements, operation: Operation, t_sla_s: float) -> Styler:
    """Cost of each scheme in the user's operation per month, with both criteria."""
    titles = {
        "recovery_s": "one recovery, s",
        "outage_minutes": "outages, min",
        "gb_read_again": "read again, GB",
        "checkpoint_minutes": "checkpoints, min",
        "estimated_results": "results estimated",
        "keeps_from": "exact recovery keeps T_SLA from, samples/s",
        "faster_below": "estimating is faster below, samples/s",
    }
    frame = tables.own_table(measured, operation, t_sla_s).reset_index()
    return table(frame.rename(columns=titles))


def percent(share: float) -> str:
    """Return a share as a percentage with three digits, a dash for NaN.

    >>> percent(0.97379), percent(float("nan"))
    ('97.4 %', '–')
    """
    return f"{100 * share:.3g} %" if np.isfinite(share) else "–"
