"""Figures and tables of recoveries with limited input; the first shows which recovery pays."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from pandas.io.formats.style import Styler
from plotly.subplots import make_subplots

from aftlib.core.intervals import ratio_interval
from aftlib.core.paths import project_root
from aftlib.core.recovery_costs import Operation
from aftlib.does_it_pay.break_even import CASE, COMPARED
from aftlib.does_it_pay.experiments import (
    SCHEMES,
    Measurements,
    accuracy,
    calm_table,
    own_numbers,
)
from aftlib.workbench.style import BLUE, GREEN, GREY, HEIGHT, ORANGE, PURPLE, RED, named, styled

COLORS = dict(zip(SCHEMES, (GREY, BLUE, GREEN, "#333333", ORANGE, PURPLE), strict=True))
BELOW = {"y": -0.2, "yanchor": "top", "x": 0, "xanchor": "left"}
"""Legend below panels that have titles of their own."""
HEADINGS = {
    "against": "compared with",
    "predicted": "break-even, predicted",
    "predicted_low": "95 %, from",
    "predicted_high": "to",
    "measured": "break-even, measured",
    "measured_low": "95 % interval, from",
    "measured_high": "to ",
    "of": "points",
    "windows": "windows with estimates",
    "largest_error": "largest error",
    "recovery_s": "recovery, s",
    "outage_minutes": "outage, minutes",
    "gb_read_again": "read again, GB",
    "checkpoint_minutes": "checkpoints, minutes",
    "estimated_results": "estimated results",
    "estimated_share": "share of all results",
}
"""Headings of the columns in the notebook's tables, by the columns' names."""
OWN_FORMATS: dict[Any, Any] = {
    "recovery_s": "{:,.2f}",
    "outage_minutes": "{:,.2f}",
    "gb_read_again": "{:,.6f}",
    "price": "{:,.6f}",
    "checkpoint_minutes": "{:,.2f}",
    "estimated_results": "{:,.0f}",
    "estimated_share": "{:.4%}",
}


def most_sensors(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the case with most sensors."""
    return frame[frame["sensors"] == frame["sensors"].max()]


def saved_times(measured: Measurements) -> pd.DataFrame:
    """Mean time that each approximate scheme saves, one row per scheme, case and finite rate.

    Columns: scheme, sensors, window, rate, saved_s, and pays: 1 where the interval of the ratio of
    its time to that of the exact scheme lies below 1, −1 where it lies above, 0 where it contains
    1. Times contain only the work in which schemes differ, because the rest varies more than that.
    """
    limited = measured.recoveries[np.isfinite(measured.recoveries["rate"])]
    keys, rows = [*CASE, "rate"], []
    times = {key: group["work_s"].to_numpy() for key, group in limited.groupby(["scheme", *keys])}
    for (scheme, *place), mine in times.items():
        exact = times.get((COMPARED.get(scheme), *place))
        if exact is None:
            continue
        _, (low, high) = ratio_interval(mine, exact)
        about = dict(zip(keys, place, strict=True)) | {"saved_s": exact.mean() - mine.mean()}
        rows.append({"scheme": scheme} | about | {"pays": int(high < 1) - int(low > 1)})
    return pd.DataFrame(rows, columns=["scheme", *keys, "saved_s", "pays"])


FASTEST = 1e6
"""Highest read rate of the first figure, samples per second; it has arrows for higher rates."""
FLINK = {
    "system": "Flink",
    "rate": "read rate",
    "outage_s": "from the kill until every window is emitted, s",
    "samples_again": "samples read again",
    "lost": "windows lost",
    "doubled": "doubled",
    "wrong": "wrong",
    "samples_per_s": "samples/s without a failure",
}
"""Columns of Flink's stored recoveries, and their headings."""


