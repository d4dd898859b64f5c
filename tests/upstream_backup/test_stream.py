"""Writes, turns and segments; Lindley's recursion against the loop that it unrolls."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aftlib.upstream_backup.parameters import Parameters
from aftlib.upstream_backup.routes import Segments, lindley, primary_turn, slow_start, written_ns

JOBS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=60)


def test_tuples_are_written_when_due():
    written = written_ns(Parameters(rate=2500, write_ms=1), 4_000_000)
    np.testing.assert_array_equal(written / 1e6, [0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4][: len(written)])


def test_turns_follow_the_share():
    times = np.arange(0, 400) * 1_000_000
    assert primary_turn(Parameters(share=0.25), times).mean() == 0.25
    assert primary_turn(Parameters(), 99_999_999)
    assert not primary_turn(Parameters(), 100_000_000)


def test_segments_hold_whole_tuples_of_one_write():
    cut = Segments.cut(np.array([1, 1, 1, 1, 1, 2, 5, 5]), 2)
    np.testing.assert_array_equal(cut.first, [0, 2, 4, 5, 6])
    np.testing.assert_array_equal(cut.sizes, [2, 2, 1, 1, 2])
    np.testing.assert_array_equal(cut.of, [0, 0, 1, 1, 2, 3, 4, 4])
    np.testing.assert_array_equal(cut.last, [1, 3, 4, 5, 7])


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
