"""Sums by slice and key are exact, in any order and cut; windows are put together from slices."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import AGGREGATES
from aftlib.shared_state.sums import SliceSums, merge_sums, window_sums
from tests.shared_state.tuples import partials

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3), st.integers(-9, 9)), max_size=40)


def block(rows):
    return np.array(rows, np.int64).reshape(-1, 3).T


def slow(rows):
    sums = defaultdict(lambda: [0, 0])
    for part, key, value in rows:
        sums[part, key][0] += value
        sums[part, key][1] += 1
    return [(*at, *sums[at]) for at in sorted(sums)]


def listed(sums):
    columns = sums.windows, sums.keys, *sums.values.T
    return list(zip(*(column.tolist() for column in columns), strict=True))


def of(rows, pane=1):
    sums = SliceSums(pane)
    sums.add(block(rows))
    return sums.take()


def test_sums_are_the_slow_twins():
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(0, 3, 30_000), rng.integers(-(2**60), 2**60, 30_000) >> 45,
                     rng.integers(-99, 99, 30_000)])  # fmt: skip
    sums = SliceSums(10)
    for first in range(0, 30_000, 7_001):
        sums.add(rows[:, first : first + 7_001])
    expected = [(10 * part, *rest) for part, *rest in slow(rows.T.tolist())]
    assert listed(sums.take()) == expected
    assert len(expected) > 2**12
    assert listed(sums.take()) == []


@pytest.mark.parametrize("name", AGGREGATES)
@given(
    runs=st.lists(
        st.tuples(
            st.integers(0, 2),  # slice
            st.sampled_from([0, -70, 1000, 2**63 - 99, -(2**63)]),  # first key
            st.integers(1, 99),  # keys
            st.integers(1, 5),  # blocks
            st.integers(0, 20),  # share of strangers among the tuples, in hundredths
        ),
        max_size=6,
    )
)
def test_a_slice_that_goes_on_sums_as_one_that_does_not(name, runs):
    rng, rows, sums = np.random.default_rng(len(runs)), [], SliceSums(10, AGGREGATES[name])
    for part, low, keys, blocks, strangers in runs:
        for _ in range(blocks):
            more = np.stack([np.full(500, part), low + rng.integers(0, keys, 500),
                             rng.integers(-99, 99, 500)])  # fmt: skip
            strange = np.flatnonzero(rng.random(500) < strangers / 100)
            more[:2, strange] = [[7], [5]]
            more[:2, -1] = part, low  # the block ends as it began
            more[:2, 0] = part, low
            sums.add(more)
            rows.append(more)
        if strangers == 1:  # a task hands its sums over, and goes on
            parts, keys, values = np.concatenate(rows, axis=1)
            expected = partials(AGGREGATES[name], 10 * parts, keys, values)
            assert listed(sums.take()) == listed(expected)
            rows.clear()
    parts, keys, values = np.concatenate([block([]), *rows], axis=1)
    expected = partials(AGGREGATES[name], 10 * parts, keys, values)
    assert listed(sums.take()) == listed(expected)
    assert listed(sums.take()) == []


@given(one=ROWS, two=ROWS, three=ROWS)
def test_merging_is_associative_and_commutative_with_identity(one, two, three):
    a, b, c = of(one), of(two), of(three)
    whole = slow([*one, *two, *three])
    assert listed(merge_sums([a, b, c])) == listed(merge_sums([c, merge_sums([b, a])])) == whole
    assert listed(merge_sums([a, merge_sums([])])) == listed(a) == slow(one)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("before", [0, 3_000])  # tuples: in the table, or in cells
def test_a_sum_that_leaves_64_bits_is_an_error_that_names_it(before, sign):
    sums, huge = SliceSums(10), [(2, 7, sign * (10**18 - 1))] * 9
    for _ in range(3):
        sums.add(block([(2, 7, 0)] * before))
    sums.add(block(huge))
    with pytest.raises(OverflowError, match="sum of key 7 in the slice from 20 leaves the 64 bits"):
        sums.add(block(huge))
    with pytest.raises(OverflowError, match="leaves the 64 bits"):
        merge_sums([of(huge), of(huge)])


@given(
    rows=ROWS,
    windows=st.sampled_from([Windows(1, 1), Windows(4, 1), Windows(3, 2), Windows(6, 4)]),
)
def test_windows_are_the_slow_twins(rows, windows):
    expected = defaultdict(lambda: [0, 0])
    for time, key, value in rows:
        for window in range(20):
            start = window * windows.slide
            if start <= time < start + windows.width:
                expected[start, key][0] += value
                expected[start, key][1] += 1
    sliced = [(time // windows.pane, key, value) for time, key, value in rows]
    sums = window_sums(of(sliced, windows.pane), windows)
    assert listed(sums) == [(*at, *expected[at]) for at in sorted(expected)]
