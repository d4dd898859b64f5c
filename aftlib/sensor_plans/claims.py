"""The guard's own claims, judged by plans of data sets and back-tests of streams with trouble."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from aftlib.core.intervals import bootstrap_interval
from aftlib.sensor_plans.backtest import GUARD, HINDSIGHT, MANY, Walk
from aftlib.sensor_plans.experiments import SENSORS, against_adversary
from aftlib.workbench.old_claims import DEVIATES, SIMULATED, Claim, Finding, Threshold, nothing


def meets_guarantee(plans: Mapping[str, Mapping]) -> Finding:
    """G-1: on each set the share within ε is not below 1 − δ."""
    eligible = {n: p for n, p in plans.items() if p["backtest"]["promises"] >= MANY}
    if not eligible:
        return nothing(f"no set with {MANY} guarantees or more")
    tests = {name: plan["backtest"] for name, plan in eligible.items()}
    least = {name: 1 - plan["question"]["delta"] for name, plan in eligible.items()}
    below = [name for name in eligible if tests[name]["interval"][1] < least[name]]
    findings = {
        name: Finding(
            test["within_epsilon"],
            test["interval"],
            n=sum(part["declared"] > 0 for part in eligible[name]["stretches"]),
            counted="segments of time",
            expected=f"≥ {least[name]:g}",
            threshold=Threshold("the guarantee (ε, δ)", low=least[name]),
        )
        for name, test in tests.items()
    }
    lowest = min(tests, key=lambda name: tests[name]["within_epsilon"])
    return replace(
        findings[lowest],
        parts={f"on {name}": each for name, each in findings.items() if name != lowest},
        note=f"The lowest of {len(findings)} sets is {lowest}; {len(below)} have an interval below "
        f"1 − δ. Only sets with {MANY} guarantees or more are counted. Intervals resample whole "
        "segments of time. Worst sensors: "
        + ", ".join(f"{n} {t['worst_sensor']:.3f}" for n, t in tests.items() if t["worst_sensor"])
        + ".",
    )


def keeps_bound(plans: Mapping[str, Mapping], walks: Mapping[str, Walk]) -> Finding:
    """G-2: no account ever has more errors than the theorem permits."""
    excess = {name: plan["backtest"]["excess_over_theorem"] for name, plan in plans.items()}
    excess |= {trouble: walk.excess for trouble, walk in walks.items()}
    deltas = {plan["question"]["delta"] for plan in plans.values()}
    for attacked in (1, SENSORS):
        name = f"an adversary against {attacked} of {SENSORS}"
        excess[name] = max(against_adversary(delta, attacked) for delta in deltas)
    closest = max(excess, key=lambda name: excess[name])
    return Finding(
        excess[closest],
        n=len(excess),
        counted="streams",
        note=f"Of all streams, {closest} comes closest to the bound on wrong guarantees. The value "
        "is the number of wrong guarantees minus δN and the slack. It is the largest such number "
        "for a single sensor or for all sensors together, at any length of an outage. The streams "
        f"are {len(plans)} sets, {len(walks)} streams with trouble, and adversaries who see every "
        "guarantee.",
    )


def certifies_more(plans: Mapping[str, Mapping]) -> Finding:
    """G-3: on each set the guard certifies at least as much as the baseline model in hindsight."""
    leads, values, named = {}, {}, []
    for name, plan in plans.items():
        shares = {line["method"]: line["declared"] for line in plan["compared"]}
        guard, baseline = shares[GUARD], shares[HINDSIGHT]
        by_segment = np.array([[part["declared"] for part in plan["stretches"]]])
        low, high = bootstrap_interval(by_segment, 1, np.random.default_rng(1))
        ends = (min(guard, low[0]), guard, max(guard, high[0]))
        below, values[name], above = (round(float(end - baseline), 9) for end in ends)
        leads[name] = Finding(
            values[name], (below, above), n=by_segment.size, counted="segments of time"
        )
        named.append(f"{name} {guard:.3f} against {baseline:.3f}")
    least = min(values, key=lambda name: values[name])
    more, fewer = (sum(value * sign > 0 for value in values.values()) for sign in (1, -1))
    return replace(
        leads[least],
        parts={f"on {name}": lead for name, lead in leads.items() if name != least},
        note=f"The guard certifies more windows on {more} of {len(leads)} sets and fewer on "
        f"{fewer}. The value is the guard's least lead, on {least}. In hindsight, the "
        "baseline model certifies the largest number of sensors with which its guarantee holds. "
        f"Shares, guard against baseline: {'; '.join(named)}. Intervals resample whole segments of "
        "time; the baseline's share is taken as exact.",
    )


CLAIMS = [
    Claim(
        "G-1",
        "Of the losses that the guard certified recoverable, a share of at least 1 − δ is "
        "estimated within ε, on every set.",
        meets_guarantee, expected="≥ 1 − δ", unit="of the guarantees",
        figure="Guarantee and measurement",
        formula=r"\text{satisfied} / \text{guaranteed} \ge 1 - \delta",
        project=True, basis=SIMULATED,
    ),
    Claim(
        "G-2", "The theorem's bound on wrong guarantees is never exceeded.", keeps_bound,
        expected="≤ 0", threshold=Threshold("the theorem of the guard", high=0),
        unit="wrong guarantees beyond the bound", figure="When something goes wrong",
        formula=r"\text{wrong} \le \delta N + \text{slack}", project=True, basis=SIMULATED,
    ),
    Claim(
        "G-3",
        "On every set the guard certifies at least as many windows as the baseline model Σ/w could "
        "have certified without breaking the guarantee.",
        certifies_more, expected="≥ 0 on every set",
        threshold=Threshold("the baseline model of the same run: equal shares give 0", low=0),
        unit="more of the windows", figure="Guarantee and measurement", project=True,
        basis=SIMULATED, recorded=DEVIATES,
    ),
]  # fmt: skip
