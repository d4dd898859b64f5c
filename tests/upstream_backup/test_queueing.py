"""Lindley's recursion against the loop that it unrolls."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aftlib.upstream_backup.queueing import lindley, slow_start

JOBS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=60)


def loop(arrival, service, window=None, echo=0):
    """One job after the other; with a window, j waits for the acknowledgements that admit it."""
    done, free = [], 0
    for j, (at, takes) in enumerate(zip(arrival, service, strict=True)):
        acknowledged = sorted(d + echo for d in done)
        if window is not None:
            while j >= window + 2 * sum(a <= at for a in acknowledged):
                at = min(a for a in acknowledged if a > at)
        free = max(at, free) + takes
        done.append(free)
    return done


@given(JOBS)
def test_lindley_equals_the_loop(jobs):
    arrival, service = np.cumsum([a for a, _ in jobs]), np.array([s for _, s in jobs])
    np.testing.assert_array_equal(lindley(arrival, service), loop(arrival, service))
    np.testing.assert_array_equal(lindley(arrival, 7), loop(arrival, [7] * len(jobs)))


@given(JOBS, st.sampled_from([1, 2, 3, 10, None]), st.integers(0, 200))
def test_slow_start_equals_the_loop(jobs, window, echo):
    arrival, service = np.cumsum([a for a, _ in jobs]), np.array([s for _, s in jobs])
    found = slow_start(arrival, service, window, echo)
    np.testing.assert_array_equal(found, loop(arrival, service, window, echo))


def test_a_window_of_one_doubles_each_round():
    """Segments of one time unit, acknowledged 99 later: 1, 2, 4, … a round."""
    found = slow_start(np.zeros(7, dtype=int), np.ones(7, dtype=int), 1, 99)
    assert found.tolist() == [1, 101, 102, 201, 202, 203, 204]
