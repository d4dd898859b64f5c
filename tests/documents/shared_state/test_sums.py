"""Sums by slice and key are exact, in any order and cut; windows are composed of slices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftlib.core.windows import Windows
from aftlib.documents.shared_state.sums import (
    AGGREGATES,
    Partials,
    SliceSums,
    merge_sums,
    window_sums,
)
from tests.documents.shared_state.slow import listed, partials, slow_rows, slow_windows

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3), st.integers(-9, 9)), max_size=40)


def block(rows):
    return np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 3).T)


def of(rows, pane=1, aggregate="sum"):
    sums = SliceSums(pane, AGGREGATES[aggregate])
    sums.add(block(rows))
    return sums.take()


def test_many_sums_are_the_slow_twins():
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(0, 3, 30_000), rng.integers(-(2**60), 2**60, 30_000) >> 45,
                     rng.integers(-99, 99, 30_000)])  # fmt: skip
    sums = SliceSums(10)
    for first in range(0, 30_000, 7_001):
        sums.add(rows[:, first : first + 7_001])
    expected = [(10 * part, *rest) for part, *rest in slow_rows(rows.T.tolist())]
    assert listed(sums.take()) == expected and len(expected) > 2**12
    assert listed(sums.take()) == []


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("low", [0, -70, 2**63 - 99, -(2**63)])
def test_a_long_slice_with_close_keys_sums_as_any_other(name, low):
    """It has cells instead of a hash table; strangers and another slice come between."""
    rng, rows, sums = np.random.default_rng(2), [], SliceSums(10, AGGREGATES[name])
    for part in (0, 0, 0, 1, 0):
        more = np.stack([np.full(1500, part), low + rng.integers(0, 90, 1500),
                         rng.integers(-99, 99, 1500)])  # fmt: skip
        more[:2, 500::97] = [[7], [5]]
        sums.add(more)
        rows += more.T.tolist()
    assert listed(sums.take()) == [(10 * p, *rest) for p, *rest in slow_rows(rows, name)]


@pytest.mark.parametrize("name", AGGREGATES)
@given(one=ROWS, two=ROWS, three=ROWS)
def test_merging_is_associative_and_commutative_with_identity(name, one, two, three):
    def merge(*each):
        return merge_sums(each, AGGREGATES[name])

    a, b, c = (of(rows, 1, name) for rows in (one, two, three))
    whole = slow_rows([*one, *two, *three], name)
    assert listed(merge(a, b, c)) == listed(merge(c, merge(b, a))) == whole
    assert listed(merge(a, merge())) == listed(a) == slow_rows(one, name)


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("far", [0, 2**40])
def test_long_partials_with_close_keys_merge_as_any_others(name, far):
    """They have cells instead of a hash table, unless a key is far away."""
    rng = np.random.default_rng(4)
    columns = [np.zeros(6_000, np.int64), rng.integers(-900, 900, 6_000) + 7]
    rows = np.stack([*columns, rng.integers(-99, 99, 6_000)]).T
    rows[::997, 1] += far
    tasks = [of(rows[first::3].tolist(), 10, name) for first in range(3)]
    sums = SliceSums(10, AGGREGATES[name])
    for task in tasks:
        sums.merge(task)
    assert len(tasks[0]) > 1_000
    assert listed(sums.take()) == slow_rows(rows.tolist(), name)


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4, max_size=4), max_size=9))
def test_packed_partials_are_the_same_ones(rows):
    assert listed(Partials.unpack(partials(rows).pack())) == list(map(tuple, rows))


def test_packed_sums_take_a_quarter_of_the_bytes():
    keys = np.arange(100_000)
    packed = Partials(0 * keys, keys, keys % 9_999, keys % 99).pack()
    assert sum(distance.nbytes for _, distance in packed) <= 8 * len(keys)


@pytest.mark.parametrize("before", [0, 3_000])  # tuples: in the table, or in cells
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_leaves_64_bits_is_an_error_that_names_it(before, sign):
    sums, huge = SliceSums(10), [(2, 7, sign * (10**18 - 1))] * 9
    for _ in range(3):
        sums.add(block([(2, 7, 0)] * before))
    sums.add(block(huge))
    with pytest.raises(OverflowError, match="sum of key 7 in the slice from 20 leaves the 64 bits"):
        sums.add(block(huge))


def test_results_of_aggregates():
    merged = partials([(0, 1, 6, 4)])
    results = {n: a.result(merged.values, merged.counts).tolist() for n, a in AGGREGATES.items()}
    assert results == {"sum": [6], "count": [4], "min": [6], "max": [6], "mean": [1.5]}


@given(
    rows=ROWS,
    windows=st.sampled_from([Windows(1, 1), Windows(4, 1), Windows(3, 2), Windows(6, 4)]),
)
def test_windows_are_the_slow_twins(rows, windows):
    sliced = [(time // windows.pane, key, value) for time, key, value in rows]
    assert listed(window_sums(of(sliced, windows.pane), windows)) == slow_windows(rows, windows)
