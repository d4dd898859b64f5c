"""Sorting and operators against what they say, result by result."""

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftlib.upstream_backup.experiments.beyond import aggregate, join, sorting
from aftlib.upstream_backup.routes import NEVER

MS = 1_000_000
TIMES = st.lists(st.integers(1, 10**6), min_size=4, max_size=40, unique=True).map(np.array)


def arrivals(delivered):
    return np.argsort(delivered, kind="stable").tolist()


class Reorder:
    """Hands on numbered items in order: holds items back that have a gap before them."""

    def __init__(self) -> None:
        self.expected = 0
        self.waiting: list[int] = []

    def add(self, number: int) -> list[int]:
        heapq.heappush(self.waiting, number)
        ready = []
        while self.waiting and self.waiting[0] <= self.expected:
            ready.append(heapq.heappop(self.waiting))
            self.expected = ready[-1] + 1
        return ready


@given(TIMES)
def test_sorting_equals_a_reorder_buffer(delivered):
    reorder, released, waiting = Reorder(), {}, []
    for i in arrivals(delivered):
        for j in reorder.add(i):
            released[j] = delivered[i]
        waiting.append(len(reorder.waiting))
    held = np.array([released[i] - delivered[i] for i in range(len(delivered))])
    late = sum(
        any(j > i for j in arrivals(delivered)[:k]) for k, i in enumerate(arrivals(delivered))
    )
    found = sorting(delivered)
    assert (found.late, found.waiting) == (late, max(waiting))
    assert found.longest_ms == held.max() / MS


@given(TIMES, st.integers(1, 2))
def test_aggregate_equals_an_operator_that_closes_early(delivered, window):
    count = len(delivered) // window
    closed, wrong = set(), set()
    for i in (i for i in arrivals(delivered) if i < count * window):
        if i // window in closed:
            wrong.add(i // window)
        closed |= set(range(i // window))
    assert aggregate(delivered, window).wrong == len(wrong - {count - 1})


@given(TIMES, st.integers(1, 3), st.integers(1, 5))
def test_join_equals_an_operator_with_a_memory(delivered, lag, memory):
    order, missed = arrivals(delivered), 0
    for k, i in enumerate(order):
        for partner in (i - lag, i + lag):
            if 0 <= partner < len(delivered) and order.index(partner) < k:
                missed += partner not in order[max(0, k - memory) : k]
    assert join(delivered, lag, memory).wrong == missed


def test_order_costs_nothing():
    delivered = np.arange(1, 101) * MS
    assert vars(sorting(delivered)) == {"late": 0, "waiting": 0, "longest_ms": 0}
    assert (aggregate(delivered, 10).wrong, aggregate(delivered, 10).outputs) == (0, 9)
    assert (join(delivered, 3, 3).wrong, join(delivered, 3, 3).outputs) == (0, 97)


def test_what_is_refused():
    delivered = np.arange(1, 11)
    with pytest.raises(ValueError, match="got 1 of 10 results that never arrived"):
        sorting(np.where(delivered == 4, NEVER, delivered))
    with pytest.raises(ValueError, match=r"window must be 1 … 5 tuples, .* got 6"):
        aggregate(delivered, 6)
    with pytest.raises(ValueError, match="window must be 1 … 5 tuples, .* got 0"):
        aggregate(delivered, 0)
    with pytest.raises(ValueError, match="lag must be 1 … 9 and memory at least 1, got 10, 1"):
        join(delivered, 10, 1)
    with pytest.raises(ValueError, match="got 1, 0"):
        join(delivered, 1, 0)
