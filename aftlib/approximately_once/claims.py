"""D1's claims, and functions that judge them by notebook 01's frames on the document's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from aftlib.approximately_once.experiments.grid import (
    CHANCE,
    DOCUMENT,
)
from aftlib.core.intervals import t_interval
from aftlib.core.requirement import Requirement
from aftlib.workbench.old_claims import (
    DERIVED,
    DEVIATES,
    SIMULATED,
    UNDECIDED,
    Claim,
    Finding,
    Threshold,
    nothing,
)

POINT = ["workers", "epsilon"]
GREEDY = {"ties by chance": CHANCE}
"""Other readings of fig. 9, and the methods of the grid that follow them."""
MARGIN = 0.05
"""Share of δ by which a rate's interval may exceed δ, because the rate may be exactly δ."""
SEEN = 0.001
"""Tolerance of a rate's interval: errors of a lower rate rarely occur in any row."""


def _at_most(delta: float, source: str) -> Threshold:
    """The threshold δ, with a margin because an assignment's rate may be exactly δ."""
    why = "no number of samples shows that a rate of exactly δ is at most δ"
    text = f"{source}; our margin is δ/20: {why}"
    return Threshold(text, high=delta, margin=MARGIN * delta)


def _counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Estimable workers, means over draws: a row per point (m, ε), a column per method."""
    return frame.pivot_table(index=POINT, columns="method", values="estimable")


def _by_part(grid: pd.DataFrame, method: str, column: str = "by_part") -> pd.DataFrame:
    """Error rates of a method, means over draws: a row per point (m, ε), a column per data set."""
    chosen = grid[grid["method"] == method]
    rates = np.stack(chosen[column].to_list())
    return pd.DataFrame(rates, pd.MultiIndex.from_frame(chosen[POINT])).groupby(level=[0, 1]).mean()


def _together(rates: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre, low and high of the rates at each point; all intervals hold jointly (Bonferroni)."""
    return t_interval(rates.to_numpy(), family=len(rates))


def _for_each_greedy(judge: Callable[[pd.DataFrame], Finding], grid: pd.DataFrame) -> Finding:
    """Judge greedy as it is and, as other readings, its variants in `GREEDY`."""
    finding = judge(grid)
    readings = dict(finding.readings)
    for reading, method in GREEDY.items():
        other = grid[grid["method"] != "greedy"].replace({"method": {method: "greedy"}})
        if finding.missing or (variant := judge(other)).missing:
            continue
        readings[reading] = replace(variant, readings={}, note="")
        readings |= {f"{name}, {reading}": each for name, each in variant.readings.items()}
    return replace(finding, readings=readings)


def assigns_well(grid: pd.DataFrame) -> Finding:
    """D1-1: greedy is below h-best, but nearer to it than to h-worst; also compared with chance."""

    def judge(grid: pd.DataFrame) -> Finding:
        counts = _counts(grid)
        greedy, best, worst = (counts[method] for method in DOCUMENT)
        if (lead := float((best - worst).sum())) <= 0:
            return nothing("no point at which h-best has more estimable workers than h-worst")
        draws = grid[grid["method"] == "random"].pivot_table(
            index=POINT, columns="draw", values="estimable"
        )
        ahead = (-draws.sub(greedy, axis=0)).sum().to_numpy() / lead
        mean, low, high = t_interval(ahead)
        random, points = draws.mean(axis=1), len(counts)
        between = bool((greedy <= best).all() and (greedy < best).any() and (greedy >= worst).all())
        return Finding(
            float((greedy - worst).sum() / lead),
            conditions=between,
            n=points,
            counted="points (m, ε)",
            readings={
                "“well” means no worse than chance": Finding(
                    float(mean),
                    (float(low), float(high)),
                    conditions=between,
                    threshold=Threshold(
                        "ours: no worse than chance; section 6 compares only error rates with "
                        "chance",
                        low=0,
                    ),
                    n=len(ahead),
                    counted="random assignments of each point",
                )
            },
            note=f"Greedy reaches {float((greedy - worst).sum()) / lead:.3f} of h-best's lead over "
            f"h-worst, and a random assignment {float((random - worst).sum()) / lead:.3f}. Greedy "
            f"is below h-best at {int((greedy < best).sum())} points and below h-worst at "
            f"{int((greedy < worst).sum())}. Greedy has more estimable workers than the mean "
            f"random assignment at {int((greedy > random).sum())} points, fewer at "
            f"{int((greedy < random).sum())} and the same number at "
            f"{int((greedy == random).sum())}. Gap in the document: fig. 9 does not define the "
            "order of equally reliable keys, and this order decides. Summed over all points, "
            f"greedy has {int((best - greedy).sum())} fewer estimable workers than h-best.",
        )

    return _for_each_greedy(judge, grid)


