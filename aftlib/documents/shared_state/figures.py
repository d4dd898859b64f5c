"""Figures of D3, and sentences that are computed from the frames of its experiments."""

from __future__ import annotations

from itertools import cycle

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go

from aftlib.documents.shared_state.experiments import NotebookParameters
from aftlib.documents.shared_state.kills import BROKEN
from aftlib.documents.shared_state.throughput import (
    LATE_GLOBAL,
    LATE_LOCAL,
    NEVER,
    ONE,
    TEN,
    UPFRONT,
    combiner_over_proposal,
    gains_of_flushes,
    gains_of_skew,
)
from aftlib.documents.shared_state.tuples import UNIFORM
from aftlib.notebook import style
from aftlib.notebook.style import Text, caption, line_figure, line_look, prose, styled

LOOK = {
    UPFRONT: line_look(style.RED, "square"),
    LATE_LOCAL: line_look(style.BLUE),
    LATE_GLOBAL: line_look(style.GREEN, "diamond"),
}


def by_skew(measured: pd.DataFrame, title: str) -> go.Figure:
    """Throughput against skew, one curve per strategy; bars from the slowest to the fastest run."""
    runs = measured.groupby(["strategy", "skew"])["throughput"]
    rows = (runs.agg(["median", "min", "max"]) / 1e6).reset_index()
    titles = title, "skew of the keys (0 is uniform)", "million tuples/s, logarithmic"
    figure = line_figure(rows, "skew", "median", "strategy", LOOK, titles, bounds=("min", "max"))
    return figure.update_yaxes(type="log", tickvals=(0.5, 1, 2, 5, 10, 20, 50, 100))


def modelled_growth(growth: pd.DataFrame, title: str) -> go.Figure:
    """Computed throughput against tasks: a shuffle (median hash function), and a shared table."""
    labels = {
        skew: "uniform" if skew == UNIFORM else f"skew {skew:g}" for skew in growth["skew"].unique()
    }
    looks = {}
    colors = cycle((style.GREY, style.ORANGE, style.RED))
    for label, color in zip(labels.values(), colors, strict=False):
        looks[f"shuffle, {label}"] = line_look(color, "square-open", "dot")
        looks[f"shared table, {label}"] = line_look(color, "diamond-open")
    rows = growth.assign(curve=growth["method"] + ", " + growth["skew"].map(labels))
    titles = title, "tasks, logarithmic", "times one task's throughput"
    figure = line_figure(rows, "tasks", "growth", "curve", looks, titles, logarithmic=True)
    figure.update_layout(
        height=560,
        margin={"t": 50, "b": 150},
        legend={"x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top"},
    )
    return figure.update_yaxes(type="log", tickvals=growth["tasks"].unique().tolist())


def failures(killed: pd.DataFrame, title: str) -> go.Figure:
    """Tuples read again after a kill, and those that a shuffle would send to healthy tasks."""
    rows = killed[killed["killed"] != BROKEN]
    cases = rows.groupby(rows["killed"] + " killed, " + rows["point"], sort=False)
    names = {
        "again": "read again by the failed tasks",
        "behind_a_shuffle": "doubled at healthy tasks behind a shuffle, computed",
    }
    means = cases[[*names]].mean().rename(columns=names)
    colors = [style.BLUE, style.ORANGE]
    figure = px.bar(means, orientation="h", barmode="group", color_discrete_sequence=colors)
    figure.update_traces(hovertemplate="%{y}: %{x:,.0f}")
    figure.update_layout(legend_title_text="").update_yaxes(autorange="reversed")
    return styled(figure, title, "tuples, mean of the kills", "", hover="closest")


def gain_of_skew(searched: pd.DataFrame, title: str) -> go.Figure:
    """The shared table's throughput over that of uniform keys, against the number of keys."""
    gains = gains_of_skew(searched).reset_index()
    rows = gains.melt("keys", var_name="skew", value_name="gain")
    rows["curve"] = rows["skew"].map("skew {:g}".format)
    colors = (style.BLUE, style.ORANGE)
    looks = dict(zip(rows["curve"].unique(), map(line_look, colors), strict=True))
    titles = title, "keys, logarithmic", "times uniform keys' throughput"
    figure = line_figure(rows, "keys", "gain", "curve", looks, titles)
    figure.update_xaxes(type="log", tickvals=gains["keys"].tolist())
    return style.threshold(figure, 1, "as fast as uniform keys")


def describe_failures(killed: pd.DataFrame) -> Text:
    """Count kills with wrong sums or disturbed tasks, and explain the columns of the table."""
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
    """Compare each strategy's throughput under the largest skew with that of uniform keys."""
    gains = gains_of_skew(measured, "strategy")
    largest = gains.columns.max()
    changes = gains[largest]
    texts = [f"{name} × {changes[name]:.2f}" for name in LOOK]
    return caption(
        f"Throughput changes from uniform keys to skew {largest:g} by these factors: "
        f"{', '.join(texts)}. Bars reach from the slowest to the fastest run."
    )


def describe_combiner(measured: pd.DataFrame) -> Text:
    """Compare a plain combiner with the document's proposal, and name its shortcomings."""
    ratios = combiner_over_proposal(measured)
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
        f"The shared table is measured on {p.tasks} tasks with {p.tuples:,} tuples. Its throughput "
        f"over that of uniform keys is, at {'; at '.join(texts)}. Fewer sums and a better use of "
        "the cache are not separated."
    )


def describe_costs(tuple_ns: float, merge_ns: float, receivers: float) -> Text:
    """Name the measured costs from which growth is computed."""
    return caption(
        "These curves are computed, not run. The busiest receiver limits a shuffle (dotted), and "
        "merging the tasks' sums limits a shared table (solid). The costs are measured: a tuple "
        f"takes {tuple_ns:.0f} ns, merging a sum in memory {merge_ns:.0f} ns, and receivers bear "
        f"{100 * receivers:.0f} % of a tuple's cost."
    )


def describe_flushes(flushes: pd.DataFrame) -> Text:
    """Compare flushes of equal rows, and what merging in memory first adds."""
    one, fewer = gains_of_flushes(flushes)
    return prose(
        f"Equal rows in *{ONE}* are × {one:.2f} as fast as in *{TEN}*: this is the price of ten "
        "transactions, flushes included. Merging in memory first leaves fewer rows to write, and "
        f"is a further × {fewer:.2f} as fast. *{NEVER}* only merges in memory."
    )
