"""What the grid says about D1's claims."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import spearmanr, t

from aftlib.core.intervals import CONFIDENCE
from aftlib.core.requirement import Requirement
from aftlib.reports.claims import Settled, settle


def verdicts(
    grid: pd.DataFrame, *, delta: float, replications: int, dimensions: int, blocks: int
) -> list[Settled]:
    """Settle D1-1 … D1-5 by `experiments.grid` on the document's data, of that many dimensions."""
    mean = grid.groupby(["method", "workers", "epsilon"], as_index=False).mean(numeric_only=True)
    estimable, pooled, everyone = (
        mean.pivot_table(index=["workers", "epsilon"], columns="method", values=v, dropna=False)
        for v in ("estimable", "pooled", "pooled_all")
    )
    return [
        assigns_well(estimable),
        scales_with_workers(estimable, delta, dimensions // blocks),
        keeps_promise(grid, delta, replications + 1),
        close_to_best(pooled),
        better_than_random(pooled, everyone),
    ]


def assigns_well(estimable: pd.DataFrame) -> Settled:
    """D1-1: greedy does not reach h-best but assigns well, better than chance."""
    greedy, best, worst, random = (estimable[m] for m in ("greedy", "h-best", "h-worst", "random"))
    expected = "below h-best, most of the gap from h-worst and from chance closed"
    if not (best > worst).any():
        return _not_run("D1-1", expected, "h-best has no more estimable workers than h-worst")
    closed = float((greedy - worst).sum() / (best - worst).sum())
    behind, above = int((greedy < best).sum()), int((greedy > best).sum())
    tight = random < best
    lead = float((greedy - random)[tight].sum() / (best - random)[tight].sum()) if any(tight) else 1
    return settle(
        "D1-1",
        expected=expected,
        measured=closed,
        holds=above == 0 and behind > 0 and closed >= 0.5 and lead >= 0.25,
        note=f"Share of h-best's lead over h-worst that greedy reaches, over {len(estimable)} "
        f"points (ε, m); below h-best at {behind} of them, above it at {above}. Where a random "
        f"assignment does not reach h-best, greedy reaches {lead:.2f} of what is missing. Random "
        f"assignment has more estimable workers than greedy at {int((random > greedy).sum())} "
        "points: ties are broken towards packing.",
    )


def scales_with_workers(estimable: pd.DataFrame, delta: float, size: int) -> Settled:
    """D1-2: estimable workers scale with m.

    With blocks of `size` keys, variance 1 and covariance ρ = .9, a key with k mates on other
    workers has the variance 1 − ρ²k / (1 + ρ(k − 1)); h-best leaves k = size − ⌈size / m⌉.
    """
    table = estimable["greedy"].unstack("epsilon")
    varying = table.loc[:, table.max() > table.min()]
    if varying.empty:
        return _not_run("D1-2", "rises with m", "no ε at which greedy's estimable workers vary")
    least = float(min(spearmanr(varying.index, varying[e]).statistic for e in varying))

    m = estimable.index.get_level_values("workers").to_numpy()
    epsilon = estimable.index.get_level_values("epsilon").to_numpy()
    k = size - np.ceil(size / m)
    variance = np.where(k > 0, 1 - 0.81 * k / (1 + 0.9 * (k - 1)), 1)
    smallest = Requirement(1.0, delta).half_width(variance)
    unlike = (estimable["h-best"] == m) != (epsilon >= smallest)
    return settle(
        "D1-2",
        expected="rises with m",
        measured=least,
        holds=least >= 0.9 and not unlike.any(),
        note="Smallest rank correlation between m and greedy's estimable workers, over the "
        f"{varying.shape[1]} values of ε at which any worker is estimable. That all of h-best's "
        f"workers are estimable differs from the closed form at {int(unlike.sum())} of "
        f"{len(estimable)} points.",
    )


def keeps_promise(grid: pd.DataFrame, delta: float, parts: int) -> Settled:
    """D1-3: the error rate is at most δ in every setting, and what the model foresees."""
    counted, expected = grid.dropna(subset="pooled"), f"≤ {delta:g} in every setting"
    if counted.empty:
        return _not_run("D1-3", expected, "no worker is estimable at any ε and m")
    # one interval a point would exclude δ somewhere by chance: widen them to hold together
    level = 1 - (1 - CONFIDENCE) / 2 / len(counted)
    wider = t.ppf(level, parts - 1) / t.ppf((1 + CONFIDENCE) / 2, parts - 1)
    half = (counted["pooled_high"] - counted["pooled"]) * wider
    broken = int((counted["pooled"] - half > delta).sum())
    # rates of a few in ten thousand rarely show in any row
    off = (counted["pooled"] - counted["expected"]).abs() > half + 1e-3
    worst = int(counted["pooled"].to_numpy().argmax())
    at, reach = counted.iloc[worst], float(half.iloc[worst])
    rate = float(at["pooled"])
    return settle(
        "D1-3",
        expected=expected,
        measured=rate,
        interval=(rate - reach, rate + reach),
        holds=broken == 0 and not off.any(),
        note=f"Largest of {len(counted)} rates, {at['method']} at m = {at['workers']:.0f}, "
        f"ε = {at['epsilon']:g}; the intervals hold for all points together (Bonferroni), and "
        f"{broken} of them lie above δ, and {int(off.sum())} exclude the rate that the model "
        f"foresees. In the document's {int(at['windows'] / parts):,} rows alone "
        f"the largest rate is {counted['error'].max():.4f}.",
    )


def close_to_best(pooled: pd.DataFrame) -> Settled:
    """D1-4: greedy's error rate is close to h-best's."""
    gap = (pooled["greedy"] - pooled["h-best"]).dropna()
    if gap.empty:
        return _not_run("D1-4", "close to h-best", "no point where both have estimable workers")
    return settle(
        "D1-4",
        expected="close to h-best",
        measured=float(gap.mean()),
        holds=bool(gap.mean() <= 0.01),
        note=f"Mean difference of error rates (9) over {len(gap)} points where both have estimable "
        f"workers; close means at most 0.01. The largest is {gap.max():.4f}.",
    )


def better_than_random(pooled: pd.DataFrame, everyone: pd.DataFrame) -> Settled:
    """D1-5: greedy's error rate is far below that of a random assignment."""
    expected = "greedy's rate far below random's"
    counted = pooled[["greedy", "random"]].dropna()
    if not counted["random"].sum() > 0:
        return _not_run("D1-5", expected, "no point where both err on estimable workers")
    ratio = float(counted["greedy"].sum() / counted["random"].sum())
    both = everyone.loc[counted.index]
    overall = float(both["greedy"].sum() / both["random"].sum())
    return settle(
        "D1-5",
        expected=expected,
        measured=ratio,
        holds=ratio <= 0.5,
        note="Greedy's error rate over random's: by (9), over keys of estimable workers, "
        f"{ratio:.2f}; over all keys {overall:.2f}. Chance spreads ten blocks over workers almost "
        "as evenly as h-best, while greedy packs keys up to the promise.",
    )


def _not_run(claim: str, expected: str, why: str) -> Settled:
    return Settled(claim, expected, None, None, "not run", "measured", why)
