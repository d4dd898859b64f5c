"""D1's claims, each with its main reading, and functions that judge them by notebook 01's frames.

The document's data decide, with a row of them as a window's result. Sensitivities come from the
other interpretation of the rows (`averaged`) and from sets of real sensors (`real`). D1-6, about
the time of a recovery, is measured and judged in notebook 07.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.special import ndtri

from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once.error_rates import CHANCE, DOCUMENT, DOCUMENT_ROWS, RANDOM
from aftlib.documents.approximately_once.experiments import (
    TIES,
    NotebookParameters,
    above_delta,
    compare_real,
    list_by_set,
)
from aftlib.notebook.claims import (
    DOES_NOT_HOLD,
    EXACT,
    Claim,
    Finding,
    Summary,
    Threshold,
    not_run,
)
from aftlib.notebook.scorecard import ClaimRecord, sentences_by_verdict
from aftlib.notebook.texts import other_bounds, percent, some_of, span_of

SETTING = ["workers", "epsilon"]
SETTINGS = "settings (m, ε) of ours"
HALF = 0.5
"""Our bounds: half of h-best's lead, half a worker per worker, half of random's error rate."""


def in_each_setting(grid: pd.DataFrame, column: str) -> pd.DataFrame:
    """Means of a column over draws: one row per setting (m, ε), one column per method."""
    return grid.pivot_table(index=SETTING, columns="method", values=column, dropna=False)


def at_same_settings(averaged: pd.DataFrame, grid: pd.DataFrame) -> pd.DataFrame:
    """Rows of `averaged` at the values of ε that `grid` has."""
    return averaged[averaged["epsilon"].isin(grid["epsilon"])]


def shares_of_lead(grid: pd.DataFrame) -> pd.Series:
    """Each method's lead over h-worst in estimable workers, as a share of h-best's.

    Empty if h-best has no lead.
    """
    counts = in_each_setting(grid, "estimable").sum()
    possible = counts["h-best"] - counts["h-worst"]
    if possible <= 0:
        return pd.Series(dtype=float)
    shares: pd.Series = (counts - counts["h-worst"]) / possible
    return shares


def ratios_to_random(grid: pd.DataFrame, column: str = "rate") -> tuple[pd.Series, int]:
    """Each method's error rate as a multiple of random's, and the number of settings.

    Rates are summed over the settings in which greedy and random have estimable workers.
    """
    rates = in_each_setting(grid, "rate")
    both = rates[["greedy", RANDOM]].notna().all(axis=1)
    sums = in_each_setting(grid, column)[both].sum()
    if not sums.get(RANDOM, 0):
        return pd.Series(dtype=float), int(both.sum())
    return sums / sums[RANDOM], int(both.sum())


def by_means(parameters: NotebookParameters, number: str) -> str:
    """Return a claim's number by the other interpretation of the rows, as a sentence."""
    return f"If a window is the mean of {parameters.samples_per_window} rows: {number}."


def sample_agrees(grid: pd.DataFrame) -> tuple[bool, str]:
    """Whether sampled error rates are those of the formula, and a sentence with the largest |z|.

    With correct rates, one in a thousand samples has a larger |z| than the limit (Bonferroni).
    """
    z = grid["z"].abs().dropna()
    if z.empty:
        return False, "no rate is large enough to be sampled"
    limit = float(-ndtri(0.001 / 2 / len(z)))
    agrees = bool(z.max() <= limit)
    verb = "agree" if agrees else "disagree"
    return agrees, f"sampled rates {verb}: largest |z| of {len(z)} is {z.max():.1f}"


