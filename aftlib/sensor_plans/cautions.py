"""What a reader must know before trusting a plan: too little data, drift, still sensors, gaps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from aftlib.core.fillvalues import shown
from aftlib.sensor_plans.backtest import GUARD, Walk, shares
from aftlib.sensor_plans.survey import Inventory, WindowResults

LEARNING = 250
"""Windows that the guard needs before it promises anything."""
STILL = 30
QUIET = 0.1
LISTED = 6


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
        for found in inventory.fill_values[:LISTED]
    ]


def few_windows(results: WindowResults, walk: Walk) -> list[str]:
    """Too few windows to learn, or so few promises that the slack outweighs δ."""
    found = []
    if results.half < LEARNING:
        found.append(
            f"Too few windows: {results.half} before the back-test, and the guard learns from some "
            f"{LEARNING} before it promises anything. Give a longer record or smaller windows."
        )
    promised = int(walk.books[0, :, 0].sum())
    if promised and walk.pooled_allowance > walk.delta * promised:
        found.append(
            f"Few promises: of N = {promised:,} the theorem lets {walk.pooled_allowance:.0f} more "
            f"than the share δ be wrong (slack/N = {walk.pooled_allowance / promised:.3f}), more "
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
        f"ε is too small for {len(never)} of {len(names)} sensors: they are hardly ever promised. "
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
    more = f" and {len(chosen) - LISTED} more" if len(chosen) > LISTED else ""
    return ", ".join(chosen[:LISTED]) + more
