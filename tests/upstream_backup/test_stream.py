"""Parts that the event simulation takes from the library, and a window, by hand."""

import numpy as np

from aftlib.upstream_backup.parameters import MS, Parameters, Phases
from aftlib.upstream_backup.routes import (
    Feed,
    Route,
    acknowledged,
    checkpoint_ns,
    checkpointed,
    primary_turn,
    slow_start,
    written_ns,
)


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


def test_a_checkpoint_has_a_header_per_segment():
    """1,168 bytes need three segments of at most 536 bytes, each with a header of 54 bytes."""
    assert checkpoint_ns(Parameters(), 20) == 8 * (8 + 20 * 58 + 3 * 54) * 1000 / 16


def test_nothing_is_confirmed_before_the_first_interval_has_passed():
    """A result of 1 ms; ACKs and checkpoints are due at 36, 61, … ms, and travel two hops."""
    system, one = Parameters(phases=Phases(ack=0.44, checkpoint=0.44)), np.array([MS])
    route = Route(Feed("primary", np.array([0]), one), one, one, one, one)
    for confirmed in (acknowledged, checkpointed):
        counts = [confirmed(system, route, ms * MS) for ms in (22, 35, 37, 45, 50)]
        assert counts == [0, 0, 0, 0, 1]
