"""Sentences of notebook 01 that depend on a run: its captions, and text about its data."""

from __future__ import annotations

import pandas as pd

from aftlib.core.paths import data_title
from aftlib.documents.approximately_once.claims import in_each_setting
from aftlib.documents.approximately_once.error_rates import CHANCE, DOCUMENT_ROWS
from aftlib.documents.approximately_once.experiments import (
    COUNTED,
    REPEATS,
    NotebookParameters,
    above_delta,
    compare_real,
    list_by_set,
    summarize_real,
)
from aftlib.notebook.style import Text, caption, prose
from aftlib.notebook.texts import some_of, span_of


def start_epsilon(grid: pd.DataFrame) -> float:
    """The ε that figures begin with: the least one at which greedy has estimable workers at all m.

    Without such, the least one with an estimable worker of greedy; without such, the least.
    """
    counts = in_each_setting(grid, "estimable")["greedy"].unstack("workers")
    for some in (counts.min(axis=1), counts.max(axis=1)):
        if (some > 0).any():
            return float(some.index[some > 0][0])
    return float(counts.index[0])


def middle(values: list[int]) -> int:
    """Return the value in the middle."""
    return values[len(values) // 2]


def nothing_at(m: int) -> Text:
    """Caption of what depends on greedy's estimable workers, if it has none."""
    return caption(f"At m = {m} greedy has no estimable worker at any ε shown.")


def data(parameters: NotebookParameters) -> Text:
    """Say what the data are, and where ε begins to matter."""
    epsilons = parameters.settings[1]
    return prose(
        f"There are {parameters.dimensions} sensors of variance 1 in {parameters.blocks} blocks, "
        "with covariance 0.9 within a block and 0 between blocks. At "
        f"δ = {parameters.delta:g} nothing can be estimated if ε is below "
        f"{parameters.smallest_epsilon:.3f}, not even a sensor that is lost alone. "
        f"The values of ε are ours, from {epsilons[0]:g} to {epsilons[-1]:g}."
    )


def workers(grid: pd.DataFrame, epsilon: float, delta: float) -> Text:
    """Caption of fig. 10 at the ε that it begins with."""
    counts = in_each_setting(grid, "estimable").xs(epsilon, level="epsilon")
    ends = sorted({counts.index[0], counts.index[-1]})
    greedy = " and ".join(f"{counts['greedy'][m]:g} of {m}" for m in ends)
    none = [f"{m}" for m in counts.index[counts["h-worst"] == 0]]
    worst = f"h-worst has none at m = {', '.join(none)}." if none else "h-worst has some, too."
    return caption(
        f"At ε = {epsilon:g} and δ = {delta:g}, {greedy} workers are estimable with greedy. {worst}"
    )


def over_epsilon(grid: pd.DataFrame, m: int, delta: float) -> Text:
    """Caption of fig. 11 at the m that it begins with."""
    counts = in_each_setting(grid, "estimable").xs(m, level="workers")
    parts = []
    for method in ("greedy", "h-best", "h-worst"):
        full = (counts[method] == m)[::-1].cummin()[::-1]  # here and at each larger ε
        begins = full.index[full]
        parts.append(f"of {method} from {begins[0]:g}" if len(begins) else f"of {method} never")
    return caption(
        f"At m = {m} and δ = {delta:g}, all workers are estimable from these values of ε on: "
        f"{', '.join(parts)}. Random's curve is a mean over draws."
    )


def behind(grid: pd.DataFrame, epsilon: float) -> Text:
    """Caption of the figure of estimable workers that h-best has more, and the upper bound."""
    counts = in_each_setting(grid, "estimable")
    here = counts.xs(epsilon, level="epsilon")
    fewer = (here["greedy"] < here["h-best"]).sum()
    bound = in_each_setting(grid, "bound")["h-best"]
    reached = (counts["h-best"] == bound).sum()
    return caption(
        f"At ε = {epsilon:g} greedy has fewer estimable workers than h-best at {fewer} of "
        f"{len(here)} values of m; means over draws. In {reached} of {len(bound)} settings h-best "
        "reaches a proved upper bound on any assignment."
    )


def rates(grid: pd.DataFrame, epsilon: float, parameters: NotebookParameters) -> Text:
    """Caption of fig. 12 at the ε that it begins with."""
    rate = in_each_setting(grid, "rate").xs(epsilon, level="epsilon")
    if rate["greedy"].isna().all():
        return caption("No worker is estimable with greedy at any ε shown.")
    above = (rate["greedy"] > rate["h-best"] + 1e-9).sum()
    here = grid[(grid["epsilon"] == epsilon) & (grid["method"] != CHANCE)]
    marks = here["measured"].dropna()
    over = (marks > parameters.delta).sum()
    return caption(
        f"At ε = {epsilon:g} and δ = {parameters.delta:g}, greedy's rate is above h-best's at "
        f"{above} of {rate['greedy'].notna().sum()} values of m with estimable workers. All marks "
        f"come from one sample of {parameters.rows:,} windows, and have 95 % intervals: {over} of "
        f"{len(marks)} lie above δ."
    )


def rates_over_epsilon(grid: pd.DataFrame, m: int, delta: float) -> Text:
    """Caption of fig. 13 at the m that it begins with."""
    greedy = in_each_setting(grid, "rate").xs(m, level="workers")["greedy"].dropna()
    if greedy.empty:
        return nothing_at(m)
    return caption(
        f"At m = {m} and δ = {delta:g}, greedy's first workers become estimable at "
        f"ε = {greedy.index[0]:g}. Its rate is largest, {greedy.max():.3f}, at "
        f"ε = {greedy.idxmax():g}."
    )


def interpretations(grid: pd.DataFrame, averaged: pd.DataFrame, m: int, width: int) -> Text:
    """Caption of the figure of both interpretations of the rows."""
    parts = []
    for name, frame in (("rows are windows", grid), ("rows are samples", averaged)):
        best = in_each_setting(frame, "estimable").xs(m, level="workers")["h-best"]
        full = best.index[best == m]
        parts.append(f"from ε = {full[0]:.3g} if {name}" if len(full) else f"at no ε if {name}")
    return caption(
        f"At m = {m} all workers of h-best are estimable {' and '.join(parts)}. A mean of {width} "
        f"samples has the covariance Σ/{width}, so every curve moves to ε/√{width}."
    )


def learned(curve: pd.DataFrame, epsilon: float, m: int, delta: float) -> Text:
    """Caption of the figure of models learned from few rows."""
    here = curve[(curve["epsilon"] == epsilon) & (curve["covariance"] == COUNTED)]
    means = here.groupby("rows")[["rate", "true"]].mean().dropna()
    if means.empty:
        return caption(f"At ε = {epsilon:g} no learned model has an estimable worker.")
    rows = DOCUMENT_ROWS if DOCUMENT_ROWS in means.index else int(means.index[0])
    at = means.loc[rows]
    within = (means["true"] <= delta)[::-1].cummin()[::-1]  # with these rows and with more
    text = (
        f"Greedy at ε = {epsilon:g}, δ = {delta:g} and m = {m}, means of {REPEATS} data sets. "
        f"Learned from {rows:,} rows, the sample covariance predicts an error rate of "
        f"{at['rate']:.3f}; the true one is {at['true']:.3f}."
    )
    if within.any():
        text += f" The true rate is at most δ from {within.index[within][0]:,} rows on."
    return caption(text)


def own_rates(grid: pd.DataFrame, name: str, m: int, delta: float) -> Text:
    """Caption of the error rates of one set of real sensors."""
    greedy = grid[(grid["method"] == "greedy") & (grid["workers"] == m)].dropna(subset="rate")
    if greedy.empty:
        return nothing_at(m)
    above = greedy[greedy["measured"] > delta]
    fractions = grid["fraction"]
    return caption(
        f"{data_title(name)}, m = {m}, δ = {delta:g}: lines are what the model of the first "
        "half predicts, and marks are measured in the second. Greedy's measured rate is above δ at "
        f"{len(above)} of {len(greedy)} values of ε with estimable workers. They are "
        f"{fractions.min():g} to {fractions.max():g} standard deviations of the median sensor."
    )


def real_sensors(real: pd.DataFrame, delta: float) -> Text:
    """Caption of the figure of real sensors."""
    against = compare_real(real)
    more = (against["more"] > 0).sum()
    parts = [
        f"Greedy has more estimable workers than h-best on {some_of(more, len(against), 'set')}."
    ]
    both = against.dropna()
    if len(both):
        greedy = summarize_real(real).query("method == 'greedy'").set_index("set").loc[both.index]
        parts += [
            "Its error rate is this multiple of random's: by the model (circles) "
            f"{list_by_set(both['ratio'], '{:.2f}')}; measured in the second half (bars) "
            f"{list_by_set(both['measured_ratio'], '{:.2f}')}. Measured rates of greedy are "
            f"{span_of(greedy['measured'] / greedy['rate'], '.2g')} times as high as predicted. "
            f"In some setting greedy's measured rate is above δ = {delta:g} on "
            f"{above_delta(real, delta)}.",
        ]
    return caption(" ".join(parts))