def scales_with_workers(
    grid: pd.DataFrame, delta: float, dimensions: int, blocks: int, covariance: str
) -> Finding:
    """D1-2: estimable workers scale with m.

    With blocks of `size` keys, variance 1 and covariance ρ = .9, a key with k mates on other
    workers has the variance 1 − ρ²k / (1 + ρ(k − 1)); h-best leaves k = size − ⌈size / m⌉.
    """
    counts = _counts(grid)
    m = counts.index.get_level_values("workers").to_numpy()
    epsilon = counts.index.get_level_values("epsilon").to_numpy()
    size = dimensions // blocks
    k = size - np.ceil(size / m)
    variance = np.where(k > 0, 1 - 0.81 * k / (1 + 0.9 * (k - 1)), 1)
    smallest = Requirement(1.0, delta).half_width(variance)
    unlike = (counts["h-best"] == m) != (epsilon >= smallest)

    def judge(grid: pd.DataFrame) -> Finding:
        table = _counts(grid)["greedy"].unstack("epsilon")
        varying = table.loc[:, table.max() > 0]
        if varying.empty or len(varying) < 3:
            return nothing("greedy has no estimable workers at any ε, or m has under three values")
        slopes = np.polyfit(varying.index, varying.to_numpy(), 1)[0]
        dropped = ", ".join(f"{e:g}" for e in table.columns.difference(varying.columns))
        return Finding(
            float(slopes.min()),
            n=len(slopes),
            counted="values of ε",
            control=covariance != "block" or not unlike.any(),
            note=f"Each further worker adds {slopes.min():.3f} … {slopes.max():.3f} estimable "
            f"workers: slopes of lines over {len(varying)} values of m, one line per ε. Left out, "
            f"because no worker is estimable: ε = {dropped or 'none'}. As a control, a formula for "
            "blocks of keys says where all workers of h-best are estimable; h-best differs from it "
            f"at {int(unlike.sum())} of {len(counts)} points.",
        )

    return _for_each_greedy(judge, grid)


def keeps_guarantee(
    grid: pd.DataFrame,
    samples_grid: pd.DataFrame,
    unscaled_grid: pd.DataFrame,
    delta: float,
) -> Finding:
    """D1-3: no method's error rate is above δ in any setting, under three readings of the rows."""

    def judge(grid: pd.DataFrame, predicted: bool = True) -> Finding:
        counted = grid[grid["method"].isin(DOCUMENT)].dropna(subset="pooled")
        if counted.empty:
            return nothing("no worker is estimable at any ε and m")
        rates = pd.DataFrame(np.stack(counted["by_part"].to_list()))
        rate, low, high = _together(rates)
        off = np.abs(rate - counted["expected"]) > high - rate + SEEN
        at, first = counted.iloc[rate.argmax()], counted[counted["method"].isin(DOCUMENT)]["error"]
        return Finding(
            float(rate.max()),
            (float(low.max()), float(high.max())),
            control=not (predicted and off.any()),
            n=rates.shape[1],
            counted="data sets",
            threshold=_at_most(delta, "section 6.2: at most δ"),
            note=f"{int((low > delta).sum())} of {len(counted)} rates lie above δ by more than "
            f"chance (Bonferroni). The value is the largest, {at['method']} at m = "
            f"{at['workers']:.0f}, ε = {at['epsilon']:g}. {int(off.sum())} intervals, widened by "
            f"{SEEN}, exclude the rate that the model predicts. In one data set of the document's "
            f"size the largest rate is {first.max():.4f}.",
        )

    others = {
        "rows are samples": judge(samples_grid),
        "rows are samples, Σ unscaled": judge(unscaled_grid, predicted=False),
    }
    readings = {name: each for name, each in others.items() if not each.missing}
    return replace(judge(grid), readings=readings)


def accurate_as_assigned(grid: pd.DataFrame, delta: float) -> Finding:
    """D1-4: greedy's error rate is not below h-best's, and not above δ."""

    def judge(grid: pd.DataFrame) -> Finding:
        greedy, best = _by_part(grid, "greedy"), _by_part(grid, "h-best")
        gap = (greedy - best).dropna()
        if gap.empty:
            return nothing("no point where both greedy and h-best have estimable workers")
        mean, low, high = t_interval(gap.mean().to_numpy())
        _, _, most = _together(gap)
        rate, least, greatest = _together(greedy.dropna())
        above, below = int((least > delta).sum()), int((most < 0).sum())
        accurate = Finding(
            float(rate.max()),
            (float(least.max()), float(greatest.max())),
            threshold=_at_most(delta, "ours: “very accurate” means at most δ"),
            unit="of the estimates",
            n=gap.shape[1],
            counted="data sets",
        )
        return Finding(
            float(mean),
            (float(low), float(high)),
            conditions=below == 0,
            parts={"greedy's own rate, the largest": accurate},
            n=gap.shape[1],
            counted="data sets",
            note="The value is greedy's error rate minus h-best's, as a mean over the "
            f"{len(gap)} points (m, ε) where both have estimable workers. The largest difference "
            f"at a point is {gap.mean(axis=1).max():.4f}. Beyond chance greedy's rate is "
            f"above δ at {above} points and below h-best's at {below}. Greedy's own "
            f"mean rate is {rate.mean():.4f}, {rate.mean() / delta:.2f} times δ.",
        )

    return _for_each_greedy(judge, grid)


