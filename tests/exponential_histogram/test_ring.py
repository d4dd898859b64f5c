"""The exact ring of bits against sums of slices."""

from __future__ import annotations

import numpy as np
import pytest

from aftlib.exponential_histogram.bits import BitRing, exact_counts, relative


@pytest.mark.parametrize("window", [1, 7, 8, 9, 100])
def test_ring_and_running_sums_are_the_exact_count(window):
    rng = np.random.default_rng(window)
    events = rng.random(700) < 0.4
    expected = [int(events[max(0, t - window) : t].sum()) for t in range(1, 701)]
    assert exact_counts(events, window).tolist() == expected
    single, bulk = BitRing(window), BitRing(window)
    for t, event in enumerate(events.tolist()):
        single.update(event)
        assert single.count == expected[t]
    edges = [0, *np.sort(rng.integers(0, 700, 12)), 700]
    for first, after in zip(edges, edges[1:], strict=False):
        bulk.update(events[first:after])
        assert bulk.count == (expected[after - 1] if after else 0)


def test_ring_of_no_event_is_refused():
    with pytest.raises(ValueError, match="window must be a whole number at least 1, got 0"):
        BitRing(0)


def test_relative_error_of_nothing():
    assert relative(np.array([0.0, 1.0, 3.0]), np.array([0, 0, 4])).tolist() == [0, np.inf, 0.25]
