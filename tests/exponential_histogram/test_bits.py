"""The stream of bits is the same however it is cut, as dense and as bursty as asked."""

import numpy as np
import pytest

from aftlib.exponential_histogram.bits import EVENTS_PER_RANGE, BitStream


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
def test_share_and_runs_are_as_asked(share, burst):
    bits = BitStream(share, burst).draw(20 * EVENTS_PER_RANGE)
    starts = np.flatnonzero(np.diff(bits.astype(int), prepend=0) == 1).size
    mean = bits.sum() / starts
    expected = 1 / (1 - share) if burst is None else burst
    spread = 4 / np.sqrt(starts)  # four standard errors of a geometric mean
    assert mean == pytest.approx(expected, rel=spread)
    assert bits.mean() == pytest.approx(share, rel=2 * spread)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"share": 0}, "share must be above 0 and below 1, got 0"),
        ({"share": 1.0}, "share must be above 0 and below 1, got 1.0"),
        ({"burst": 0.5}, "burst must be at least 1 event, got 0.5"),
        ({"burst": float("nan")}, "burst must be at least 1 event, got nan"),
        ({"burst": 1.5, "share": 0.9}, "burst must be at least 9"),
        ({"seed": -1}, "seed must be a whole number at least 0, got -1"),
    ],
)
def test_parameters_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BitStream(**({"share": 0.5} | arguments))


def test_a_range_holds_no_more_than_its_events():
    """Runs of zeros last six million events here, longer than many ranges."""
    part = BitStream(0.0005, 3000.0, 1).range(0)
    assert part.size == EVENTS_PER_RANGE
    assert part.base is None
