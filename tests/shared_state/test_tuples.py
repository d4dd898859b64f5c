"""The stream of tuples is the document's, and the same however it is cut."""

import numpy as np
import pytest

from aftlib.shared_state.tuplelog import ROWS_PER_RANGE, TupleStream


def drawn(stream):
    return np.concatenate([np.stack(stream.draw(i)) for i in range(stream.ranges)], axis=1)


def test_values_and_keys_are_uniform_when_asked():
    times, keys, values = drawn(TupleStream(200_000, keys=50))
    assert (times == np.arange(200_000) // 1000).all()
    assert set(values) == set(range(101))
    counts = np.bincount(keys - 100)
    assert len(counts) == 50
    assert np.abs(counts / 4000 - 1).max() < 0.1
    assert len({len(str(key)) for key in keys}) == 1


@pytest.mark.parametrize("skew", [1.0, 1.2, 2.0])
def test_zipf_frequencies_follow_their_law(skew):
    stream = TupleStream(200_000, keys=1000, skew=skew)
    _, keys, _ = drawn(stream)
    found = [np.mean(keys == stream.ids[rank]) for rank in (0, 1, 9)]
    weights = 1 / np.arange(1, 1001) ** skew
    assert found == pytest.approx((weights / weights.sum())[[0, 1, 9]], rel=0.05)


def test_ids_are_a_permutation_that_keeps_no_order():
    stream = TupleStream(1, keys=1000)
    assert sorted(stream.ids) == list(range(1000, 2000))
    assert abs(np.corrcoef(stream.ids, np.arange(1000))[0, 1]) < 0.1


def test_disorder_is_bounded_and_never_before_the_beginning():
    times, _, _ = drawn(TupleStream(100_000, rate=100, disorder=30))
    delays = np.arange(100_000) // 100 - times
    assert (times >= 0).all()
    assert delays.min() == 0
    assert delays.max() == 30


def test_text_has_one_line_a_tuple_of_a_partial_range():
    stream = TupleStream(ROWS_PER_RANGE + 3, keys=10, skew=1.4)
    assert (stream.ranges, stream.ticks) == (2, 66)
    lines = stream.text(1).decode().split()
    assert lines == [",".join(map(str, row)) for row in zip(*stream.draw(1), strict=True)]
    assert len(lines) == 3
    other = TupleStream(2 * ROWS_PER_RANGE, keys=10, skew=1.4)
    assert other.text(1).startswith(stream.text(1))
    assert other.text(1) != TupleStream(2 * ROWS_PER_RANGE, 10, 1.4, seed=2).text(1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("tuples", -1), ("keys", 0), ("skew", -0.1), ("seed", -1), ("rate", 0), ("disorder", -2)],
)
def test_impossible_parameters_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be at least .*, got {value}"):
        TupleStream(**{"tuples": 1, name: value})


def test_no_number_is_refused_as_skew():
    with pytest.raises(ValueError, match=r"skew must be at least 0 \(0 is uniform\), got nan"):
        TupleStream(1, skew=float("nan"))
