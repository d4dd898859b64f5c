"""The stream of bits is the same however it is cut; the exact ring against sums of slices."""

import numpy as np
import pytest

from aftlib.exponential_histogram.bits import (
    EVENTS_PER_RANGE,
    BitRing,
    BitStream,
    exact_counts,
    relative,
)
from tests.refusals import refused


@pytest.mark.parametrize("burst", [None, 40])
def test_any_cut_gives_the_same_bits(burst):
    stream = BitStream(0.3, burst, seed=4)
    whole = stream.draw(2 * EVENTS_PER_RANGE + 100)
    edges = [0, 7, EVENTS_PER_RANGE - 1, EVENTS_PER_RANGE, 2 * EVENTS_PER_RANGE + 3, whole.size]
    parts = [stream.draw(b - a, a) for a, b in zip(edges, edges[1:], strict=False)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert stream.draw(0, 5).shape == (0,)
    assert (BitStream(0.3, burst, seed=5).draw(1000) != whole[:1000]).any()


@pytest.mark.parametrize(("share", "burst"), [(0.5, None), (0.01, None), (0.3, 20), (0.9, 200)])
def test_share_and_runs_match_the_parameters(share, burst):
    bits = BitStream(share, burst).draw(20 * EVENTS_PER_RANGE)
    starts = np.flatnonzero(np.diff(bits.astype(int), prepend=0) == 1).size
    mean = bits.sum() / starts
    expected = 1 / (1 - share) if burst is None else burst
    spread = 4 / np.sqrt(starts)  # four standard errors of a geometric mean
    assert mean == pytest.approx(expected, rel=spread)
    assert bits.mean() == pytest.approx(share, rel=2 * spread)


test_parameters_out_of_range_are_refused = refused(
    lambda given: BitStream(**({"share": 0.5} | given)),
    ({"share": 0}, "share must be above 0 and below 1, got 0"),
    ({"share": 1.0}, "share must be above 0 and below 1, got 1.0"),
    ({"burst": 0.5}, "burst must be at least 1 event, got 0.5"),
    ({"burst": float("nan")}, "burst must be at least 1 event, got nan"),
    ({"burst": 1.5, "share": 0.9}, "burst must be at least 9"),
    ({"seed": -1}, "seed must be a whole number at least 0, got -1"),
)


def test_a_range_holds_no_more_than_its_events():
    """Runs of zeros last six million events here, longer than many ranges."""
    part = BitStream(0.0005, 3000.0, 1).range(0)
    assert part.size == EVENTS_PER_RANGE
    assert part.base is None


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
