"""The state of an exponential histogram, and how events change it."""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from aftlib.exponential_histogram.canonical import MAX_UNITS, bucket_counts, bucket_sizes, top_level
from aftlib.exponential_histogram.units import Units

NO_TIMES = np.empty(0, np.int64)
NO_ANSWERS = np.empty(0, np.float64)
#: The clock of a time window before its first event: earlier than any timestamp.
NEVER = -MAX_UNITS


class Buckets:
    """Timestamps of buckets whose sizes follow from the total (see `canonical`).

    They stand in an array, which bulk updates replace, or in a queue a size, which single events
    change in place; each is made from the other when it is needed. A single event costs O(1)
    amortised, n events together O(n) for counting them and O(log n) a bucket that expires or stays.

    Parameters
    ----------
    window
        A bucket expires when its newest event is at or before now - window.
    least
        Least number of buckets of a size that is not the largest.
    now
        Time of the newest event, or before the first.
    origin
        All units came after it.
    """

    def __init__(self, window: int, least: int, now: int, origin: int) -> None:
        self.window, self.least, self.most = window, least, least + 1
        self.now, self.origin = now, origin
        self._stamps: NDArray[np.int64] | None = NO_TIMES
        self.total = 0
        self._queues: list[deque[int]] | None = None  # of size 1, 2, 4, …, oldest at the left

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
        return bucket_sizes(self.total, self.least)

    @property
    def largest(self) -> int:
        """Units in the oldest bucket, 0 if there is none."""
        return 1 << top_level(self.total, self.least) if self.total else 0

    @property
    def consistent(self) -> bool:
        """Whether the timestamps are as many, as ordered and as recent as the rest demands."""
        if not (NEVER <= self.origin <= self.now < MAX_UNITS and 0 <= self.total < MAX_UNITS):
            return False
        stamps = self.stamps
        if stamps.size != sum(bucket_counts(self.total, self.least)):
            return False
        oldest = max(self.origin, self.now - self.window) + 1
        times = np.concatenate(([self.now], stamps, [oldest] if stamps.size else []))
        return bool((times[1:] <= times[:-1]).all())

    def replace(self, stamps: NDArray[np.int64], total: int) -> None:
        """Hold other buckets: timestamps newest first, in the canonical form of the total."""
        self._stamps, self.total, self._queues = stamps, total, None

    def single(self, now: int, units: int) -> None:
        """Take in one event of a few units."""
        queues = self._queues
        if queues is None:
            queues = self._queues = self._unpacked()
        self._stamps = None
        self.now = now
        if queues and queues[-1][0] <= now - self.window:
            self._expire(queues)
        while units > 0:
            units -= 1
            self.total += 1
            stamp = now
            for queue in queues:
                queue.append(stamp)
                if len(queue) <= self.most:
                    break
                queue.popleft()  # the two oldest become one of twice the size,
                stamp = queue.popleft()  # which keeps the newer timestamp
            else:
                queues.append(deque((stamp,)))

    def many(
        self,
        units: Units,
        times: NDArray[np.int64] = NO_TIMES,
        answers: NDArray[np.float64] = NO_ANSWERS,
        article: bool = False,
    ) -> None:
        """Take in a row of events, exactly as if they had come one by one.

        Parameters
        ----------
        units
            What the events bring.
        times
            When they happen; without (size 0) at now + 1, now + 2, ….
        answers
            Filled with the estimate after each event, in units, unless it is empty.
        article
            Answer as the article does, rather than soundly.
        """
        from aftlib.exponential_histogram import kernels

        if units.size == 0:
            return
        if self.now == NEVER:
            self.origin = int(times[0]) - 1
        chunk = (units.cum, units.shift, units.bits, units.words, times, self.now)
        sure = self._inside(times, units.size) if answers.size and not article else 0
        rules = (self.window, self.least, answers, sure, article)
        stamps, total = kernels.apply(*chunk, self.stamps, self.total, *rules)
        self.replace(stamps, int(total))
        self.now = int(times[-1]) if times.size else self.now + units.size

    def _inside(self, times: NDArray[np.int64], size: int) -> int:
        """How many of the events find the whole stream in their window: their totals are exact."""
        end = self.origin + self.window
        if times.size:
            return int(np.searchsorted(times, end, side="right"))
        return min(max(end - self.now, 0), size)

    def _expire(self, queues: list[deque[int]]) -> None:
        while queues and queues[-1][0] <= self.now - self.window:
            queues[-1].popleft()
            self.total -= 1 << (len(queues) - 1)
            if not queues[-1]:
                queues.pop()

    def _unpacked(self) -> list[deque[int]]:
        stamps, queues = iter(self.stamps.tolist()), []
        for count in bucket_counts(self.total, self.least):
            queues.append(deque(reversed(list(islice(stamps, count)))))
        return queues
