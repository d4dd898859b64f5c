"""D1's claims, each with its main reading, and functions that judge them by notebook 01's frame.

D1-6, about the time of a recovery, is measured and judged in notebook 07.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import ndtri

from aftlib.approximately_once.experiments import CHANCE, DOCUMENT, RANDOM
from aftlib.core.requirement import Requirement
from aftlib.workbench.claims import (
    DOES_NOT_HOLD,
    EXACT,
    Claim,
    Finding,
    Summary,
    Threshold,
    not_run,
)

SETTING = ["workers", "epsilon"]
SETTINGS = "settings (m, ε) of ours"


def in_each_setting(grid: pd.DataFrame, column: str) -> pd.DataFrame:
    """Means of a column over draws: one row per setting (m, ε), one column per method."""
    return grid.pivot_table(index=SETTING, columns="method", values=column, dropna=False)


def sample_agrees(grid: pd.DataFrame) -> tuple[bool, str]:
    """Whether sampled error rates are those of the formula, and a sentence with the largest |z|.

    With correct rates, one in a thousand samples has a larger |z| than the limit (Bonferroni).
    """
    z = grid["z"].abs().dropna()
    if z.empty:
        return False, "no rate is large enough to be sampled"
    limit = float(-ndtri(0.001 / 2 / len(z)))
    return bool(z.max() <= limit), f"sampled rates agree: largest |z| of {len(z)} is {z.max():.1f}"


def assigns_well(grid: pd.DataFrame) -> Finding:
    """D1-1: greedy's lead over h-worst in estimable workers, as a share of h-best's."""
    counts = in_each_setting(grid, "estimable")
    greedy, best, worst = (counts[method] for method in DOCUMENT)
    possible = (best - worst).sum()
    if possible <= 0:
        return not_run("h-best has nowhere more estimable workers than h-worst")
    share = {method: (counts[method] - worst).sum() / possible for method in counts}
    between = (greedy <= best).all() and (greedy < best).any() and (greedy >= worst).all()
    return Finding(
        float(share["greedy"]),
        n=len(counts),
        counted=SETTINGS,
        holds=bool(between and share["greedy"] >= 0.5),
        sensitivity=f"The order of equal sensors is not given: by chance {share[CHANCE]:.0%}. A "
        f"random assignment has {share[RANDOM]:.0%}; see D1-5.",
    )


def scales_with_workers(grid: pd.DataFrame, delta: float, dimensions: int, blocks: int) -> Finding:
    """D1-2: slope of greedy's estimable workers over m, the smallest over ε.

    As a control, all workers of h-best must be estimable exactly where a closed form says so: with
    blocks of `size` sensors, variance 1 and covariance ρ = .9, a sensor with k mates on other
    workers has the variance 1 − ρ²k / (1 + ρ(k − 1)), and h-best leaves k = size − ⌈size / m⌉.
    """
    counts = in_each_setting(grid, "estimable")
    table = counts["greedy"].unstack("epsilon")
    table = table.loc[:, table.max() > 0]
    if table.empty or len(table) < 3:
        return not_run("greedy has no estimable workers at any ε, or m has under three values")
    slopes = np.polyfit(table.index, table.to_numpy(), 1)[0]

    m, epsilon = (counts.index.get_level_values(name).to_numpy() for name in SETTING)
    size = dimensions // blocks
    k = size - np.ceil(size / m)
    variance = np.where(k > 0, 1 - 0.81 * k / (1 + 0.9 * (k - 1)), 1)
    smallest = Requirement(1.0, delta).half_width(variance)
    as_derived = (counts["h-best"] == m) == (epsilon >= smallest)
    return Finding(
        float(slopes.min()),
        n=len(slopes),
        counted="values of ε with estimable workers",
        control=bool(as_derived.all()),
        sensitivity=f"Over these ε the slopes are {slopes.min():.2f} … {slopes.max():.2f}.",
    )


def keeps_guarantee(grid: pd.DataFrame, delta: float) -> Finding:
    """D1-3: the largest error rate of an estimable worker's sensor, over settings and methods."""
    counted = grid[grid["method"].isin(DOCUMENT)].dropna(subset="largest")
    if counted.empty:
        return not_run("no worker is estimable at any ε and m")
    agree, sample = sample_agrees(counted)
    return Finding(
        float(counted["largest"].max()),
        n=len(counted),
        counted="settings of three methods",
        holds=bool(counted["largest"].max() <= delta * (1 + 1e-9)),
        control=agree,
        sensitivity=f"{sample}. In one data set of 1,000 rows a rate may exceed δ by chance.",
    )


