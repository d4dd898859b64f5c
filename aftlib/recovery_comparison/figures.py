"""Figures and tables of notebook 07; the first shows from which read rate on estimating pays.

Functions that end in `_table` return what a reader sees; the others what it is made from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from pandas.io.formats.style import Styler

from aftlib.core.recovery_costs import Alternatives, Operation, Scheme, monthly_costs
from aftlib.notebook.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    panel_titles,
    styled,
    table,
    threshold,
)
from aftlib.notebook.texts import short_percent as percent
from aftlib.recovery_comparison.break_even import expected_again
from aftlib.recovery_comparison.experiments import Measurements
from aftlib.recovery_comparison.normal import UNPROTECTED
from aftlib.recovery_comparison.schemes import (
    BY_PROCESS,
    EXACT,
    GUARD,
    LAST,
    MODEL,
    NOTHING,
    PARTIAL,
    exact_of,
)

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
    panel_titles(figure)
    title = "Time of approximate over exact recovery; below 1 estimating is faster"
    styled(figure, title, "", "", 470, hover="closest")
    threshold(figure, 1.0, "")
    labels = [f"{rate:g}" for rate in limited] + ["unlimited"]
    figure.update_xaxes(type="log", tickvals=[*limited, beyond], ticktext=labels)
    panels = ratios["window"].nunique()
    title = "samples read again per second, logarithmic"
    figure.update_xaxes(title_text=title, col=(panels + 1) // 2)  # once, because panels are narrow
    figure.update_yaxes(type="log", tickvals=TICKS, ticktext=[f"{tick:g}" for tick in TICKS])
    figure.update_yaxes(title_text="ratio of times, logarithmic", col=1)
    legend = {"y": -0.25, "yanchor": "top", "x": 0, "xanchor": "left"}  # below the axis titles
    return figure.update_layout(legend=legend, margin={"b": 110})


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
    return table(summarize_schemes(measured).reset_index().rename(columns=titles))


def summarize_schemes(measured: Measurements) -> pd.DataFrame:
    """Return one row per scheme, in the longest windows: outcomes, samples and times.

    Outcomes count all kills. At the slowest rate, recovery_s is the median time of a recovery. Of
    it, reading_s is the wait for the samples, and fixed_ms the rest.
    """
    rows = measured.recoveries
    width = rows["width"].max()
    rate = rows["rate"].min()
    slow = rows[(rows["width"] == width) & (rows["rate"] == rate)]
    medians = slow.groupby("scheme")[["again", "seconds"]].median()
    wait = medians["again"] / rate
    outcomes = measured.outcomes[measured.outcomes["width"] == width].set_index("scheme")
    frame = outcomes[["lost", "doubled", "estimated"]].join(medians["again"])
    frame["fixed_ms"] = 1e3 * (medians["seconds"] - wait)
    frame["reading_s"] = wait
    frame["recovery_s"] = medians["seconds"]
    return frame.join(outcomes["added_ms"])


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
    frame = summarize_operation(measured).reset_index()
    frame["speed"] = frame["speed"].map(percent)
    titles = {
        "per_s": "samples per second",
        "speed": "share of the first row's speed",
        "latency_ms": "latency of a result, ms",
        "outage_s": f"longest outage at {measured.recoveries['rate'].min():,g} samples/s, s",
    }
    return table(frame.rename(columns=titles))


def summarize_operation(measured: Measurements) -> pd.DataFrame:
    """Return one row per method in normal operation, over the turns.

    Columns: per_s: samples per second, the mean; speed: the same as a share of that without fault
    tolerance, as claim D1-7 compares speeds; latency_ms, the median; outage_s: the longest recovery
    at the slowest rate by the cost model, NaN without fault tolerance. With checkpoints, exact
    replay reads the samples since the last one.
    """
    rows = measured.recoveries
    slowest = float(rows["rate"].min())
    window = expected_again(rows, EXACT, int(rows["width"].max()))
    by_method = measured.normal.groupby("method", sort=False)
    per_s = by_method["per_s"].mean()
    outages = dict[str, float]()
    for method, checkpoints in by_method["checkpoints"].first().items():
        name = str(method)
        if checkpoints:
            again = window / checkpoints
            outages[name] = measured.costs[EXACT].recovery_s(again, False, slowest)
        elif name != UNPROTECTED:
            again = replayed_share(measured, name) * window
            outages[name] = measured.costs[name].recovery_s(again, True, slowest)
    frame = pd.DataFrame(
        {
            "per_s": per_s,
            "speed": per_s / float(per_s[UNPROTECTED]),
            "latency_ms": 1e3 * by_method["latency_s"].median(),
        }
    )
    return frame.assign(outage_s=pd.Series(outages))  # in the order of the methods


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
    frame = own_costs(measured, operation, t_sla_s).reset_index()
    return table(frame.rename(columns=titles))


def own_costs(measured: Measurements, operation: Operation, t_sla_s: float) -> pd.DataFrame:
    """Return the monthly costs of `own_numbers`, with both criteria as read rates.

    keeps_from, faster_below: total samples per second, live ones included, from which on the exact
    recovery keeps T_SLA, and below which the scheme is faster; NaN for exact schemes.
    """
    frame = own_numbers(measured, operation)
    choices = own_alternatives(measured, operation)
    live = operation.samples_per_s
    keeps = {name: live + choice.keeps_from(t_sla_s) for name, choice in choices.items()}
    faster = {name: live + choice.faster_below() for name, choice in choices.items()}
    return frame.assign(keeps_from=pd.Series(keeps), faster_below=pd.Series(faster))


def own_numbers(measured: Measurements, operation: Operation) -> pd.DataFrame:
    """Return the cost of each measured scheme in the user's operation, one row per scheme."""
    schemes = list[Scheme]()
    for name, costs in measured.costs.items():
        if name == NOTHING:
            continue
        replayed = replayed_share(measured, name)
        if name in BY_PROCESS:
            schemes.append(Scheme(name, costs, 1.0, replayed, measured.checkpoints))
        else:
            lost = 1 / measured.case.workers
            skips = exact_of(name) is not None
            schemes.append(Scheme(name, costs, lost, replayed, skips_input=skips))
    return monthly_costs(operation, schemes)


def own_alternatives(measured: Measurements, operation: Operation) -> dict[str, Alternatives]:
    """Return each approximate recovery beside the exact one in the user's operation, by scheme.

    A failure hits at the end of an interval between two checkpoints, so the recoveries are the
    longest.
    """
    choices = dict[str, Alternatives]()
    for name, costs in measured.costs.items():
        exact = exact_of(name)
        if exact is None:
            continue
        lost = operation.samples_per_s * operation.window_s
        lost /= measured.checkpoints if name in BY_PROCESS else measured.case.workers
        again = replayed_share(measured, name) * lost
        choices[name] = Alternatives(measured.costs[exact], costs, lost, again)
    return choices


def replayed_share(measured: Measurements, scheme: str) -> float:
    """Return the share of the lost samples that a scheme reads again, in the longest windows."""
    rows = measured.recoveries
    width = int(rows["width"].max())
    exact = exact_of(scheme) or scheme
    again = expected_again(rows, scheme, width)
    return again / expected_again(rows, exact, width) if again else 0.0
