"""The slow, obvious twins of the histograms: the article's own algorithm, and exact windows."""

import math


class ArticleHistogram:
    """D5, figures 1 and 2: a list of [timestamp, count], newest first, walked at every event."""

    def __init__(self, window, epsilon):
        self.window = window
        self.full = math.ceil(0.5 * math.ceil(1 / epsilon)) + 2
        self.buckets: list[list[int]] = []
        self.total = 0

    def update(self, timestamp, units):
        self.expire(timestamp)
        for _ in range(units):
            self.buckets.insert(0, [timestamp, 1])
            self.total += 1
            self.merge()

    def expire(self, timestamp):
        while self.buckets and self.buckets[-1][0] <= timestamp - self.window:
            self.total -= self.buckets.pop()[1]

    def merge(self):
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

    def query(self):
        last = self.buckets[-1][1] if self.buckets else 0
        return math.ceil(self.total - last / 2)

    def listed(self):
        return [(at, count) for at, count in self.buckets]


def exact(times, units, now, width):
    """The sum over the events in (now - width, now]."""
    return sum(u for t, u in zip(times, units, strict=True) if now - width < t <= now)
