"""Figures and tables of recoveries; the first shows from which read rate on estimating pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from pandas.io.formats.style import Styler

from aftlib.core.recovery_costs import Operation
from aftlib.does_it_pay.break_even import BY_PROCESS, COMPARED
from aftlib.does_it_pay.experiments import SCHEMES, Measurements, own_numbers, scheme_table
from aftlib.workbench.scorecard import shown
from aftlib.workbench.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, styled

COLORS = dict(zip(SCHEMES, (RED, GREY, BLUE, GREEN, PURPLE, ORANGE), strict=True))
#: Where “unlimited” stands on an axis of rates, as a multiple of the highest rate.
BEYOND = 8


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
        up=points["max"] - points["seconds"],
        down=points["seconds"] - points["min"],
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
    lines = px.line(points, **look, y="predicted_s")
    lines.update_traces(line_dash="dot", line_width=1.5, showlegend=False, hoverinfo="skip")
    figure.add_traces(lines.data)
    figure.for_each_annotation(lambda title: title.update(text=title.text.partition("=")[2]))
    styled(figure, "Seconds until all due windows are out, by read rate", "", "", 700)
    labels = [f"{rate:g}" for rate in limited] + ["unlimited"]
    figure.update_xaxes(type="log", tickvals=[*limited, beyond], ticktext=labels)
    figure.update_xaxes(title_text="samples per second, logarithmic", row=1)
    figure.update_yaxes(type="log", dtick=1)
    figure.update_yaxes(title_text="seconds, logarithmic", col=1)
    legend = {"y": -0.18, "yanchor": "top", "x": 0, "xanchor": "left"}  # below the panels' titles
    return figure.update_layout(hovermode="closest", legend=legend, margin={"b": 130})


def outcome_table(measured: Measurements) -> Styler:
    """All schemes under the same kills, in the longest windows at the slowest rate."""
    return readable(scheme_table(measured).reset_index())


def break_even_table(measured: Measurements) -> Styler:
    """Break-even rates in samples per second; ∞: faster at every rate."""
    return readable(measured.break_even.replace(np.inf, "∞"))


def own_table(measured: Measurements, operation: Operation) -> Styler:
    """Cost of each scheme in the user's operation per month."""
    return readable(own_numbers(measured, operation).reset_index())


def readable(table: pd.DataFrame) -> Styler:
    """Return a table with titles such as “fixed ms”, and numbers rounded as in a scorecard."""
    titled = table.rename(columns=lambda name: name.replace("_", " ").replace("gb", "GB"))
    formats: Any = shown
    return titled.style.format(formats, na_rep="–").hide(axis="index")
