"""Buckets: how events change them, one by one or in bulk, and how buckets of several merge."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from aftlib.documents.exponential_histogram.units import MAX_UNITS, Units, bucket_sizes, top_level

NOTHING = np.empty(0, np.int64)
#: The clock of a time window before its first event: earlier than any timestamp.
NEVER = -MAX_UNITS
#: Most units per event, so that chains of merges do not overflow.
FINEST = 2**16


class Buckets:
    """Timestamps of buckets whose sizes follow from the total.

    They are stored in an array, which bulk updates replace, or in one queue per size, which single
    events change in place. Each form is made from the other when it is needed. A single event costs
    amortised O(1). A bulk update of n events costs O(n) for counting them, and O(log n) per bucket
    that expires or stays.

    A bucket expires when its newest event is at or before `now` - `window`. `now` is the time of
    the newest event, or `NEVER` or 0 before the first event. All units came after `origin`. After
    merges a unit may be 1/`scale` of an event.
    """

    def __init__(self, window: int, least: int, now: int, origin: int) -> None:
        self.window = window
        self.least = least
        self.now = now
        self.origin = origin
        self.total = 0
        self.scale = 1
        self._stamps: NDArray[np.int64] | None = NOTHING
        self._queues: list[deque[int]] | None = None  # of size 1, 2, 4, …, oldest at the left
        self._due = now  # no bucket expires before

    @property
    def stamps(self) -> NDArray[np.int64]:
        """Timestamps, newest first."""
        if self._stamps is None:
            newest_first = [at for queue in self._queues or () for at in reversed(queue)]
            self._stamps = np.array(newest_first, np.int64)
        return self._stamps

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Units in each bucket, newest first."""
        return bucket_sizes(self.total, self.least, top_level(self.total, self.least))

    @property
    def largest(self) -> int:
        """Units in the oldest bucket, 0 if there is none."""
        if self._queues is not None:
            return 1 << len(self._queues) >> 1
        return 1 << top_level(self.total, self.least) if self.total else 0

    @property
    def begins(self) -> NDArray[np.int64]:
        """Earliest time of each bucket's units: the timestamp of the next older bucket."""
        return np.append(self.stamps[1:], self.origin + 1)[: self.stamps.size]

    def replace(self, stamps: NDArray[np.int64], total: int) -> None:
        """Replace the buckets: timestamps newest first, in the canonical form of the total."""
        self.total = total
        self._stamps = stamps
        self._queues = None

    def single(self, now: int, units: int) -> None:
        """Add one event at time `now`: a small number of units, added one by one."""
        if self._queues is None:
            stamps = iter(self.stamps.tolist())
            counts = np.unique(self.sizes, return_counts=True)[1].tolist()
            self._queues = [deque(reversed(list(islice(stamps, count)))) for count in counts]
            self._due = now
        queues = self._queues
        self.now = now
        if now >= self._due:
            self._stamps = None
            edge = now - self.window
            while queues and queues[-1][0] <= edge:
                queues[-1].popleft()
                self.total -= 1 << (len(queues) - 1)
                if not queues[-1]:
                    queues.pop()
            # merges can only delay this; without buckets, the next one expires after a window
            self._due = (queues[-1][0] if queues else now) + self.window

        while units:
            units -= 1
            self._stamps = None
            self.total += 1
            stamp = now
            most = self.least + 1
            for queue in queues:
                queue.append(stamp)
                if len(queue) <= most:
                    break
                queue.popleft()  # the two oldest become one of twice the size,
                stamp = queue.popleft()  # which keeps the newer timestamp
            else:
                queues.append(deque((stamp,)))

    def many(
        self,
        units: Units,
        times: NDArray[np.int64] = NOTHING,
        totals: NDArray[np.int64] = NOTHING,
    ) -> None:
        """Add an array of events, with exactly the same result as adding them one by one.

        Without `times` (size 0) they happen at now + 1, now + 2, …. Unless `totals` is empty, it
        receives the total after each event.
        """
        from aftlib.documents.exponential_histogram.kernels import apply

        if units.size == 0:
            return
        if self.now == NEVER:
            self.origin = int(times[0]) - 1
        stamps, total = apply(
            tuple(units),
            (times, self.now),
            (self.stamps, self.total),
            (self.window, self.least),
            totals,
        )
        self.replace(stamps, int(total))
        self.now = int(times[-1]) if times.size else self.now + units.size


def halves(
    parts: Sequence[Buckets], edge: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int, float]:
    """Halve each bucket; return times after `edge` in order, units at each, scale and rounding.

    A bucket of s units stores the time of its newest unit, its end. None of its units came before
    its start, the end of the next older bucket. We put (s + 1)/2 units at its end and (s - 1)/2 at
    its start. At any moment between, the count is at most (s - 1)/2 off, as the sound estimate
    allows. So the replayed stream is within the inputs' ε of the true one *for every part of the
    window*, and a histogram of it within ε + ε' + εε' (ECM-sketches, Papapetrou et al.).

    Whole units at both ends would be off by s/2, too much for a few small buckets. So a unit is
    half an event, and a quarter of an event after a merge of merged histograms. With `FINEST` units
    per event it is not halved again. Rounding is then off by half a unit in at least one event;
    this relative error is returned.
    """
    scale = max(part.scale for part in parts)
    rounding = 0.0
    finest = [part for part in parts if part.scale == scale]
    if any(((part.sizes > 1) & (part.begins < part.stamps)).any() for part in finest):
        rounding = 0.0 if scale < FINEST else 0.5 / scale
        scale = min(2 * scale, FINEST)
    total = sum(int(part.sizes.sum()) * (scale // part.scale) for part in parts)
    if total >= MAX_UNITS:
        raise ValueError(
            f"other must keep the total below {MAX_UNITS} units of 1/{scale}, got {total}: "
            "use a coarser unit"
        )

    columns = []
    for part in parts:
        whole = part.sizes * (scale // part.scale)
        spread = part.begins < part.stamps
        ends = np.where(spread, (whole + scale // part.scale) // 2, whole)
        columns.append((np.append(part.begins, part.stamps), np.append(whole - ends, ends)))
    times, units = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(times, kind="stable")
    order = order[times[order] > edge]
    return times[order], units[order], scale, rounding
