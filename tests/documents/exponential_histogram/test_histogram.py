"""The exponential histogram on known streams, its refusals, and its bytes."""

import copy
import subprocess
import sys
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

from aftlib.documents.exponential_histogram import ExponentialHistogram
from aftlib.documents.exponential_histogram.buckets import FINEST
from aftlib.documents.exponential_histogram.experiments import EVENTS, FIGURE_3
from tests.documents.exponential_histogram.article_histogram import exact
from tests.refusals import refused


def bits(seed, size, share=0.5):
    return np.random.default_rng(seed).random(size) < share


@pytest.mark.parametrize("bulk", [False, True])
def test_figure_3_row_by_row(bulk):
    histogram = ExponentialHistogram(7, 0.5)
    times = list(range(1, 14))
    for t, (buckets, total, query, count) in enumerate(FIGURE_3, 1):
        event = EVENTS[t - 1]
        histogram.update(np.array([event]) if bulk else event)
        assert histogram.buckets == [*buckets]
        assert (histogram.total, histogram.article_estimate()) == (total, query)
        assert exact(times, EVENTS, t, 7) == count
        assert abs(histogram.estimate() - count) <= 0.5 * count


@pytest.mark.parametrize(("epsilon", "ones", "answer"), [(0.01, 52, 51), (0.1, 7, 6)])
def test_article_estimate_misses_its_bound_where_the_sound_one_does_not(epsilon, ones, answer):
    histogram = ExponentialHistogram(1000, epsilon)
    histogram.update(np.zeros(1000, bool))  # so that the stream is longer than the window
    histogram.update(np.ones(ones, bool))
    assert histogram.article_estimate() == answer
    assert abs(answer - ones) > epsilon * ones
    assert abs(histogram.estimate() - ones) <= epsilon * ones


@pytest.mark.parametrize(("share", "chunk"), [(0.002, 20_000), (0.5, 1000), (1.0, 20_000)])
def test_long_rows_do_what_single_events_do(share, chunk):
    events = np.random.default_rng(5).random(40_000) < share
    one, many = ExponentialHistogram(9_000, 0.02), ExponentialHistogram(9_000, 0.02)
    for row in np.split(events, range(chunk - 7, events.size, chunk)):
        for event in row.tolist():
            one.update(event)
        many.update(row)
        assert many.buckets == one.buckets


def test_estimate_is_exact_while_the_whole_stream_lies_inside():
    histogram = ExponentialHistogram(1000, 0.5)
    histogram.update(bits(2, 700))
    assert histogram.estimate() == bits(2, 700).sum() == histogram.estimate(700)
    timed = ExponentialHistogram(1000, 0.5, timed=True)
    timed.update(bits(2, 700), np.arange(5000, 5700))
    assert timed.estimate() == bits(2, 700).sum() == timed.estimate(700)
    assert timed.estimate(300) != timed.estimate(700)


def test_empty_histograms_answer_zero():
    for timed in (False, True):
        histogram = ExponentialHistogram(10, 0.1, timed)
        histogram.update([], [] if timed else None)
        assert histogram.estimate() == histogram.estimate(3) == histogram.article_estimate() == 0
        assert (histogram.total, histogram.buckets) == (0, [])
        assert histogram.now == (None if timed else 0)
        assert histogram.estimates([], [] if timed else None).shape == (0,)


def test_large_sums_answer_alike_beyond_what_a_float_can_hold():
    values = [2**60, 3, 2**59, 2**55 - 1, 0, 1, 2**57 + 1]
    together = ExponentialHistogram(2, 0.3, values="integers")
    one_by_one = ExponentialHistogram(2, 0.3, values="integers")
    answers = together.estimates(values)
    for t, value in enumerate(values):
        one_by_one.update(value)
        assert answers[t] == one_by_one.estimate()
        assert abs(answers[t] - sum(values[max(0, t - 1) : t + 1])) <= 0.3 * answers[t]
    assert sum(count for _, count in together.buckets) == together.total
    assert together.to_bytes() == one_by_one.to_bytes()


def test_any_kind_of_bit_is_fine():
    events = [True, False, 1, 0, np.True_, np.int8(1), np.uint8(0)]
    one_by_one, together = ExponentialHistogram(5, 0.3), ExponentialHistogram(5, 0.3)
    for event in events:
        one_by_one.update(event)
    together.update(events)
    assert one_by_one.to_bytes() == together.to_bytes()
    for kind in (bool, np.int8, np.uint8, np.int16, np.int64, np.uint64):
        again = ExponentialHistogram(5, 0.3)
        again.update(np.array(events).astype(kind))
        assert again.to_bytes() == together.to_bytes()


