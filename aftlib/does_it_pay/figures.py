"""Figures and tables of recoveries; the first shows from which read rate on estimating pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from pandas.io.formats.style import Styler

from aftlib.core.recovery_costs import Operation, monthly_costs
from aftlib.does_it_pay.break_even import BY_PROCESS, COMPARED
from aftlib.does_it_pay.experiments import (
    SCHEMES,
    Measurements,
    own_numbers,
    own_schemes,
    scheme_table,
)
from aftlib.workbench.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, styled

COLORS = dict(zip(SCHEMES, (RED, GREY, BLUE, GREEN, PURPLE, ORANGE), strict=True))
LEGEND = {"y": -0.18, "yanchor": "top", "x": 0, "xanchor": "left"}
"""Legend below panels that have titles of their own."""
BEYOND = 8
"""Where “unlimited” stands on an axis of rates, as a multiple of the highest rate."""
OUTCOMES = {
    "within": "of these within ε",
    "again": "samples read again",
    "fixed_ms": "fixed, ms",
    "reading_s": "reading, s",
    "seconds": "recovery, s",
    "added_ms": "added to a window while nothing fails, ms",
}
"""Titles of the columns that do not read as they are named; those of `EVEN` and `OWN`, too."""
EVEN = {
    "width": "window, steps",
    "saved": "samples saved",
    "extra_ms": "extra time, ms",
    "extra_low": "95 %, from",
    "extra_high": "to",
    "predicted": "break-even, predicted",
    "measured_low": "at least",
}
OWN = {
    "recovery_s": "recovery, s",
    "outage_minutes": "outage, minutes",
    "gb_read_again": "read again, GB",
    "checkpoint_minutes": "checkpoints, minutes",
    "estimated_results": "estimated results",
}


def recovery_times(measured: Measurements) -> go.Figure:
    """Seconds from the kill until all due windows are out, against the read rate.

    One row of panels per kind of process, one column per window length.
    """
    points = measured.points.sort_values("rate")
    limited = sorted(points["rate"][np.isfinite(points["rate"])].unique())
    beyond = BEYOND * limited[-1]
    panels = {False: "one of D1's workers killed", True: "D2's process killed"}
    points = points.assign(
        rate=points["rate"].replace(np.inf, beyond),
        up=points["seconds_high"] - points["seconds"],
        down=points["seconds"] - points["seconds_low"],
        process=points["scheme"].isin(BY_PROCESS).map(panels),
        steps=points["width"].map("windows of {} steps".format),
    )
    look = {
        **{"x": "rate", "color": "scheme", "facet_row": "process", "facet_col": "steps"},
        "category_orders": {"scheme": [*SCHEMES], "process": [*panels.values()]},
        "color_discrete_map": COLORS,
    }
    symbols = {name: "circle-open" if name in COMPARED else "circle" for name in SCHEMES}
    marks = {"y": "seconds", "error_y": "up", "error_y_minus": "down", "symbol_map": symbols}
    figure = px.scatter(points, **look, **marks, symbol="scheme")
    figure.update_traces(marker_size=9, error_y_thickness=1)
    for column, dash, width in (("predicted_s", "dot", 1.5), ("fixed_s", "dash", 0.8)):
        lines = px.line(points, **look, y=column)
        lines.update_traces(line={"dash": dash, "width": width}, showlegend=False, hoverinfo="skip")
        figure.add_traces(lines.data)
    figure.for_each_annotation(lambda title: title.update(text=title.text.partition("=")[2]))
    styled(figure, "Seconds until all due windows are out, by read rate", "", "", 700)
    labels = [f"{rate:g}" for rate in limited] + ["unlimited"]
    figure.update_xaxes(type="log", tickvals=[*limited, beyond], ticktext=labels)
    figure.update_xaxes(title_text="samples per second, logarithmic", row=1)
    figure.update_yaxes(type="log", dtick=1)
    figure.update_yaxes(title_text="seconds, logarithmic", col=1)
    figure.update_layout(hovermode="closest", legend=LEGEND, margin={"b": 130})
    return figure


def own_outage(measured: Measurements, operation: Operation) -> go.Figure:
    """Minutes of outage per month by your read rate; the dashed line is yours."""
    schemes = own_schemes(measured)
    rates = np.geomspace(1.2 * operation.samples_per_s, 1e4 * operation.samples_per_s, 60)
    months = {
        rate: monthly_costs(replace(operation, read_rate=rate), schemes) for rate in rates.tolist()
    }
    rows = pd.concat(months, names=["rate"]).reset_index()
    figure = px.line(rows, "rate", "outage_minutes", color="scheme", color_discrete_map=COLORS)
    figure.add_vline(x=operation.read_rate, line={"color": "#333", "dash": "dash"})
    title = "Your outage by read rate, from the cost model"
    styled(figure, title, "samples per second, logarithmic", "minutes per month, logarithmic")
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick=1)
    return figure.update_layout(hovermode="closest", legend=LEGEND, margin={"b": 110})


def outcome_table(measured: Measurements) -> Styler:
    """All schemes under the same kills, in the longest windows at the slowest rate."""
    formats: dict[Any, Any] = {
        "of these within ε": "{:.1%}",
        "fixed, ms": "{:.0f}",
        "reading, s": "{:.2f}",
        "recovery, s": "{:.2f}",
        OUTCOMES["added_ms"]: "{:.2f}",
    }
    table = scheme_table(measured).rename(columns=OUTCOMES)
    return table.style.format(formats, precision=0, na_rep="–")


def break_even_table(measured: Measurements) -> Styler:
    """Break-even rates in samples per second; ∞: faster at every rate."""
    rates = ["break-even, predicted", "measured", "at least"]
    table = measured.break_even.rename(columns=EVEN)
    table[rates] = table[rates].map(lambda rate: "∞" if np.isinf(rate) else f"{rate:,.0f}")
    return table.style.format(precision=1).hide(axis="index")


def own_table(measured: Measurements, operation: Operation) -> Styler:
    """Cost of each scheme in the user's operation per month."""
    table = own_numbers(measured, operation).rename(columns=OWN)
    formats: dict[Any, Any] = {"read again, GB": "{:.6f}", "price": "{:.6f}"}
    formats["estimated results"] = "{:,.0f}"
    return table.style.format(formats, precision=2)
