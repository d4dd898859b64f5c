"""The variance histogram against exact windows; its refusals and its bytes."""

from __future__ import annotations

import numpy as np
import pytest

from aftlib.exponential_histogram import ExponentialHistogram, VarianceHistogram, sketch


def walk(seed: int, size: int) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).normal(size=size))


def test_variance_is_exact_until_a_bucket_reaches_out_of_the_window() -> None:
    histogram = VarianceHistogram(500, 0.5)
    histogram.update(walk(1, 500))
    assert histogram.estimate() == pytest.approx(walk(1, 500).var(), rel=1e-12)
    assert histogram.now == 500


def test_variance_of_equal_values_is_zero_in_one_bucket() -> None:
    histogram = VarianceHistogram(100, 0.1)
    histogram.update([7] * 1000)
    assert histogram.estimate() == 0
    assert histogram.buckets == [(1000, 1000, 7.0, 0.0)]


def test_older_buckets_are_coarser_and_few() -> None:
    histogram = VarianceHistogram(100_000, 0.2)
    histogram.update(np.random.default_rng(3).normal(size=300_000))
    assert len(histogram.buckets) < 6000
    assert histogram.buckets[-1][1] > 100 > histogram.buckets[0][1]


def test_a_large_offset_does_not_drown_the_variance() -> None:
    histogram = VarianceHistogram(1000, 0.1)
    values = 1e9 + np.random.default_rng(4).normal(size=5000)
    histogram.update(values)
    assert histogram.estimate() == pytest.approx(values[-1000:].var(), rel=0.1)


def test_single_values_of_any_kind_are_fine() -> None:
    histogram, together = VarianceHistogram(10, 0.3), VarianceHistogram(10, 0.3)
    for value in (1, 2.5, np.float32(0.5), True, np.int64(3)):
        histogram.update(value)
    together.update([1, 2.5, 0.5, 1, 3])
    assert histogram.to_bytes() == together.to_bytes()
    assert histogram.estimate() == pytest.approx(np.var([1, 2.5, 0.5, 1, 3]))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (float("nan"), "values must be finite and within .*, got nan at position 0"),
        ([1.0, float("inf")], "values must be finite and within .*, got inf at position 1"),
        (1e200, "values must be finite and within ±1e.140, got 1e.200"),
        ([[1.0]], r"values must be one value or a row, got shape \(1, 1\)"),
        (["a"], "values must be real numbers, got type <U1"),
        ([1, None], "values must be real numbers, got type object"),
    ],
)
def test_bad_values_are_refused_and_leave_the_state_alone(values: object, message: str) -> None:
    histogram = VarianceHistogram(10, 0.1)
    histogram.update([1.0, 2.0])
    before = histogram.to_bytes()
    with pytest.raises(ValueError, match=message):
        histogram.update(values)
    assert histogram.to_bytes() == before


def test_no_values_have_no_variance() -> None:
    histogram = VarianceHistogram(10, 0.1)
    histogram.update([])
    with pytest.raises(ValueError, match="a variance needs values, got none so far: update first"):
        histogram.estimate()


def test_damaged_and_foreign_bytes_are_refused() -> None:
    histogram = VarianceHistogram(50, 0.1)
    histogram.update(walk(5, 300))
    data = histogram.to_bytes()
    for broken, message in (
        (data[:60] + bytes([data[60] ^ 1]) + data[61:], "is damaged"),
        (ExponentialHistogram(5, 0.1).to_bytes(), "must be of kind 2, got 1"),
        (sketch.seal(2, b"short"), "holds no histogram in its 5 bytes"),
        (sketch.seal(2, bytes(VarianceHistogram._head.size + 8)), "holds no histogram in its"),
    ):
        with pytest.raises(ValueError, match=message):
            VarianceHistogram.from_bytes(broken)


@pytest.mark.parametrize(
    ("column", "value"),
    [(0, 0), (0, 99), (1, 0), (2, np.inf), (3, -1.0), (3, np.nan)],
)
def test_bytes_that_contradict_themselves_are_refused(column: int, value: float) -> None:
    columns = [np.array(x) for x in ([1, 2], [1, 1], [0.5, 0.7], [0.0, 0.0])]
    head = VarianceHistogram._head.pack(10, 0.1, 2, 64)
    good = sketch.seal(2, head + b"".join(x.tobytes() for x in columns))
    assert VarianceHistogram.from_bytes(good).estimate() == pytest.approx(0.01)
    columns[column][1] = value
    with pytest.raises(ValueError, match="its buckets contradict VarianceHistogram"):
        VarianceHistogram.from_bytes(sketch.seal(2, head + b"".join(x.tobytes() for x in columns)))
