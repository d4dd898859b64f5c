"""The guard's own claims, judged by plans of data sets and back-tests of streams with trouble."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aftlib.core.intervals import bootstrap_interval
from aftlib.sensor_plans.backtest import GUARD, HINDSIGHT, MANY, Walk
from aftlib.sensor_plans.experiments import SENSORS, against_adversary
from aftlib.workbench.claims import SIMULATED, Claim, Finding, Summary, Threshold, not_run

DELTA = 0.05
"""Share δ for which the claims are recorded."""


def keeps_guarantee(plans: Mapping[str, Mapping[str, Any]], walks: Mapping[str, Walk]) -> Finding:
    """G-1: the share within ε on the first set; a broken theorem counts as a share of 0."""
    first, *others = plans
    test = plans[first]["backtest"]
    if test["promises"] < MANY:
        return not_run(f"{first} has fewer than {MANY} guarantees")
    excess = {name: plan["backtest"]["excess_over_theorem"] for name, plan in plans.items()}
    excess |= {trouble: walk.excess for trouble, walk in walks.items()}
    for attacked in (1, SENSORS):
        excess[f"an adversary against {attacked}"] = against_adversary(DELTA, attacked)
    closest = max(excess, key=lambda name: excess[name])
    if excess[closest] > 0:
        return Finding(0.0, sensitivity=f"{closest}: {excess[closest]:.0f} errors above the bound")
    shares = [
        f"On {name} {plans[name]['backtest']['within_epsilon'] or 0:.1%}. " for name in others
    ]
    return Finding(
        test["within_epsilon"],
        tuple(test["interval"]),
        n=sum(part["declared"] > 0 for part in plans[first]["segments"]),
        counted="segments of time",
        sensitivity="".join(shares) + f"Closest to the bound of {len(excess)} streams: "
        f"{closest}, {-excess[closest]:.0f} errors below.",
    )


def price(plans: Mapping[str, Mapping[str, Any]]) -> Finding:
    """G-3: how many fewer windows than a model that was tuned in hindsight, on the first set."""
    prices = {}
    for name, plan in plans.items():
        certified = {line["method"]: line["declared"] for line in plan["compared"]}
        prices[name] = certified[HINDSIGHT] - certified[GUARD]
    first, *others = prices
    by_segment = np.array([[part["declared"] for part in plans[first]["segments"]]])
    low, high = bootstrap_interval(by_segment, 1, np.random.default_rng(1))
    level = prices[first] + by_segment.mean()
    ends = sorted(float(level - bound[0]) for bound in (low, high))
    return Finding(
        prices[first],
        (min(ends[0], prices[first]), max(ends[1], prices[first])),
        n=by_segment.size,
        counted="segments of time",
        sensitivity="; ".join(f"on {name} {prices[name]:+.0%}" for name in others),
    )


CLAIMS = [
    Claim(
        "G-1",
        "Whatever the data, at most a share δ of the certified estimates and a fixed slack are "
        "wrong.",
        "theorem; back-test",
        "At Beijing's stations a share of at least 1 − δ of the certified windows is within ε, and "
        "no stream exceeds the theorem's bound.",
        keeps_guarantee,
        expected="≥ 1 − δ",
        threshold=Threshold("the guarantee (ε, δ)", low=1 - DELTA),
        unit="of the certified windows",
        basis=SIMULATED,
        project=True,
    ),
    Claim(
        "G-3",
        "The guarantee costs at most a tenth of the windows on real data.",
        "back-test",
        "At Beijing's stations the guard certifies at most a tenth fewer windows than the "
        "documents' model could have certified if it had been tuned afterwards.",
        price,
        expected="≤ 10 %",
        threshold=Threshold("ours: 8 % to 100 % give the same verdict", high=0.1),
        unit="of the windows",
        basis=SIMULATED,
        project=True,
    ),
]
SUMMARY = Summary(
    claimed="A guard certifies beforehand which lost windows it may estimate: whatever the data, "
    "hardly more than a share δ of these estimates are off by more than ε.",
    found="At Beijing's stations {G-1.measured:.1%} of the certified windows were within ε "
    "(guaranteed: 95 %). The guarantee costs {G-3.measured:.0%} of Beijing's windows.",
    sure="The bound is a theorem, checked against adversaries; the shares are a back-test on one "
    "real and one generated set.",
    limits="Failures must not depend on the data; one machine fails at a time; below some 500 "
    "certified windows the bound says little.",
)