def where_it_pays(measured: Measurements) -> go.Figure:
    """Read rate against window, one panel per approximate scheme: saved time and break-even."""
    saved, even = (most_sensors(f) for f in (saved_times(measured), measured.break_even))
    schemes = [name for name in COMPARED if (saved["scheme"] == name).any()]
    titles = [f"{name}, against {COMPARED[name]}" for name in schemes]
    figure = make_subplots(
        rows=2, cols=2, subplot_titles=titles, vertical_spacing=0.2, horizontal_spacing=0.14
    )
    bottom, top = saved["rate"].min() / 2, max(FASTEST, saved["rate"].max() * 4)
    named_so_far: set[str] = set()
    looks = (BLUE, "faster", 1), (GREY, "undecided", 0), (RED, "slower", -1)
    for number, scheme in enumerate(schemes):
        place = {"row": number // 2 + 1, "col": number % 2 + 1}
        for color, name, sign in looks:
            points = saved[(saved["scheme"] == scheme) & (saved["pays"] == sign)]
            figure.add_scatter(
                x=points["window"].astype(str), y=points["rate"], mode="markers+text", name=name,
                text=[f" {seconds:z.2f} s" for seconds in points["saved_s"]],
                textposition="middle right", legendgroup=name,
                showlegend=scheme == saved.loc[saved["pays"] == sign, "scheme"].min(),
                marker={"color": color, "size": 13}, cliponaxis=False, **place,
            )  # fmt: skip
        for trace in _break_even(even[even["scheme"] == scheme], bottom, top):
            figure.add_trace(trace.update(showlegend=trace.name not in named_so_far), **place)
            named_so_far.add(trace.name)
    title = "Below this read rate it pays: seconds of work saved per failure, start excluded"
    styled(figure, title, "", "", 680)
    ends = [math.log10(bottom / 1.3), math.log10(top * 2)]
    figure.update_yaxes(type="log", dtick=1, exponentformat="power", range=ends)
    figure.update_yaxes(title_text="samples per second", col=1)
    last = saved["window"].nunique() - 0.4  # leaves space for the numbers
    windows = [str(window) for window in sorted(saved["window"].unique())]
    order = {"categoryorder": "array", "categoryarray": windows}
    figure.update_xaxes(title_text="window, steps", type="category", range=[-0.3, last], **order)
    figure.update_layout(hovermode="closest", meta={"least": 720}, legend=BELOW)
    return figure.update_layout(margin={"b": 110})


def _break_even(here: pd.DataFrame, bottom: float, top: float) -> Iterator[go.Scatter]:
    """Break-even rates of a scheme, measured ones with intervals; arrows stand for rates outside.

    The axis goes from `bottom` to `top`, in samples per second.
    """
    for kind, inside, size, open_ in (
        ("predicted", "line-ew-open", 10, "-open"),
        ("measured", "diamond", 9, ""),
    ):
        rates = here[kind]
        for side, symbol, rows in (
            ("", inside, rates.between(bottom, top)),
            (": above the axis", f"triangle-up{open_}", rates > top),
            (": below the axis", f"triangle-down{open_}", rates < bottom),
        ):
            shown, points = rates[rows].clip(bottom, top), here[rows]
            if shown.empty:
                continue
            bars = None
            if kind == "measured":
                high, low = (points[f"measured_{end}"].clip(bottom, top) for end in ("high", "low"))
                bars = {"array": high - shown, "arrayminus": shown - low, "thickness": 1}
            yield go.Scatter(
                x=points["window"].astype(str), y=shown, error_y=bars, cliponaxis=False,
                name=f"break-even, {kind}{side}", legendgroup=f"{kind}{side}",
                mode="lines+markers" if inside == "line-ew-open" and not side else "markers",
                line={"color": "#333", "dash": "dash"},
                marker={"symbol": symbol, "color": "#333", "size": size + 5 * bool(open_)},
            )  # fmt: skip


def break_even_table(measured: Measurements) -> Styler:
    """Break-even rates in samples per second, and numbers of faster and slower points.

    At the other points the interval of the ratio of both times contains 1.
    """
    keys = ["scheme", "sensors", "window"]
    pays = saved_times(measured).groupby(keys)["pays"]
    counts = pd.DataFrame({"faster": pays.agg(lambda p: (p > 0).sum())})
    counts["slower"], counts["of"] = pays.agg(lambda p: (p < 0).sum()), pays.size()
    rates: list[Any] = ["predicted", "predicted_low", "predicted_high"]
    rates += ["measured", "measured_low", "measured_high"]
    table = measured.break_even.set_index(keys)[rates].join(counts).reset_index()
    table.insert(1, "against", table["scheme"].map(COMPARED))
    return table.style.format("{:,.0f}", subset=rates).hide(axis="index")


def recovery_times(measured: Measurements) -> go.Figure:
    """Time from the kill to the last emitted window, against the read rate; a panel per window."""
    points = most_sensors(measured.points)
    points = points[np.isfinite(points["rate"])].sort_values("rate")
    windows = sorted(points["window"].unique())
    titles = [f"window of {window} steps" for window in windows]
    figure = make_subplots(rows=1, cols=len(windows), subplot_titles=titles, shared_yaxes=True)
    for column, window in enumerate(windows, 1):
        for scheme, color in COLORS.items():
            rows = points[(points["window"] == window) & (points["scheme"] == scheme)]
            up, down = rows["seconds_high"] - rows["seconds"], rows["seconds"] - rows["seconds_low"]
            look = {"legendgroup": scheme, "x": rows["rate"], "row": 1, "col": column}
            figure.add_scatter(
                **look, y=rows["seconds"], name=scheme, mode="markers", showlegend=column == 1,
                error_y={"array": up, "arrayminus": down}, marker={"color": color, "size": 9},
            )  # fmt: skip
            figure.add_scatter(
                **look, y=rows["predicted_s"], name=f"{scheme}, predicted", mode="lines",
                line={"color": color, "dash": "dot"}, showlegend=False,
            )  # fmt: skip
    title = "From the kill until every due window is emitted; dotted: predicted"
    styled(figure, title, "read rate, samples per second", "", HEIGHT + 60)
    figure.update_yaxes(title_text="seconds", col=1)
    ticks = sorted(points["rate"].unique())
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{rate:g}" for rate in ticks])
    figure.update_yaxes(rangemode="tozero").update_layout(hovermode="closest", legend=BELOW)
    return figure.update_layout(margin={"b": 120})


def read_again(measured: Measurements) -> go.Figure:
    """Samples read again per failure in the largest case, counted and planned."""
    points = most_sensors(measured.points)
    points = points[points["window"] == points["window"].max()]
    rows = points.groupby("scheme", sort=False)[["again", "again_planned"]].median()
    figure = go.Figure()
    figure.add_bar(x=rows.index, y=rows["again"], name="counted", marker={"color": BLUE})
    figure.add_scatter(
        x=rows.index, y=rows["again_planned"], name="planned", mode="markers",
        marker={"color": "#333", "symbol": "line-ew-open", "size": 42, "line": {"width": 3}},
    )  # fmt: skip
    named(styled(figure, "Samples read again per failure", "", "samples"), x="scheme")
    return figure.update_yaxes(rangemode="tozero")


def calm(measured: Measurements) -> go.Figure:
    """Throughput and latency of each scheme while nothing fails, with intervals."""
    table = most_sensors(calm_table(measured))
    table = table[table["window"] == table["window"].max()]
    columns = {"samples_per_s": "samples per second", "latency_s": "latency, s"}
    figure = make_subplots(rows=1, cols=2, subplot_titles=[*columns.values()])
    for number, column in enumerate(columns, 1):
        up, down = table[f"{column}_high"] - table[column], table[column] - table[f"{column}_low"]
        marker = {"color": [COLORS[name] for name in table["scheme"]], "size": 11}
        figure.add_scatter(
            x=table["scheme"], y=table[column], error_y={"array": up, "arrayminus": down},
            mode="markers", marker=marker, showlegend=False, row=1, col=number,
        )  # fmt: skip
    styled(figure, "Throughput and latency while nothing fails", "", "", HEIGHT)
    named(figure, x="scheme", y="value")
    return figure.update_yaxes(type="log", dtick=1).update_layout(hovermode="closest")


def cost_table(measured: Measurements) -> Styler:
    """The four constants of each scheme, in milliseconds; time per sample in nanoseconds."""
    rows = pd.DataFrame({name: vars(costs) for name, costs in measured.costs.items()}).T
    rows.index.names = ["scheme", "sensors"]
    table = rows[["start_s", "estimate_s", "checkpoint_s"]].mul(1e3)
    table["sample_ns"] = rows["sample_s"] * 1e9
    names = ["start, ms", "estimate, ms", "checkpoint, ms", "sample, ns"]
    return table.set_axis(names, axis=1).style.format("{:,.2f}")


def accuracy_table(measured: Measurements) -> Styler:
    """Number of estimates and their errors."""
    formats: dict[Any, Any] = {"within": "{:.1%}", "largest_error": "{:.2f} ε"}
    return accuracy(measured).style.format(formats, precision=0)


def own_table(measured: Measurements, operation: Operation) -> Styler:
    """Cost of each scheme in the user's operation per month."""
    return own_numbers(measured, operation).style.format(OWN_FORMATS)


def flink_table(stored: Path | None = None) -> Styler:
    """Flink's stored recoveries: medians over its runs, one row per method and rate.

    The default file is ``benchmarks/results/recovery.json``; without it the table has no rows.
    """
    path = stored or project_root() / "benchmarks" / "results" / "recovery.json"
    record = json.loads(path.read_text()) if path.exists() else {"runs": []}
    runs = pd.DataFrame(record["runs"], columns=[*FLINK, "killed", "failure"])
    runs = runs[runs["killed"].astype(bool)]
    fast = pd.DataFrame(record.get("throughput", []), columns=["system", "samples_per_s"])
    runs["samples_per_s"] = runs["system"].map(fast.groupby("system")["samples_per_s"].median())
    rows = runs.groupby(["system", "rate"], sort=False)[[*FLINK][2:]].median().reset_index()
    failed = runs.drop_duplicates("system").set_index("system")["failure"]
    rows["error"] = rows["system"].map(failed).fillna("")
    about = {name: record.get(name, "") for name in ("flink", "date", "processor")}
    caption = "Flink {flink}, {date}, {processor}: medians".format_map(about)
    table = rows.rename(columns=FLINK).style.format(precision=2, na_rep="–", escape="html")
    table = table.format("{:,.0f}", na_rep="–", subset=[FLINK["samples_per_s"]])
    return table.hide(axis="index").set_caption(caption if record["runs"] else "no stored run")
