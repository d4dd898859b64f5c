"""The slow, obvious twins of the histograms: the article's own algorithm, and exact windows."""

from __future__ import annotations

import math


class ArticleHistogram:
    """D5, figures 1 and 2: a list of [timestamp, count], newest first, walked at every event."""

    def __init__(self, window: int, epsilon: float) -> None:
        self.window = window
        self.full = math.ceil(0.5 * math.ceil(1 / epsilon)) + 2
        self.buckets: list[list[int]] = []
        self.total = 0

    def update(self, timestamp: int, units: int) -> None:
        self.expire(timestamp)
        for _ in range(units):
            self.buckets.insert(0, [timestamp, 1])
            self.total += 1
            self.merge()

    def expire(self, timestamp: int) -> None:
        while self.buckets and self.buckets[-1][0] <= timestamp - self.window:
            self.total -= self.buckets.pop()[1]

    def merge(self) -> None:
        current, same = 0, 0
        while current < len(self.buckets):
            alike = current > 0 and self.buckets[current - 1][1] == self.buckets[current][1]
            same = same + 1 if alike else 1
            if same == self.full:
                newer = self.buckets.pop(current - 1)
                current -= 1  # stay on the merged bucket: it may complete a run of its own
                self.buckets[current] = [newer[0], newer[1] + self.buckets[current][1]]
            else:
                current += 1

    def query(self) -> int:
        last = self.buckets[-1][1] if self.buckets else 0
        return math.ceil(self.total - last / 2)

    def listed(self) -> list[tuple[int, int]]:
        return [(at, count) for at, count in self.buckets]


def exact(times: list[int], units: list[int], now: int, width: int) -> int:
    """The sum over the events in (now - width, now]."""
    return sum(u for t, u in zip(times, units, strict=True) if now - width < t <= now)
