"""The plan in plain words, line by line, for the terminal, and what limits its worth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from aftlib.core.fillvalues import shown
from aftlib.sensor_plans.backtest import GUARD, Walk, shares
from aftlib.sensor_plans.survey import Inventory, WindowResults

LISTED = 12
LEARNING = 250
"""Windows that the guard needs before it certifies anything."""
STILL = 30
QUIET = 0.1
NAMED = 6


def report_lines(plan: dict) -> list[str]:
    """What the plan says, for somebody who has never heard of the documents."""
    parts = (list_predictors, losses, machines, recovery, backtest_lines, methods, warnings)
    return [line for part in parts for line in ["", *part(plan)]]


def list_predictors(plan: dict) -> list[str]:
    """What each sensor tells about the others."""
    lines = [
        "What the other machines' sensors tell of each (share of its variance, best predictor):"
    ]
    for sensor in plan["sensors"][:LISTED]:
        predictor = (
            f"{sensor['closest']} ({sensor['correlation']:+.2f})" if sensor["closest"] else ""
        )
        lines.append(f"  {_name(sensor['name'])} {max(sensor['explained'], 0):4.0%}   {predictor}")
    return lines + _rest(plan["sensors"])


def losses(plan: dict) -> list[str]:
    """Which sensors may be lost, and for how long."""
    horizons = plan["question"]["horizons"]
    lines = [
        "How often each could have been lost and estimated within ε, by how many windows the "
        f"outage lasts (1 … {horizons}):"
    ]
    for sensor in plan["sensors"][:LISTED]:
        shares = " ".join(f"{share:4.0%}" for share in sensor["declared"])
        lines.append(f"  {_name(sensor['name'])} {shares}   ε = {sensor['epsilon']:.4g}")
    now = sum(sensor["now"][0] for sensor in plan["sensors"])
    return [
        *lines,
        *_rest(plan["sensors"]),
        f"  after the last window of the file: {now} of {len(plan['sensors'])} sensors",
    ]


def machines(plan: dict) -> list[str]:
    """Who computes which sensor."""
    assignment = plan["assignment"]
    if len(assignment) == len(plan["sensors"]):
        return [f"Machines: {len(assignment)}, one sensor each (--workers says how many)."]
    lines = [f"Machines: {len(assignment)}, sensors dealt so that each has predictors elsewhere:"]
    for number, names in enumerate(assignment[:LISTED]):
        lines.append(f"  {number}: {', '.join(names[:LISTED])}")
    return lines + _rest(assignment)


def recovery(plan: dict) -> list[str]:
    """Checkpoints, and what is read again."""
    asked, n = plan["question"], len(plan["sensors"])
    lines = [
        f"Recovery within {asked['t_sla_ms']:g} ms, taken to need {asked['fixed_ms']:g} ms and "
        f"{asked['per_tuple_ms']:g} ms a sample read again (--fixed-ms and --per-tuple-ms; the "
        "default is a published measurement, not your machine's):"
    ]
    times = ", ".join(map(str, plan["checkpoints"]))
    lines.append(
        f"  checkpoints after step {times} of each window"
        if times
        else "  no checkpoint inside a window is needed"
    )
    for part in plan["replay"]:
        what = f"{len(part['sensors'])} of {n} sensors" if part["sensors"] else "nothing"
        named = f" ({', '.join(part['sensors'][:6])})" if 0 < len(part["sensors"]) <= 6 else ""
        lines.append(
            f"  failing between step {part['from']} and {part['until']}: read {what} again{named}"
            f", {part['ms']:.1f} ms"
        )
    within = plan["backtest"]["replay_within"]
    if within is not None:
        lines.append(
            f"  back-tested: the others' windows within ε {within:.1%}, worst sensor "
            f"{plan['backtest']['replay_worst_sensor']:.1%} (not guarded: a Gaussian model's word)"
        )
    return lines


def backtest_lines(plan: dict) -> list[str]:
    """The back-test."""
    test, delta = plan["backtest"], plan["question"]["delta"]
    scored, of = test["windows"], plan["data"]["windows"]
    part = "second half" if scored >= of // 2 else "last part"
    lines = [f"Back-test on the {part}, {scored:,} windows, each as if it had been lost:"]
    lines.append(f"  certified recoverable beforehand {test['declared_recoverable']:.1%}")
    if test["within_epsilon"] is None:
        return [*lines, "  no window was certified"]
    low, high = test["interval"]
    lines.append(
        f"  of these within ε               {test['within_epsilon']:.2%}  "
        f"[{low:.2%}, {high:.2%}]; guaranteed: {1 - delta:.0%}"
    )
    if test["worst_sensor"] is not None:
        lines.append(
            f"  worst sensor                    {test['worst_sensor']:.2%}  "
            f"({test['worst_sensor_name']})"
        )
    if test["worst_stretch"] is not None:
        at = plan["stretches"][test["worst_stretch"]["stretch"]]["start"]
        lines.append(
            f"  worst stretch of time           {test['worst_stretch']['within']:.2%}  (from {at})"
        )
    return [
        *lines,
        f"  for any data: of N = {test['N']:,} one-window-ahead guarantees at most "
        f"{delta:g}·N + {test['slack_errors']:.0f} wrong (slack/N = {test['slack']:.4f})",
    ]


def methods(plan: dict) -> list[str]:
    """The guard beside other methods."""
    lines = ["Beside it, on the same windows (share certified, share of those within ε):"]
    for line in plan["compared"]:
        within = "–" if line["within"] is None else f"{line['within']:.1%}"
        mark = "" if line["method"] != GUARD else "   ← this plan"
        lines.append(f"  {line['method']:<33} {line['declared']:6.1%}  {within:>6}{mark}")
    return lines


def warnings(plan: dict) -> list[str]:
    """What to know before trusting the plan."""
    return [f"! {caution}" for caution in plan["cautions"]] or ["No warnings."]


def _name(name: str) -> str:
    return f"{name[:24]:<24}"


def _rest(items: list) -> list[str]:
    return [f"  … and {len(items) - LISTED} more"] if len(items) > LISTED else []


def cautions(
    inventory: Inventory, results: WindowResults, limits: np.ndarray, walk: Walk
) -> list[str]:
    """Warnings in plain words, the gravest first."""
    return [
        *fill_values(inventory),
        *few_windows(results, walk),
        *unreachable(inventory.names, limits, walk),
        *drift(results),
        *still(inventory, results.windows.width),
        *gaps(inventory),
    ]


def fill_values(inventory: Inventory) -> list[str]:
    """Values far from all others that may stand for missing samples."""
    return [
        f"Possible fill value: {shown(found.value)} ({found.count:,} times) in {found.sensor}, "
        f"whose other values lie from {found.low:g} to {found.high:g}. If it stands for missing "
        f"samples, give --missing {shown(found.value)}."
        for found in inventory.fill_values[:NAMED]
    ]


def few_windows(results: WindowResults, walk: Walk) -> list[str]:
    """Too few windows to learn, or so few promises that the slack outweighs δ."""
    found = []
    if results.half < LEARNING:
        found.append(
            f"Too few windows: {results.half} before the back-test, and the guard learns from some "
            f"{LEARNING} before it certifies anything. Give a longer record or smaller windows."
        )
    promised = int(walk.books[0, :, 0].sum())
    if promised and walk.pooled_allowance > walk.delta * promised:
        found.append(
            f"Few guarantees: of N = {promised:,} the theorem permits {walk.pooled_allowance:.0f} "
            f"errors beyond the share δ (slack/N = {walk.pooled_allowance / promised:.3f}), more "
            "than δ itself. What the back-test measured is then worth more than the bound."
        )
    return found


def unreachable(names: tuple[str, ...], limits: np.ndarray, walk: Walk) -> list[str]:
    """Sensors for which hardly any promise could be made, and the ε that would be worth it."""
    share, _ = shares(walk.of(GUARD).sum(axis=0))
    never = np.flatnonzero(share < 0.05)
    if not len(never) or walk.edges[0] < LEARNING:
        return []
    worth = walk.least_epsilon
    listed = _listed([f"{names[i]} {worth[i]:.4g} (asked {limits[i]:.4g})" for i in never])
    return [
        f"ε is too small for {len(never)} of {len(names)} sensors: they are hardly ever certified. "
        f"The smallest ε that would be worth it: {listed}."
    ]


def drift(results: WindowResults) -> list[str]:
    """Sensors whose level or spread differs between the halves."""
    first, second = results.values[: results.half], results.values[results.half :]
    spread = np.nanstd(first, axis=0)
    moved = (np.nanmean(second, axis=0) - np.nanmean(first, axis=0)) / spread
    wider = np.nanstd(second, axis=0) / spread
    found = []
    for flags, text in (
        (np.abs(moved) > 1, "level moved by more than a standard deviation"),
        ((wider > 2) | (wider < 0.5), "spread more than doubled or halved"),
    ):
        if flags.any():
            found.append(f"Drift between the halves: {text} in {_listed(results.names, flags)}.")
    return found


def still(inventory: Inventory, width: int) -> list[str]:
    """Sensors that repeated one value for suspiciously long."""
    runs = inventory.tally.still.longest + 1
    stuck = runs >= max(STILL, 3 * width)
    if not stuck.any():
        return []
    return [
        f"Stuck for up to {int(runs.max()):,} steps on one value: "
        f"{_listed(inventory.names, stuck)}. A sensor that stands still is easy to promise for, "
        "and tells nothing."
    ]


def gaps(inventory: Inventory) -> list[str]:
    """Times at which no sensor reported, and sensors that were silent for long."""
    tally, steps = inventory.tally, inventory.steps
    silent = int(tally.silent[0])
    quiet = tally.missing - silent > QUIET * (steps - silent)
    found = []
    if quiet.any():
        found.append(
            f"Long silences: {_listed(inventory.names, quiet)} misses more than a tenth of its "
            "samples."
        )
    if not silent:
        return found
    return [
        *found,
        f"Clock gaps: {silent:,} of {steps:,} steps have no sample of any sensor, "
        f"the longest gap {int(tally.silence.longest[0]):,} steps. Windows with too few samples "
        "are left out.",
    ]


def _listed(texts: Sequence[str], flags: np.ndarray | None = None) -> str:
    chosen = list(texts if flags is None else compress(texts, flags))
    more = f" and {len(chosen) - NAMED} more" if len(chosen) > NAMED else ""
    return ", ".join(chosen[:NAMED]) + more