@pytest.mark.parametrize("offset", [0, 1, 7])
@pytest.mark.parametrize("size", [0, 1, 9, 511, 512, 513, 3000])
def test_read_only_unaligned_and_strided_buffers_are_fine(offset, size):
    events = bits(4, size)
    expected, histogram = ExponentialHistogram(600, 0.05), ExponentialHistogram(600, 0.05)
    expected.update(events.tolist())
    buffer = bytes(offset) + events.tobytes()
    histogram.update(np.frombuffer(buffer, bool, offset=offset))
    assert histogram.to_bytes() == expected.to_bytes()
    strided = ExponentialHistogram(600, 0.05)
    strided.update(np.repeat(events, 3)[::3])
    assert strided.to_bytes() == expected.to_bytes()


def test_importing_and_single_events_leave_numba_alone():
    used = "h = aftlib.ExponentialHistogram(10, .1); h.update(1); h.update(True); h.estimate()"
    code = f"import sys, aftlib; {used}; h.to_bytes(); sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


test_parameters_out_of_range_are_refused = refused(
    lambda name, value: ExponentialHistogram(**({"window": 10, "epsilon": 0.1} | {name: value})),
    *(
        ("epsilon", value, f"epsilon must be above 0 and below 1, got {value}")
        for value in (0, 1, -0.1, float("nan"))
    ),
    *(
        (
            "window",
            value,
            r"window must be a whole number below .* and at least 1, got .*; count events",
        )
        for value in (0, -5, 2.5, 2**61, float("nan"), "60s")
    ),
    *(
        ("window", value, "window must be of type int, got .*; count events")
        for value in (pd.Timedelta("60s"), timedelta(60))
    ),
    ("values", "floats", "values must be one of bits, integers, got 'floats'"),
)


@pytest.mark.parametrize(
    ("kwargs", "events", "timestamps", "message"),
    [
        ({}, 2, None, 'events must be bits, got 2 at position 0: .*values="integers"'),
        ({}, [0, 1, 2], None, "events must be bits, got 2 at position 2"),
        ({}, np.array([0, -1], np.int8), None, "events must be bits, got -1 at position 1"),
        ({}, np.array([0, 1, 7], np.uint8), None, "events must be bits, got 7 at position 2"),
        ({}, -1, None, "events must be bits, got -1"),
        ({}, [0.0, 1.0], None, "events must be bits .*, got type float64: convert"),
        ({}, [1, None], None, "events must be bits .*, got type object"),
        ({}, [[0, 1]], None, r"events must be one value or a row, got shape \(1, 2\)"),
        ({}, [1, 1], [1, 2], "timestamps must be left out with timed=False"),
        ({"timed": True}, [1], None, "timestamps must be given, one per event, with timed=True"),
        ({"timed": True}, [1, 1], [1], "timestamps must be one per event, got 1 .* for 2 events"),
        ({"timed": True}, [1, 1], [8, 7], "timestamps must not go back, got 7 after 8: sort"),
        ({"timed": True}, 1, 3, "timestamps must not go back, got 3 after 4"),
        ({"timed": True}, 1, 5.5, "timestamps must be integers.*, got type float64"),
        ({"timed": True}, 1, 2**61, r"timestamps must lie within ±2\*\*61"),
        ({"timed": True}, [1, 1], [4, 2**61], r"timestamps must lie within ±2\*\*61"),
        ({"timed": True}, [1], np.array([2**64 - 1], np.uint64), "timestamps must lie within"),
        ({"values": "integers"}, [3, -2], None, "must not be negative, got -2 at position 1"),
        ({"values": "integers"}, 0.5, None, "must be non-negative integers, got type float64"),
        ({"values": "integers"}, 2**61, None, "events sum to 2305843009213693952, .* overflows"),
        ({"values": "integers"}, [2**60] * 2, None, "events sum to .* overflows the limit"),
        ({"values": "integers"}, [2**63], None, "events sum to 9223372036854775808"),
    ],
)
@pytest.mark.parametrize("answers", [False, True])
def test_bad_input_is_refused_and_leaves_the_state_alone(
    kwargs, events, timestamps, message, answers
):
    histogram = ExponentialHistogram(10, 0.1, **kwargs)
    histogram.update([1, 0, 1], [1, 2, 4] if kwargs.get("timed") else None)
    before = histogram.to_bytes()
    with pytest.raises(ValueError, match=message):
        (histogram.estimates if answers else histogram.update)(events, timestamps)
    assert histogram.to_bytes() == before


def test_a_sum_that_overflows_step_by_step_is_refused():
    histogram = ExponentialHistogram(10, 0.1, values="integers")
    histogram.update(2**60)
    with pytest.raises(ValueError, match=r"with the window's 1.15292e\+18 overflows the limit"):
        histogram.update(2**60)
    histogram.update(2**60 - 1)
    assert histogram.total == 2**61 - 1
    for one in (1, [1]):
        with pytest.raises(ValueError, match="overflows the limit"):
            histogram.update(one)
    assert ExponentialHistogram.from_bytes(histogram.to_bytes()).buckets == histogram.buckets


