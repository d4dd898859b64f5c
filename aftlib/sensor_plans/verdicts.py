"""What the back-tests say about the guard's own claims, G-1 … G-3."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aftlib.reports.claims import Settled, settle
from aftlib.sensor_plans.backtest import GUARD, HINDSIGHT, MANY, Walk
from aftlib.sensor_plans.experiments import SENSORS, against_adversary


def verdicts(plans: Mapping[str, Mapping], walks: Mapping[str, Walk]) -> list[Settled]:
    """Settle G-1 … G-3 from the plan of each set and the walks through troubled streams."""
    return [keeps_promise(plans), keeps_bound(plans, walks), declares_more(plans)]


def keeps_promise(plans: Mapping[str, Mapping]) -> Settled:
    """G-1: on each set the share within ε is not below 1 − δ."""
    judged = {n: p for n, p in plans.items() if p["backtest"]["promises"] >= MANY}
    if not judged:
        why = f"no set with {MANY} promises or more"
        return Settled("G-1", "≥ 1 − δ", None, None, "not run", "measured", why)
    tests = {name: plan["backtest"] for name, plan in judged.items()}
    lowest = min(tests, key=lambda name: tests[name]["within_epsilon"])
    broken = [n for n, p in judged.items() if tests[n]["interval"][1] < 1 - p["question"]["delta"]]
    low, high = tests[lowest]["interval"]
    return settle(
        "G-1",
        expected=f"≥ {1 - judged[lowest]['question']['delta']:g}",
        measured=tests[lowest]["within_epsilon"],
        interval=(low, high),
        holds=not broken,
        note=f"Lowest of {len(judged)} sets with {MANY} promises or more, {lowest}. The interval's "
        f"upper end is below 1 − δ in {len(broken)} of them. Worst sensors: "
        + ", ".join(f"{n} {t['worst_sensor']:.3f}" for n, t in tests.items() if t["worst_sensor"])
        + ".",
    )


def keeps_bound(plans: Mapping[str, Mapping], walks: Mapping[str, Walk]) -> Settled:
    """G-2: no account ever has more errors than the theorem allows."""
    excess = {name: plan["backtest"]["excess_over_theorem"] for name, plan in plans.items()}
    excess |= {trouble: walk.excess for trouble, walk in walks.items()}
    deltas = {plan["question"]["delta"] for plan in plans.values()}
    for struck in (1, SENSORS):
        name = f"an adversary against {struck} of {SENSORS}"
        excess[name] = max(against_adversary(delta, struck) for delta in deltas)
    closest = max(excess, key=lambda name: excess[name])
    return settle(
        "G-2",
        expected="≤ 0",
        measured=excess[closest],
        holds=excess[closest] <= 0,
        note="Largest number of wrong promises beyond δN and the slack, over all accounts and "
        f"pools of {len(plans)} sets, {len(walks)} streams with trouble, and adversaries who see "
        f"every promise; it comes closest on {closest}.",
    )


def declares_more(plans: Mapping[str, Mapping]) -> Settled:
    """G-3: at equal honesty the guard promises more than the baseline model."""
    shares = {
        name: {line["method"]: line["declared"] for line in plan["compared"]}
        for name, plan in plans.items()
    }
    guard = float(np.mean([share[GUARD] for share in shares.values()]))
    plain = float(np.mean([share[HINDSIGHT] for share in shares.values()]))
    named = ", ".join(f"{n} {s[GUARD]:.2f} / {s[HINDSIGHT]:.2f}" for n, s in shares.items())
    return settle(
        "G-3",
        expected=f"above {plain:.3f}",
        measured=guard,
        holds=guard > plain,
        note="Mean share of the windows promised, beside that of the baseline model for the most "
        "sensors with which, in hindsight, it would have kept its promise (guard / plain): "
        f"{named}.",
    )
