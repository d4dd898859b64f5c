"""Property tests of windows: against brute force, and the bits do not depend on the cut."""

from math import gcd

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftlib.core.windows import AGGREGATES, Windows
from tests.core.test_windows import TWINS

SHAPES = st.integers(1, 12).flatmap(lambda w: st.tuples(st.just(w), st.integers(1, w)))
SPANS = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted)


@given(SHAPES, SPANS)
def test_ending_in_is_brute_force(shape, span):
    width, slide = shape
    after, until = span
    expected = [j for j in range(100) if after < j * slide + width <= until]
    assert list(Windows(width, slide).ending_in(after, until)) == expected


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(SHAPES, st.integers(0, 2**32), st.sampled_from(list(AGGREGATES)))
def test_aggregate_is_each_windows_own(shape, seed, query):
    windows, rng = Windows(*shape, query), np.random.default_rng(seed)
    values = np.where(rng.random((50, 3)) < 0.1, np.nan, rng.normal(-0.5, size=(50, 3)))
    values[rng.integers(50), 0] = np.inf
    due = windows.ending_in(0, 50)
    aggregates, samples = windows.aggregate(values, 0, due)
    for j, row, count in zip(due, aggregates, samples, strict=True):
        part = values[j * windows.slide : j * windows.slide + windows.width]
        part = np.where(np.isinf(part), np.nan, part)
        present = np.isfinite(part).sum(axis=0)
        np.testing.assert_array_equal(count, present)
        wanted = np.where(present, TWINS[query](part, axis=0), np.nan)
        np.testing.assert_allclose(row, wanted, rtol=1e-12, atol=1e-12)


@given(SHAPES, st.integers(0, 2**32), st.integers(0, 50), st.data())
def test_bits_do_not_depend_on_the_cut(shape, seed, cut, data):
    windows = Windows(*shape)
    values = np.random.default_rng(seed).normal(size=(50, 4))
    whole, _ = windows.aggregate(values, 0, windows.ending_in(0, 50))
    pieces = []
    for after, until in ((0, cut), (cut, 50)):
        due = windows.ending_in(after, until)
        first = due[0] * windows.slide if due else 0
        first -= first % gcd(*shape)
        pieces.append(windows.aggregate(values[first:until], first, due)[0])
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    key = data.draw(st.integers(0, 3))
    alone, _ = windows.aggregate(values[:, [key]], 0, windows.ending_in(0, 50))
    np.testing.assert_array_equal(alone[:, 0], whole[:, key])
