"""Sorting and operators against slow twins, result by result."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aftlib.upstream_backup.experiments.beyond import aggregate, join, sorting

MS = 1_000_000
TIMES = st.lists(st.integers(1, 10**6), min_size=4, max_size=40, unique=True).map(np.array)


def arrivals(delivered):
    return np.argsort(delivered, kind="stable").tolist()


@given(TIMES)
def test_sorting_equals_a_buffer_that_holds_back_what_follows_a_gap(delivered):
    order, released, waiting = arrivals(delivered), {}, []
    for k, i in enumerate(order):
        arrived = set(order[: k + 1])
        while len(released) in arrived:
            released[len(released)] = delivered[i]
        waiting.append(len(arrived) - len(released))
    held = [released[i] - delivered[i] for i in range(len(delivered))]
    late = sum(max(order[:k], default=0) > i for k, i in enumerate(order))
    assert sorting(delivered) == {
        "late": late, "waiting": max(waiting), "longest_ms": max(held) / MS,
    }  # fmt: skip


@given(TIMES, st.integers(1, 2))
def test_aggregate_equals_an_operator_that_closes_early(delivered, window):
    count = len(delivered) // window
    closed, wrong = set(), set()
    for i in (i for i in arrivals(delivered) if i < count * window):
        if i // window in closed:
            wrong.add(i // window)
        closed |= set(range(i // window))
    assert aggregate(delivered, window)["wrong"] == len(wrong - {count - 1})


@given(TIMES, st.integers(1, 3))
def test_join_equals_an_operator_with_a_memory(delivered, lag):
    order, missed = arrivals(delivered), 0
    for k, i in enumerate(order):
        for partner in (i - lag, i + lag):
            if 0 <= partner < len(delivered) and order.index(partner) < k:
                missed += partner not in order[max(0, k - lag) : k]
    assert join(delivered, lag)["wrong"] == missed


def test_order_costs_nothing():
    delivered = np.arange(1, 101) * MS
    assert sorting(delivered) == {"late": 0, "waiting": 0, "longest_ms": 0}
    assert aggregate(delivered, 10) == join(delivered, 3) == {"wrong": 0, "delay_ms": 0}


def test_delays_by_sorting_are_means_over_outputs():
    """The first of ten results comes last, so that all others wait for it."""
    delivered = np.array([10, *range(1, 10)]) * MS
    assert aggregate(delivered, 2) == {"wrong": 1, "delay_ms": (0 + 7 + 5 + 3) / 4}
    assert join(delivered, 1) == {"wrong": 1, "delay_ms": (0 + 8 + 7 + 6 + 5 + 4 + 3 + 2 + 1) / 9}