def better_than_random(grid: pd.DataFrame) -> Finding:
    """D1-5: greedy's error rate is far below that of an assignment without the model."""

    def ratio(grid: pd.DataFrame, other: str, column: str = "by_part") -> Finding:
        ours, best, theirs = (
            _by_part(grid, method, column) for method in ("greedy", "h-best", other)
        )
        both = ours.notna().all(axis=1) & theirs.notna().all(axis=1)
        sums = [rates[both].sum().to_numpy() for rates in (ours, best, theirs)]
        if not (sums[2] > 0).all():
            return nothing(
                f"in at least one data set {other} makes no error at the points where both have "
                "estimable workers, so the ratio of the rates is not defined"
            )
        mean, low, high = t_interval(sums[0] / sums[2])
        possible = float((sums[1] / sums[2]).mean())
        return Finding(
            float(mean),
            (float(low), float(high)),
            control=possible <= FAR,
            n=len(sums[0]),
            counted="data sets",
            note=f"Greedy has {mean:.3f} and h-best {possible:.3f} of {other}'s rate. ",
        )

    def judge(grid: pd.DataFrame) -> Finding:
        finding, everyone = ratio(grid, "random"), ratio(grid, "random", "all_by_part")
        if finding.missing or everyone.missing:
            return finding
        worst = ratio(grid, "h-worst"), ratio(grid, "h-worst", "all_by_part")
        counted, over_all = (each.note or "h-worst makes no error." for each in worst)
        return replace(
            finding,
            readings={"all keys": replace(everyone, note="")},
            note=f"{finding.note}Chance spreads ten blocks over workers almost evenly. The "
            "document's figures compare with h-worst. Over keys of estimable workers, as in (9): "
            f"{counted}Over all keys: {over_all}",
        )

    return _for_each_greedy(judge, grid)


FAR = 0.5
ESTIMABLE = r"R(A_i) = \min_{Y \in A_i} R(Y \mid X \setminus A_i) \ge 1 - \delta \tag{7}"
ERRORS = r"\mathrm{err} = \sum_i \mathrm{err}_i \,/\, (|W|\,|X|) \tag{9}"
ESTIMABLE_FIGURE = "Estimable workers against m (fig. 10)"
ERRORS_FIGURE = "Error rate against m (fig. 12)"

CLAIMS = [
    Claim(
        "D1-1", "Greedy assignment does not reach the best spread (h-best) but assigns well.",
        assigns_well, source="section 6.2, figs 10, 11",
        expected="below h-best, nearer to it than to h-worst",
        threshold=Threshold(
            "ours: nearer to h-best than to h-worst, because section 6.2 has no number", low=0.5
        ),
        unit="of h-best's lead over h-worst", basis=DERIVED, figure=ESTIMABLE_FIGURE,
        formula=ESTIMABLE, recorded=UNDECIDED,
    ),
    Claim(
        "D1-2", "The number of estimable workers scales with the number m of workers.",
        scales_with_workers, source="section 6.2, figs 10, 11", expected="rises with m",
        threshold=Threshold(
            "ours: at least half an estimable worker per further one, because section 6.2 has no "
            "number",
            low=0.5,
        ),
        unit="estimable workers per further worker", basis=DERIVED, figure=ESTIMABLE_FIGURE,
        formula=ESTIMABLE,
    ),
    Claim(
        "D1-3", "The error rate is not above δ = 0.05 in any setting.", keeps_guarantee,
        source="section 6.2, figs 12, 13", expected="≤ δ in every setting", unit="of the estimates",
        basis=SIMULATED, figure=ERRORS_FIGURE, formula=ERRORS,
    ),
    Claim(
        "D1-4",
        "Greedy's error rate is not as low as h-best's, but its estimates are very accurate.",
        accurate_as_assigned, source="section 6.2, figs 12, 13",
        expected="above h-best's rate, and at most δ",
        threshold=Threshold("section 6.2: not as low as h-best's", low=0, strict=True),
        unit="above h-best's rate", basis=SIMULATED, figure=ERRORS_FIGURE, formula=ERRORS,
    ),
    Claim(
        "D1-5", "An assignment that knows the model has a far lower error rate than a random one.",
        better_than_random, source="section 6: announced, not shown",
        expected="far below random's rate",
        threshold=Threshold("ours: “far below” means less than half", high=FAR),
        unit="× random's rate", basis=SIMULATED, project=True, figure=ERRORS_FIGURE, formula=ERRORS,
        recorded=DEVIATES,
    ),
]  # fmt: skip
