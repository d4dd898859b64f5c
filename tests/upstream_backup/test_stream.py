"""Writes and turns, which the event simulation takes from the library, and a window by hand."""

import numpy as np

from aftlib.upstream_backup.parameters import Parameters
from aftlib.upstream_backup.routes import primary_turn, slow_start, written_ns


def test_tuples_are_written_when_due():
    written = written_ns(Parameters(rate=2500, write_ms=1), 4_000_000)
    np.testing.assert_array_equal(written / 1e6, [0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4])


def test_turns_follow_the_share():
    times = np.arange(0, 400) * 1_000_000
    assert primary_turn(Parameters(share=0.25), times).mean() == 0.25
    assert primary_turn(Parameters(), 99_999_999)
    assert not primary_turn(Parameters(), 100_000_000)


def test_a_window_of_one_doubles_each_round():
    """Segments of one time unit, acknowledged 99 later: 1, 2, 4, … a round."""
    departure = slow_start(np.zeros(7, dtype=int), np.ones(7, dtype=int), 1, 99)
    assert departure.tolist() == [1, 101, 102, 201, 202, 203, 204]