def accurate_as_assigned(grid: pd.DataFrame, delta: float) -> Finding:
    """D1-4: greedy's error rate minus h-best's; nowhere below 0, and greedy's at most δ."""
    rates = in_each_setting(grid, "rate")
    gap = (rates["greedy"] - rates["h-best"]).dropna()
    if gap.empty:
        return not_run("no setting where both greedy and h-best have estimable workers")
    agree, _ = sample_agrees(grid[grid["method"].isin(["greedy", "h-best"])])
    accurate = rates["greedy"].max() <= delta * (1 + 1e-9)
    above = gap.mean() > 0 and gap.min() >= -1e-9
    by_chance = (rates[CHANCE] - rates["h-best"]).mean()
    return Finding(
        float(gap.mean()),
        n=len(gap),
        counted="settings with estimable workers",
        holds=bool(accurate and above),
        control=agree,
        sensitivity=f"Ties by chance: {by_chance:.4f}. Greedy's own rate is at most "
        f"{rates['greedy'].max():.4f}.",
    )


def better_than_random(grid: pd.DataFrame) -> Finding:
    """D1-5: greedy's error rate as a multiple of a random assignment's, summed over settings."""
    rates, everyone = in_each_setting(grid, "rate"), in_each_setting(grid, "everyone")
    both = rates[["greedy", RANDOM]].notna().all(axis=1)
    if not rates.loc[both, RANDOM].sum():
        return not_run("no setting in which greedy and a random assignment make errors")
    ratio = rates[both].sum() / rates.loc[both, RANDOM].sum()
    over_all = everyone.loc[both, "greedy"].sum() / everyone.loc[both, RANDOM].sum()
    agree, _ = sample_agrees(grid[grid["method"].isin(["greedy", RANDOM])])
    return Finding(
        float(ratio["greedy"]),
        n=int(both.sum()),
        counted="settings with estimable workers",
        control=agree,
        sensitivity=f"Ties by chance: {ratio[CHANCE]:.2f}. Even h-best has {ratio['h-best']:.3f}. "
        f"Over all sensors, greedy has {over_all:.2f}.",
    )


CLAIMS = [
    Claim(
        "D1-1",
        "Greedy assignment does not reach the best one, h-best, but divides the nodes efficiently.",
        "6.2",
        "Greedy's lead over h-worst in estimable workers is at least half of h-best's. Section "
        "6.1.3 names these two as comparators.",
        assigns_well,
        expected="below h-best, nearer to it than to h-worst",
        basis=EXACT,
        unit="of h-best's lead",
    ),
    Claim(
        "D1-2",
        "The number of estimable workers scales with the number of workers used.",
        "6.2",
        "At each ε with estimable workers, a line through greedy's numbers over m rises.",
        scales_with_workers,
        expected="rises with m",
        threshold=Threshold("ours: any bound up to 0.99 gives the same verdict", low=0.5),
        basis=EXACT,
        unit="estimable per further worker",
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
        unit="of the estimates",
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
        "Greedy's error rate (9) is less than half of a random assignment's. Section 6 announces "
        "this comparison; no figure shows it.",
        better_than_random,
        expected="far below 1",
        threshold=Threshold("ours: any bound below 1.2 gives the same verdict", high=0.5),
        basis=EXACT,
        unit="× a random assignment's rate",
        recorded=DOES_NOT_HOLD,
    ),
]

SUMMARY = Summary(
    claimed="With correlated sensors on different workers, a failed one's windows can be "
    "estimated within ε with probability 1 − δ; greedy assignment suffices.",
    found="Holds: error rates stay within δ; greedy goes {D1-1.measured:.0%} of the way from the "
    "worst assignment to the best, as does a random one. Fails: greedy's error rate is "
    "{D1-5.measured:.2f} times a random assignment's, not far lower.",
    sure="By formula.",
    limits="The model must be right: in Beijing, errors are more frequent than it predicts, but "
    "stay below δ. Whether recovery becomes faster is measured in report 07.",
)
