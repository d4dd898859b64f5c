"""Streams in which something goes wrong half-way, and what promises are worth then."""

from __future__ import annotations

import numpy as np
import pandas as pd

from aftlib.core.sensorplan import fitted
from aftlib.guard.accounts import CAP, POOL_CAP, Accounts, most_loans, pool_unit
from aftlib.sensor_plans.backtest import GUARD, PLAIN, Walk, shares, walk_forward

SENSORS = 8
TROUBLES = ("drift", "stuck sensors", "change of regime")
EPSILON_SD = 0.5


def troubled(trouble: str, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Window results of eight sensors, in order until the middle, shape (rounds, 8).

    They share a slow common part. "drift": two of them move away, further and further; "stuck
    sensors": two repeat their last value; "change of regime": their own noise triples. ValueError
    for any other.
    """
    common, own = np.empty(rounds), rng.normal(size=(rounds, SENSORS))
    at = 0.0
    for t, shock in enumerate(rng.normal(size=rounds)):
        at = 0.9 * at + shock
        common[t] = at
    half, noise = rounds // 2, np.full(rounds, 0.4)
    if trouble == "change of regime":
        noise[half:] *= 3
    values = common[:, None] + noise[:, None] * own
    if trouble == "drift":
        values[half:, :2] += 10 * np.linspace(0, 1, rounds - half)[:, None]
    elif trouble == "stuck sensors":
        values[half:, :2] = values[half - 1, :2]
    elif trouble != "change of regime":
        raise ValueError(f"trouble must be one of {', '.join(TROUBLES)}, got {trouble!r}")
    return values


def walked(trouble: str, rounds: int, delta: float, seed: int) -> Walk:
    """Walk forward through a troubled stream; everything is fitted before the trouble."""
    values = troubled(trouble, rounds, np.random.default_rng([seed, TROUBLES.index(trouble)]))
    first = values[: rounds // 2]
    plain = fitted(first, [f"X{i}" for i in range(1, SENSORS + 1)])
    workers = [[i] for i in range(SENSORS)]
    return walk_forward(values, workers, EPSILON_SD * first.std(axis=0), delta, plain)


def against_adversary(delta: float, struck: int, rounds: int = 4000) -> float:
    """Most errors beyond δN and what an interval allows, by one who sees what is promised.

    In the first half every promise comes true, so that the accounts are as full as they may be; in
    the second each promise of the `struck` sensors is broken, and each that was blocked would have
    come true, which earns loans. The theorem's part 2, and the same of all together: at most 0.
    """
    accounts, counts = Accounts(SENSORS, delta), np.zeros((SENSORS, 2))
    for t in range(rounds):
        said = accounts.declare(np.ones(SENSORS))
        wrong = (said == 2) & (np.arange(SENSORS) < struck) & (t >= rounds // 2)
        accounts.update(said, wrong)
        if t >= rounds // 2:
            counts += np.column_stack([said == 2, wrong])

    beyond, loans = counts[:, 1] - delta * counts[:, 0], most_loans(rounds)
    pool = pool_unit(SENSORS) * (POOL_CAP + loans) + SENSORS * (1 - delta)
    return float(max(beyond.max() - CAP - loans, beyond.sum() - pool))


def over_time(walks: dict[str, Walk]) -> pd.DataFrame:
    """Shares promised and kept of each stretch of time, with and without the guard.

    Rows of trouble, method, window, declared, within (NaN where nothing was promised).
    """
    parts = []
    for trouble, walk in walks.items():
        for method in (GUARD, PLAIN):
            declared, within = shares(walk.of(method).sum(axis=1))
            part = {"window": walk.edges[:-1], "declared": declared, "within": within}
            parts.append(pd.DataFrame({"trouble": trouble, "method": method} | part))
    return pd.concat(parts, ignore_index=True)


def summed_up(walks: dict[str, Walk]) -> pd.DataFrame:
    """The same over the whole time after the trouble began, a row a trouble and method."""
    rows = [
        (trouble, method, *shares(walk.of(method).sum(axis=(0, 1))))
        for trouble, walk in walks.items()
        for method in (GUARD, PLAIN)
    ]
    return pd.DataFrame(rows, columns=["trouble", "method", "declared", "within"])
