"""The guard's own claims, judged by the plan of each set and by walks through troubled streams."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aftlib.core.claims import UNDECIDED, Claim, Finding, Threshold, nothing
from aftlib.sensor_plans.backtest import GUARD, HINDSIGHT, MANY, Walk
from aftlib.sensor_plans.experiments import SENSORS, against_adversary


def keeps_promise(plans: Mapping[str, Mapping]) -> Finding:
    """G-1: on each set the share within ε is not below 1 − δ."""
    judged = {n: p for n, p in plans.items() if p["backtest"]["promises"] >= MANY}
    if not judged:
        return nothing(f"no set with {MANY} promises or more")
    tests = {name: plan["backtest"] for name, plan in judged.items()}
    lowest = min(tests, key=lambda name: tests[name]["within_epsilon"])
    broken = [n for n, p in judged.items() if tests[n]["interval"][1] < 1 - p["question"]["delta"]]
    least = 1 - judged[lowest]["question"]["delta"]
    return Finding(
        tests[lowest]["within_epsilon"],
        tests[lowest]["interval"],
        expected=f"≥ {least:g}",
        threshold=Threshold("the guarantee (ε, δ)", low=least),
        conditions=not broken,
        note=f"Lowest of {len(judged)} sets with {MANY} promises or more, {lowest}. The interval's "
        f"upper end is below 1 − δ in {len(broken)} of them. Worst sensors: "
        + ", ".join(f"{n} {t['worst_sensor']:.3f}" for n, t in tests.items() if t["worst_sensor"])
        + ".",
    )


def keeps_bound(plans: Mapping[str, Mapping], walks: Mapping[str, Walk]) -> Finding:
    """G-2: no account ever has more errors than the theorem allows."""
    excess = {name: plan["backtest"]["excess_over_theorem"] for name, plan in plans.items()}
    excess |= {trouble: walk.excess for trouble, walk in walks.items()}
    deltas = {plan["question"]["delta"] for plan in plans.values()}
    for struck in (1, SENSORS):
        name = f"an adversary against {struck} of {SENSORS}"
        excess[name] = max(against_adversary(delta, struck) for delta in deltas)
    closest = max(excess, key=lambda name: excess[name])
    return Finding(
        excess[closest],
        note="Largest number of wrong promises beyond δN and the slack, over all accounts and "
        f"pools of {len(plans)} sets, {len(walks)} streams with trouble, and adversaries who see "
        f"every promise; it comes closest on {closest}.",
    )


def declares_more(plans: Mapping[str, Mapping]) -> Finding:
    """G-3: at equal honesty the guard promises more than the baseline model."""
    shares = {
        name: {line["method"]: line["declared"] for line in plan["compared"]}
        for name, plan in plans.items()
    }
    guard = float(np.mean([share[GUARD] for share in shares.values()]))
    plain = float(np.mean([share[HINDSIGHT] for share in shares.values()]))
    named = ", ".join(f"{n} {s[GUARD]:.2f} / {s[HINDSIGHT]:.2f}" for n, s in shares.items())
    return Finding(
        guard,
        expected=f"above {plain:.3f}",
        threshold=Threshold("the baseline model of the same run", low=plain, strict=True),
        note="Mean share of the windows promised, beside that of the baseline model for the most "
        "sensors with which, in hindsight, it would have kept its promise (guard / plain): "
        f"{named}.",
    )


CLAIMS = [
    Claim(
        "G-1",
        "Of the losses that the guard declared recoverable, a share of 1 − δ is estimated "
        "within ε, on every set.",
        keeps_promise, expected="≥ 1 − δ", unit="of the promises", figure="Promise and measurement",
        formula=r"\text{kept} / \text{promised} \ge 1 - \delta", project=True, recorded=UNDECIDED,
    ),
    Claim(
        "G-2", "The theorem's bound on wrong promises is never passed.", keeps_bound,
        expected="≤ 0", threshold=Threshold("the theorem of the guard", high=0),
        unit="wrong beyond it", figure="When something goes wrong",
        formula=r"\text{wrong} \le \delta N + \text{slack}", project=True,
    ),
    Claim(
        "G-3", "The guard promises for more windows than the plain model Σ/w could have kept.",
        declares_more, expected="above the plain model's", unit="of the windows",
        figure="Promise and measurement", project=True,
    ),
]  # fmt: skip
