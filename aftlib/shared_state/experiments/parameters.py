"""What the report of D3 must be told for its figures and verdicts to have something to go by."""

from __future__ import annotations

from collections.abc import Sequence

from aftlib.shared_state.stream.tuples import UNIFORM

SKEWED = 1.4
"""Skew from which D3 sees no growth of the shuffle's throughput beyond few tasks."""
GROWTH = (8, 24)
"""Parallelisms between which throughput is compared."""


def require_parameters(
    skews: Sequence[float],
    tasks: Sequence[int],
    modelled_tasks: Sequence[int],
    locality_keys: Sequence[int],
    repeats: int,
) -> None:
    """Refuse, before anything is measured, what the verdicts could not be settled from.

    Parameters
    ----------
    skews : sequence of float
        Measured and modelled skews.
    tasks, modelled_tasks : sequence of int
        Measured and modelled parallelisms.
    locality_keys : sequence of int
        Sizes of the table of sums.
    repeats : int
        Counted runs.

    Raises
    ------
    ValueError
    """
    if UNIFORM not in skews:
        raise ValueError(
            f"skews must hold {UNIFORM} (uniform), which all others are compared with, "
            f"got {list(skews)}: add {UNIFORM}"
        )
    if max(skews) < SKEWED:
        raise ValueError(
            f"skews must hold one of {SKEWED} or more, got {list(skews)}: add {SKEWED}, for which "
            "D3 says that a shuffle does not grow"
        )
    missing = sorted(set(GROWTH) - set(modelled_tasks))
    if missing:
        raise ValueError(
            f"modelled_tasks must hold {GROWTH[0]} and {GROWTH[1]}, between which growth is "
            f"judged, got {list(modelled_tasks)}: add {missing}"
        )
    if max(tasks, default=0) < 2:
        raise ValueError(
            f"tasks must hold 2 or more, for one to die and one to live, got {list(tasks)}: add 2"
        )
    if not locality_keys:
        raise ValueError("locality_keys must hold a number of keys, got []: add 100000")
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats!r}")
