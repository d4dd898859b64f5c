"""Figures of D3 from the frames of its experiments."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import pandas as pd
import plotly.graph_objects as go

from aftlib.documents.shared_state.experiments import (
    BARRIER,
    BROKEN,
    LATE_GLOBAL,
    LATE_LOCAL,
    NEVER,
    ONE,
    TEN,
    UPFRONT,
    NotebookParameters,
)
from aftlib.documents.shared_state.key_search import gains_of_skew
from aftlib.documents.shared_state.tuples import UNIFORM
from aftlib.notebook.style import BLUE, GREEN, GREY, ORANGE, RED, Text, caption, prose, styled

LOOK: Mapping[str, dict] = {
    UPFRONT: {"color": RED, "symbol": "square"},
    LATE_LOCAL: {"color": BLUE, "symbol": "circle"},
    LATE_GLOBAL: {"color": GREEN, "symbol": "diamond"},
}
_COLORS = (GREY, ORANGE, RED)


def by_skew(measured: pd.DataFrame, title: str) -> go.Figure:
    """Throughput against skew, one curve per strategy; bars from the slowest to the fastest run."""
    figure = go.Figure()
    for strategy, look in LOOK.items():
        runs = measured[measured["strategy"] == strategy].groupby("skew")["throughput"]
        middle, low, high = runs.median() / 1e6, runs.min() / 1e6, runs.max() / 1e6
        figure.add_scatter(
            x=middle.index.tolist(), y=middle.tolist(), name=strategy, mode="lines+markers",
            error_y={"array": (high - middle).tolist(), "arrayminus": (middle - low).tolist()},
            line={"color": look["color"]}, marker={"symbol": look["symbol"], "size": 10},
        )  # fmt: skip
    styled(figure, title, "skew of the keys (0 is uniform)", "million tuples/s, logarithmic")
    return figure.update_yaxes(type="log", tickvals=(0.5, 1, 2, 5, 10, 20, 50, 100))


def modelled_growth(growth: pd.DataFrame, title: str) -> go.Figure:
    """Computed throughput against tasks: a shuffle (median hash function), and a shared table."""
    figure = go.Figure()
    lines = {"shuffle": ("dot", "square-open"), "shared table": ("solid", "diamond-open")}
    colors = dict(zip(growth["skew"].unique(), cycle(_COLORS), strict=False))
    for (skew, method), rows in growth.groupby(["skew", "method"], sort=False):
        dash, symbol = lines[str(method)]
        label = "uniform" if skew == UNIFORM else f"skew {skew:g}"
        figure.add_scatter(
            x=rows["tasks"].tolist(), y=rows["growth"].tolist(), name=f"{method}, {label}",
            mode="lines+markers", line={"color": colors[skew], "dash": dash},
            marker={"symbol": symbol, "size": 9},
        )  # fmt: skip
    tasks = growth["tasks"].unique().tolist()
    styled(figure, title, "tasks, logarithmic", "times one task's throughput")
    figure.update_xaxes(type="log", tickvals=tasks)
    figure.update_layout(
        height=560,
        margin={"t": 50, "b": 150},
        legend={"x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top"},
    )
    return figure.update_yaxes(type="log", tickvals=tasks)


def failures(killed: pd.DataFrame, title: str) -> go.Figure:
    """Tuples read again after a kill, and those that a shuffle would send to healthy tasks."""
    rows = killed[killed["killed"] != BROKEN]
    names = (rows["killed"] + " killed, " + rows["point"]).tolist()
    figure = go.Figure()
    bars = {
        "again": ("read again by the failed tasks", BLUE),
        "behind_a_shuffle": ("doubled at healthy tasks behind a shuffle, computed", ORANGE),
    }
    for column, (name, color) in bars.items():
        middle = rows.assign(name=names).groupby("name", sort=False)[column].mean()
        figure.add_bar(x=middle.tolist(), y=middle.index.tolist(), orientation="h", name=name,
                       marker={"color": color})  # fmt: skip
    styled(figure, title, "tuples, mean of the kills", "").update_yaxes(autorange="reversed")
    return figure.update_layout(hovermode="closest")


def gain_of_skew(searched: pd.DataFrame, title: str) -> go.Figure:
    """The shared table's throughput over that of uniform keys, against the number of keys."""
    gains = gains_of_skew(searched)
    figure = go.Figure()
    for skew, color in zip(gains, (BLUE, ORANGE), strict=True):
        figure.add_scatter(
            x=gains.index.tolist(),
            y=gains[skew].tolist(),
            name=f"skew {skew:g}",
            mode="lines+markers",
            line={"color": color},
        )
    figure.add_hline(1, line_dash="dash", line_color=GREY)
    styled(figure, title, "keys, logarithmic", "times uniform keys' throughput")
    return figure.update_xaxes(type="log", tickvals=gains.index.tolist())


