"""The state of many guards as rows of one array, and rings of the last rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np


def axes(names: str, kind: Any = float, *, first: float = 0.0, learned: bool = False) -> Any:
    """Return the field of an array with these axes behind the one of guards, and its type.

    It is `first` before the first round. Another guard may begin with the arrays that are `learned`
    (`guard.learned`).
    """
    about = {"axes": names.split(), "kind": kind, "first": first, "learned": learned}
    return field(metadata=about)


def type_of(part: Any, sizes: Mapping[str, int]) -> np.dtype:
    """Return the type of a guard's row of the arrays of a class, from the sizes of their axes."""
    return np.dtype(
        [
            (each.name, each.metadata["kind"], tuple(sizes[axis] for axis in each.metadata["axes"]))
            for each in fields(part)
            if each.metadata
        ]
    )


def views_of(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the fields of rows by name."""
    return {name: rows[name] for name in rows.dtype.names or ()}


@dataclass(frozen=True)
class State:
    """The state of G guards, besides their accounts, models and risks.

    All four have arrays with the same axes. The first one of each array is G, and its index is a
    guard; the others are named here. Index i of the axis n is a sensor, and index h − 1 of the axis
    H is horizon h. A ring has what the next rounds need of the last H ones, along the axis `age`.
    Index 0 is the newest entry. Until a round puts its own entry in, index k − 1 is k rounds old;
    so of a ring with the axes `age` and H, the diagonal is what was known or decided for horizon h,
    h rounds ago. Between two rounds, index k is k rounds old.

    The arrays are views of the guards' rows (`guard.guards.Guards`), so they are changed in place.
    """

    rounds: np.ndarray = axes("", np.int64)  # so far
    phase: np.ndarray = axes("")  # of the seasons at round 0, in rounds
    seen: np.ndarray = axes("", np.int64)  # rounds in which a window came
    absorbed: np.ndarray = axes("", np.int64)  # of these, those that are in the model's moments
    level: np.ndarray = axes("n", learned=True)  # forgetting mean of each sensor
    level_weight: np.ndarray = axes("n", learned=True)  # and its weight
    windows: np.ndarray = axes("age n", first=np.nan)  # ring; NaN where missing
    filled: np.ndarray = axes("age n", first=np.nan)  # ring; with the model's values in the gaps
    levels: np.ndarray = axes("age n")  # ring; means as they were after each round
    away: np.ndarray = axes("n", np.int64)  # rounds since each sensor was there; 0 if it is
    decisions: np.ndarray = axes("age H n", np.int64)  # ring
    log_covered_then: np.ndarray = axes("age H n")  # ring; `log_covered` at these decisions
    # log ρ*: the largest log inflation by gaps that a guarantee given now covers
    log_covered: np.ndarray = axes("H n", learned=True)
    number: np.ndarray = axes("H n")  # guarantees with a known outcome
    errors: np.ndarray = axes("H n")  # of these, the wrong ones
    outside: np.ndarray = axes("H n")  # share of the last errors above a half-width


def at_horizons(ring: np.ndarray) -> np.ndarray:
    """Return the view (G, H, …) of what a ring (G, age, H, …) has for horizon h, h rounds ago."""
    return np.asarray(np.einsum("ghh...->gh...", ring))


def pushed(ring: np.ndarray, newest: np.ndarray) -> np.ndarray:
    """Return a ring after a round whose part (G, …) is `newest`; the oldest part leaves it."""
    return np.concatenate([newest[:, np.newaxis], ring[:, :-1]], axis=1)