def assigns_well(
    grid: pd.DataFrame,
    averaged: pd.DataFrame,
    real: pd.DataFrame,
    parameters: NotebookParameters,
) -> Finding:
    """D1-1: greedy's lead over h-worst in estimable workers, as a share of h-best's."""
    share = shares_of_lead(grid)
    if share.empty:
        return not_run("h-best has nowhere more estimable workers than h-worst")
    counts = in_each_setting(grid, "estimable")
    greedy = counts["greedy"]
    best = counts["h-best"]
    between = (greedy <= best).all() and (greedy < best).any()
    between &= (greedy >= counts["h-worst"]).all()
    of_means = shares_of_lead(at_same_settings(averaged, grid))
    more = compare_real(real)["more"]
    by_random = percent(share[RANDOM])
    if share[RANDOM] > share["greedy"]:
        against_random = f"less than a random assignment's {by_random}"
        verdict = "Reversed"
    else:
        against_random = f"no less than a random assignment's {by_random}"
        verdict = "The same"
    notes = [
        other_bounds(share["greedy"], HALF, percent),
        f"The order of equal sensors is not given: by chance {percent(share[CHANCE])}.",
        by_means(parameters, percent(of_means["greedy"])) if len(of_means) else "",
        f"{verdict} if 'efficiently' means better than chance: a random assignment has "
        f"{by_random}.",
        f"'Does not reach h-best' is reversed on {some_of((more > 0).sum(), len(more), 'set')} of "
        "real sensors (greedy's estimable workers minus h-best's, mean over settings: "
        f"{list_by_set(more, '{:.2f}')}). Sensors of a block are exchangeable, so greedy has "
        "nothing to go by here.",
    ]
    return Finding(
        float(share["greedy"]),
        n=len(counts),
        counted=SETTINGS,
        text=f"{percent(share['greedy'])} of h-best's lead over h-worst in estimable workers, "
        f"{against_random}",
        fails=""
        if between
        else "Greedy must nowhere have more estimable workers than h-best, somewhere fewer, and "
        "nowhere fewer than h-worst.",
        sensitivity=" ".join(filter(None, notes)),
    )


def scales_with_workers(grid: pd.DataFrame, parameters: NotebookParameters) -> Finding:
    """D1-2: slope of greedy's estimable workers over m, the smallest over ε.

    As a control, all workers of h-best must be estimable exactly where a closed form says so: with
    blocks of `size` sensors, variance 1 and covariance ρ = .9, a sensor with k mates on other
    workers has the variance 1 − ρ²k / (1 + ρ(k − 1)), and h-best leaves k = size − ⌈size / m⌉.
    """
    counts = in_each_setting(grid, "estimable")
    table = counts["greedy"].unstack("epsilon")
    some = table.columns[table.max() > 0]
    if some.empty or len(table) < 3:
        return not_run("greedy has no estimable workers at any ε, or m has under three values")
    slopes = np.polyfit(table.index, table[some].to_numpy(), 1)[0]
    packed = np.polyfit(table.index, counts["h-worst"].unstack("epsilon")[some].to_numpy(), 1)[0]
    alike = ", so the slope does not tell assignments apart" if packed.min() >= HALF else ""
    smaller = (table.columns < some.min()).sum()
    notes = [
        other_bounds(slopes.min(), HALF),
        f"Over these ε the slopes are {slopes.min():.2f} … {slopes.max():.2f}.",
        f"h-worst's are {packed.min():.2f} … {packed.max():.2f}{alike}.",
        f"At {some_of(smaller, table.shape[1], 'value')} of ε, the smallest, greedy has no "
        "estimable worker."
        if smaller
        else "",
    ]

    m = counts.index.get_level_values("workers").to_numpy()
    epsilon = counts.index.get_level_values("epsilon").to_numpy()
    size = parameters.dimensions // parameters.blocks
    k = size - np.ceil(size / m)
    variance = np.where(k > 0, 1 - 0.81 * k / (1 + 0.9 * (k - 1)), 1)
    smallest = Requirement(1.0, parameters.delta).half_width(variance)
    as_derived = (counts["h-best"] == m) == (epsilon >= smallest)
    return Finding(
        float(slopes.min()),
        n=len(slopes),
        counted="values of ε with estimable workers",
        text=f"at least {slopes.min():.2f} further estimable worker per further worker",
        control=bool(as_derived.all()),
        sensitivity=" ".join(filter(None, notes)),
    )


