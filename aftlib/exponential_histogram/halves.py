"""Merging: each bucket is replayed as two halves, one where it starts and one where it ends.

A bucket of s units tells when its newest came and that none came before its next older neighbour's
newest. Putting (s + 1)/2 of them at its end and (s - 1)/2 at its start is at most (s - 1)/2 off at
any moment between, which is what the sound estimate allows: so the replayed stream is within the
inputs' ε of the true one *for every part of the window*, and a histogram of it within
ε + ε' + εε' (ECM-sketches, Papapetrou et al.). Whole halves would be off by s/2, too much for a few
small buckets; hence units of half an event, and of a quarter after a merge of merged ones. They
stop at `FINEST`: rounding there is off by half a unit in at least one event, which is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aftlib.exponential_histogram.canonical import MAX_UNITS

#: Units an event at most, so that chains of merges do not overflow.
FINEST = 2**16


class Part(NamedTuple):
    """One histogram to merge: buckets newest first, in units of 1/scale events after `origin`."""

    stamps: NDArray[np.int64]
    sizes: NDArray[np.int64]
    scale: int
    origin: int

    @property
    def begins(self) -> NDArray[np.int64]:
        """Earliest time of each bucket's units: its older neighbour's timestamp."""
        return np.append(self.stamps[1:], self.origin + 1)[: self.stamps.size]

    @property
    def splits(self) -> bool:
        """Whether any bucket is spread over time."""
        return bool(((self.sizes > 1) & (self.begins < self.stamps)).any())


def replay(
    parts: Sequence[Part], edge: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int, float]:
    """Times after `edge` in order, units at each, the units' scale, and the relative rounding.

    Raises
    ------
    ValueError
        If the parts together overflow the limit of units.
    """
    scale, rounding = max(part.scale for part in parts), 0.0
    if any(part.splits for part in parts if part.scale == scale):
        rounding = 0.0 if scale < FINEST else 0.5 / scale
        scale = max(scale, min(2 * scale, FINEST))
    total = sum(int(part.sizes.sum()) * (scale // part.scale) for part in parts)
    if total >= MAX_UNITS:
        raise ValueError(
            f"other must keep the total below {MAX_UNITS} units of 1/{scale}, got {total}: "
            "use a coarser unit"
        )
    halves = [_halves(part, scale // part.scale) for part in parts]
    times, units = (np.concatenate(column) for column in zip(*halves, strict=True))
    times, units = times[times > edge], units[times > edge]
    order = np.argsort(times, kind="stable")
    return times[order], units[order], scale, rounding


def _halves(part: Part, factor: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ends = np.where(part.begins < part.stamps, (part.sizes + 1) * factor // 2, part.sizes * factor)
    times = np.concatenate((part.begins, part.stamps))
    return times, np.concatenate((part.sizes * factor - ends, ends))