test_a_part_that_is_no_part_is_refused = refused(
    lambda last: ExponentialHistogram(10, 0.1).estimate(last),
    *(
        (last, f"last must be a whole number at least 1 and at most 10, got {last}; only a wider")
        for last in (0, -1, 11, 2.5)
    ),
)


@pytest.mark.parametrize("size", [0, 30, -1, -8])
def test_a_part_of_the_bytes_is_refused(size):
    histogram = ExponentialHistogram(10, 0.5)
    histogram.update([1] * 7)
    with pytest.raises(ValueError, match="data must be the bytes of to_bytes, got "):
        ExponentialHistogram.from_bytes(histogram.to_bytes()[:size])


COUNTED = ExponentialHistogram(10, 0.1)
TIMED = ExponentialHistogram(10, 0.1, timed=True)
SUMMED = ExponentialHistogram(10, 0.1, timed=True, values="integers")
test_merging_what_does_not_fit_is_refused = refused(
    lambda one, others: one.merge(*others),
    (COUNTED, [COUNTED], "must have timed=True"),
    (TIMED, [COUNTED], "must have timed=True to merge, got False"),
    (TIMED, [ExponentialHistogram(9, 0.1, timed=True)], "must have window=10 to merge, got 9"),
    (TIMED, [SUMMED], "must have values='bits'"),
    (TIMED, [[TIMED]], r"got list.*: pass each .*merge\(\*histograms\)"),
    (TIMED, [TIMED.to_bytes()], "got bytes: .*from_bytes"),
    (TIMED, [TIMED, 7], "other must be an ExponentialHistogram, got int"),
    (TIMED, [None], "got NoneType"),
)


def test_a_merge_that_overflows_is_refused():
    histogram = ExponentialHistogram(10, 0.9, True, "integers")
    histogram.update([2**57, 2**57], [1, 2])
    before = histogram.to_bytes()
    twin = ExponentialHistogram.from_bytes(before)
    twin.merge(ExponentialHistogram.from_bytes(before))
    assert abs(twin.estimate() - 2**59) <= twin.error_bound * 2**59
    before = twin.to_bytes()
    with pytest.raises(
        ValueError, match=r"other must keep the total below .* units of 1/4, got [0-9]+: use"
    ):
        twin.merge(twin, twin, twin)
    assert twin.to_bytes() == before


def test_merging_different_epsilons_adds_their_errors_unless_only_one_has_buckets():
    coarse, fine = (ExponentialHistogram(50, e, timed=True) for e in (0.5, 0.1))
    for histogram in (coarse, fine):
        histogram.update(bits(12, 200), np.arange(200))
    # 1/0.6 and 1/0.5 need the same buckets, so the other's are adopted unchanged
    for epsilon, other, bound in ((0.1, fine, 0.1), (0.6, coarse, 0.6)):
        sole = ExponentialHistogram(50, epsilon, timed=True).merge(other)
        assert sole.error_bound == bound
        assert ExponentialHistogram.from_bytes(sole.to_bytes()).buckets == other.buckets
    assert fine.merge(coarse).error_bound == pytest.approx(0.5 + 0.1 + 0.05)


def test_the_bound_of_many_merges_holds_what_rounding_adds():
    """Units become no finer than 1/`FINEST` of an event; then halves are rounded to whole ones."""
    epsilon = 0.05
    merged, other = (ExponentialHistogram(500, epsilon, timed=True) for _ in "12")
    for histogram, seed in ((merged, 12), (other, 13)):
        histogram.update(bits(seed, 400), np.arange(400))
    while merged._buckets.scale < FINEST:
        merged.merge(other)
    error = merged.error_bound + 0.5 / FINEST
    merged.merge(other)
    assert merged.error_bound == pytest.approx(error + epsilon + error * epsilon, rel=1e-12)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("values", ["bits", "integers"])
def test_a_copy_goes_its_own_way(copied, values):
    histogram = ExponentialHistogram(20, 0.2, timed=True, values=values)
    histogram.update([1] * 9, timestamps=range(9))
    twin = copied(histogram)
    before = histogram.to_bytes()
    twin.update(1, timestamps=30)
    twin.update([1, 1], timestamps=[31, 32])
    twin.merge(ExponentialHistogram(20, 0.5, timed=True, values=values))
    assert histogram.to_bytes() == before != twin.to_bytes()
    histogram.update(1, timestamps=30)
    histogram.update([1, 1], timestamps=[31, 32])
    assert histogram.estimate() == twin.estimate()