def keeps_guarantee(
    grid: pd.DataFrame,
    averaged: pd.DataFrame,
    real: pd.DataFrame,
    parameters: NotebookParameters,
) -> Finding:
    """D1-3: the largest error rate of an estimable worker's sensor, over settings and methods."""
    delta = parameters.delta
    counted = grid[grid["method"].isin(DOCUMENT)].dropna(subset="largest")
    if counted.empty:
        return not_run("no worker is estimable at any ε and m")
    same = at_same_settings(averaged, grid)
    of_means = same[same["method"].isin(DOCUMENT)].dropna(subset="largest")
    largest = float(counted["largest"].max())
    agree, sample = sample_agrees(counted)
    means_agree, _ = sample_agrees(of_means) if len(of_means) else (True, "")
    short = counted["first"].dropna()
    beyond = above_delta(real, delta)
    notes = [
        f"{sample}.",
        by_means(parameters, f"{of_means['largest'].max():.6f}, at the same ε and m")
        if len(of_means)
        else "",
        f"In the first {min(DOCUMENT_ROWS, parameters.rows):,} rows of one sample, "
        f"{(short > delta).sum()} of {len(short)} rates exceed δ.",
        "With a model learned from real sensors, greedy's measured rate exceeds δ in some setting "
        f"on {beyond}."
        if beyond
        else "",
    ]
    text = " ".join(filter(None, notes))
    return Finding(
        largest,
        n=len(counted),
        counted="rates of three methods",
        text=f"worst sensor's failure probability {largest:.6f} (δ = {delta:g})",
        holds=bool(largest <= delta * (1 + 1e-9)),
        control=agree and means_agree,
        sensitivity=text[0].upper() + text[1:],
    )


def accurate_as_assigned(
    grid: pd.DataFrame,
    averaged: pd.DataFrame,
    real: pd.DataFrame,
    parameters: NotebookParameters,
) -> Finding:
    """D1-4: greedy's error rate minus h-best's; nowhere below 0, and greedy's at most δ."""
    rates = in_each_setting(grid, "rate")
    gap = (rates["greedy"] - rates["h-best"]).dropna()
    if gap.empty:
        return not_run("no setting where both greedy and h-best have estimable workers")
    agree, _ = sample_agrees(grid[grid["method"].isin(["greedy", "h-best"])])
    accurate = rates["greedy"].max() <= parameters.delta * (1 + 1e-9)
    above = gap.mean() > 0 and gap.min() >= -1e-9
    by_chance = (rates[CHANCE] - rates["h-best"]).mean()
    of_means = in_each_setting(at_same_settings(averaged, grid), "rate")
    gap_of_means = (of_means["greedy"] - of_means["h-best"]).mean()
    on_real = compare_real(real).dropna()
    notes = [
        "At most δ follows from (7).",
        f"Ties by chance: {by_chance:.4f} above.",
        by_means(parameters, f"{gap_of_means:.4f} above"),
        "On real sensors greedy's rate is below h-best's on "
        f"{some_of((on_real['gap'] < 0).sum(), len(on_real), 'set')} by the model, and on "
        f"{(on_real['measured_gap'] < 0).sum()} as measured (greedy's minus h-best's by the model: "
        f"{list_by_set(on_real['gap'], '{:.4f}')}; measured: "
        f"{list_by_set(on_real['measured_gap'], '{:.4f}')})."
        if len(on_real)
        else "",
    ]
    return Finding(
        float(gap.mean()),
        n=len(gap),
        counted="settings with estimable workers",
        text=f"greedy's rate is on average {gap.mean():.4f} above h-best's, and nowhere above "
        f"{rates['greedy'].max():.4f} (δ = {parameters.delta:g})",
        holds=bool(accurate and above),
        control=agree,
        sensitivity=" ".join(filter(None, notes)),
    )


