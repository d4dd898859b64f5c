"""Throughput against parallelism, modelled from measured costs and exact load imbalance (D3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SERVED = "servers and tasks"
"""The document's own design, beside Spark's strategies."""
SKEWED = 1.4
"""Skew from which D3 sees no growth of the shuffle's throughput beyond few tasks."""
GROWTH = (8, 24)
"""Parallelisms between which throughput is compared."""


@dataclass(frozen=True)
class ShuffleCosts:
    """What a tuple costs that is shuffled before one aggregation, in seconds."""

    fixed_s: float  # of a run, whatever it holds
    sender_s: float  # of a tuple on its task before the shuffle
    receiver_s: float  # and behind it

    @property
    def receiver_share(self) -> float:
        """Share b of a tuple's cost that its key's one receiver bears."""
        return self.receiver_s / (self.sender_s + self.receiver_s)

    def saturation(self, top_share: float) -> float:
        """Parallelism 1 / (b · top1) from which the most frequent key's receiver sets the pace.

        >>> ShuffleCosts(fixed_s=0, sender_s=3e-7, receiver_s=1e-7).saturation(top_share=0.5)
        8.0
        """
        return 1 / (self.receiver_share * top_share)

    def throughput(self, tuples: int, tasks: int, largest_share: float, pipelined: bool) -> float:
        """Tuples a second, when the busiest receiver has a share (load imbalance / tasks) of them.

        Pipelined, senders and receivers run at the same time, each pair on one core's worth of
        work (the document's systems); else stage after stage (Spark).
        """
        send, receive = self.sender_s / tasks, self.receiver_s * largest_share
        if pipelined:
            even = (self.sender_s + self.receiver_s) / tasks
            return tuples / (self.fixed_s + tuples * max(even, receive))
        return tuples / (self.fixed_s + tuples * (send + receive))


@dataclass(frozen=True)
class MergeCosts:
    """What a tuple costs that its own task sums, and what merging the sums costs, in seconds."""

    fixed_s: float  # of a run, whatever it holds
    tuple_s: float  # of a tuple in its task
    merge_s: float  # of a task's sum; one after another, for the merged state is one

    def throughput(self, tuples: int, tasks: int, states: int) -> float:
        """Tuples a second: N / (fixed + N t / p + p s m), when every task ends with s sums."""
        work = tuples * self.tuple_s / tasks
        return tuples / (self.fixed_s + work + tasks * states * self.merge_s)

    def best_tasks(self, tuples: int, states: int) -> float:
        """Parallelism beyond which merging costs more than another task saves: √(N t / (s m)).

        >>> MergeCosts(fixed_s=0, tuple_s=4e-8, merge_s=1e-6).best_tasks(10**8, states=10_000)
        20.0
        """
        return float(np.sqrt(tuples * self.tuple_s / (states * self.merge_s)))


def load_imbalance(shares: np.ndarray, receivers: np.ndarray, tasks: int) -> float:
    """Largest load of a task over the mean load.

    Of each key its share of the tuples, or their number, and its task, both of shape (keys,).

    >>> load_imbalance(np.array([6, 1, 1]), receivers=np.array([0, 1, 1]), tasks=2)
    1.5
    """
    if len(receivers) and not 0 <= receivers.min() <= receivers.max() < tasks:
        raise ValueError(
            f"receivers must lie in 0 … {tasks - 1}, got {receivers.min()} … {receivers.max()}"
        )
    loads = np.bincount(receivers, weights=shares, minlength=tasks)
    if not loads.sum() > 0:
        raise ValueError("shares must hold something, got none: the log is empty")
    return float(loads.max() / loads.mean())


def expected_states(shares: np.ndarray, tuples: int) -> int:
    """Different keys to be expected among that many tuples."""
    return round(float(-np.expm1(tuples * np.log1p(-np.minimum(shares, 1 - 1e-12))).sum()))