def describe_failures(killed: pd.DataFrame) -> Text:
    """Say what the kills did: wrong sums, disturbed tasks, and what was read again."""
    broken = killed["killed"] == BROKEN
    real = killed[~broken]
    wrong = int((real["wrong"] > 0).sum())
    caught = int((killed.loc[broken, "wrong"] > 0).sum())
    disturbed = int((real["disturbed"] > 0).sum())
    return prose(
        f"Of {len(real)} kills {wrong} left wrong sums, and {disturbed} disturbed a healthy task; "
        f"the broken control left wrong sums in {caught} of {int(broken.sum())} kills. A failed "
        "task reads its last batch again, a failed server all that its tasks have read since the "
        "last barrier. Points of a server: the table was *merged* at the barrier, *flushed* to the "
        "server's file, *committed* to the global table, or *dropped* from the file. The last "
        "column is computed: behind a shuffle that does not reset them, healthy tasks would "
        "receive these tuples twice (fig. 1)."
    )


def describe_speeds(measured: pd.DataFrame) -> Text:
    """Say how each strategy's throughput changes from uniform keys to the largest skew."""
    speeds = measured.pivot_table(
        index="strategy", columns="skew", values="throughput", aggfunc="median"
    )
    largest = speeds.columns.max()
    changes = speeds[largest] / speeds[UNIFORM]
    texts = [f"{name} × {changes[name]:.2f}" for name in LOOK]
    return caption(
        f"From uniform keys to skew {largest:g}: {', '.join(texts)}. Bars reach from the slowest "
        "to the fastest run."
    )


def describe_combiner(measured: pd.DataFrame) -> Text:
    """Compare a plain combiner with the document's proposal, and say what it lacks."""
    wide = measured.pivot_table(index=["skew", "turn"], columns="strategy", values="throughput")
    ratios = (wide[LATE_LOCAL] / wide[LATE_GLOBAL]).groupby("skew").median()
    texts = [f"× {ratio:.2f} at skew {skew:g}" for skew, ratio in ratios.items()]
    return prose(
        "A plain combiner (late local) has this multiple of the proposal's throughput: "
        f"{', '.join(texts)}. It has no state that tasks share while a window is open, no sums "
        "that survive a failed task, and no results before the end; the proposal has them."
    )


def describe_search(searched: pd.DataFrame, p: NotebookParameters) -> Text:
    """Say where skew speeds up the shared table."""
    gains = gains_of_skew(searched)
    texts = [
        f"skew {skew:g}: × {gains[skew].iloc[0]:.2f} with {gains.index[0]:,} keys, "
        f"× {gains[skew].iloc[-1]:.2f} with {gains.index[-1]:,}"
        for skew in gains
    ]
    return caption(
        f"Shared table on {p.tasks} tasks, {p.tuples:,} tuples; {'; '.join(texts)}. Fewer sums and "
        "a better use of the cache are not separated."
    )


def describe_costs(tuple_ns: float, merge_ns: float, receivers: float) -> Text:
    """Name the measured costs that the computed growth takes."""
    return caption(
        "Computed, not run: a shuffle (dotted) is limited by its busiest receiver, a shared table "
        "(solid) by merging the tasks' sums. Measured costs: a tuple "
        f"{tuple_ns:.0f} ns, merging a sum in memory {merge_ns:.0f} ns; receivers bear "
        f"{100 * receivers:.0f} % of a tuple's cost."
    )


def describe_flushes(rates: pd.Series) -> Text:
    """Compare flushes of equal rows, and what merging in memory first adds."""
    one = rates[ONE] / rates[TEN]
    fewer = rates[BARRIER] / rates[ONE]
    return prose(
        f"Equal rows in *{ONE}* are × {one:.2f} as fast as in *{TEN}*: this is the price of a "
        f"flush. Merging in memory first leaves fewer rows to write: a further × {fewer:.2f}. "
        f"*{NEVER}* only merges in memory."
    )