def better_than_random(
    grid: pd.DataFrame,
    averaged: pd.DataFrame,
    real: pd.DataFrame,
    parameters: NotebookParameters,
) -> Finding:
    """D1-5: greedy's error rate as a multiple of a random assignment's, summed over settings."""
    ratio, settings = ratios_to_random(grid)
    if ratio.empty:
        return not_run("no setting in which greedy and a random assignment make errors")
    over_all, _ = ratios_to_random(grid, "everyone")
    of_means, _ = ratios_to_random(at_same_settings(averaged, grid))
    agree, _ = sample_agrees(grid[grid["method"].isin(["greedy", RANDOM])])
    on_real = compare_real(real).dropna()
    measured = span_of(on_real["measured_ratio"]) if len(on_real) else ""
    notes = [
        other_bounds(ratio["greedy"], HALF),
        f"Ties by chance: {ratio[CHANCE]:.2f} times. Even h-best has {ratio['h-best']:.2f} times.",
        f"Over all sensors, greedy has {over_all['greedy']:.2f} times random's.",
        by_means(parameters, f"{of_means['greedy']:.2f} times") if len(of_means) else "",
        f"On real sensors the learned model predicts {list_by_set(on_real['ratio'], '{:.2f}')} "
        f"times. Measured are {list_by_set(on_real['measured_ratio'], '{:.2f}')} times, in "
        f"{span_of(real['windows'], ',.0f')} windows, against {TIES} random assignments."
        if measured
        else "",
    ]
    return Finding(
        float(ratio["greedy"]),
        n=settings,
        counted="settings with estimable workers",
        text=f"{ratio['greedy']:.2f} times random's error rate"
        + (f" (real sensors, measured: {measured})" if measured else ""),
        control=agree,
        sensitivity=" ".join(filter(None, notes)),
    )


CLAIMS = [
    Claim(
        "D1-1",
        "Greedy assignment does not reach the best one, h-best, but divides the nodes efficiently.",
        "6.2",
        "Greedy's lead over h-worst in estimable workers is at least half of h-best's. Section "
        "6.1.3 names these two as comparators.",
        assigns_well,
        expected="below h-best, and at least half of its lead",
        threshold=Threshold("ours: half of h-best's lead", low=HALF),
        basis=EXACT,
        unit="of h-best's lead",
    ),
    Claim(
        "D1-2",
        "The number of estimable workers scales with the number of workers used.",
        "6.2",
        "At each ε with estimable workers, a line through greedy's numbers over m rises by at "
        "least half a worker per worker.",
        scales_with_workers,
        expected="rises with m",
        threshold=Threshold("ours: half a worker per worker", low=HALF),
        basis=EXACT,
        unit="further estimable workers per further worker",
    ),
    Claim(
        "D1-3",
        "In no setting does the error rate exceed 0.05.",
        "6.2",
        "An estimable worker has R ≥ 1 − δ by (7), so each of its sensors errs with probability at "
        "most δ.",
        keeps_guarantee,
        expected="≤ δ",
        basis=EXACT,
        by_construction="estimable means R ≥ 1 − δ by (7); only the sample could contradict",
        unit="failure probability of the worst sensor",
    ),
    Claim(
        "D1-4",
        "In error rate, too, greedy does not reach h-best, but it estimates very accurately.",
        "6.2",
        "Greedy's error rate (9) minus h-best's is nowhere negative, and greedy's is at most δ.",
        accurate_as_assigned,
        expected="above 0, and greedy's rate at most δ",
        basis=EXACT,
        unit="above h-best's rate",
    ),
    Claim(
        "D1-5",
        "Dividing nodes by the model keeps the error rate far below that of a random division.",
        "6",
        "Greedy's error rate (9) is at most half of a random assignment's. Section 6 announces "
        "this comparison; no figure shows it.",
        better_than_random,
        expected="far below 1",
        threshold=Threshold("ours: half of random's rate", high=HALF),
        basis=EXACT,
        unit="× a random assignment's rate",
        recorded=DOES_NOT_HOLD,
    ),
]


def summarize(records: Mapping[str, ClaimRecord], parameters: NotebookParameters) -> Summary:
    """Return the box of a run of notebook 01."""
    clauses = {
        "D1-3": "error rates stay within δ",
        "D1-1": "greedy has most, not all: {0.text}",
        "D1-5": "it errs far less often: {0.measured:.2f} times random's error rate",
    }
    return Summary(
        claimed="Others' windows estimate a failed worker's within ε, with probability 1 − δ.",
        found=sentences_by_verdict(records, clauses),
        sure="By formula.",
        limits="The model must be right (D1-3), and failures must not overlap.",
    )
