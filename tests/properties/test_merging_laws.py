"""D3's conditions on f: associative, commutative; and grouping equals merging."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from aftlib.shared_state.aggregates import AGGREGATES, Partials
from tests.shared_state.tuples import partials

INT64 = np.iinfo(np.int64)
IDENTITY = {"add": 0, "min": INT64.max, "max": INT64.min}
aggregates = st.sampled_from(list(AGGREGATES.values()))
numbers = st.integers(-(2**61), 2**61)


@st.composite
def states(draw, number):
    """Draw `number` states with equally many rows."""
    aggregate, rows = draw(aggregates), draw(st.integers(0, 5))
    shape = (rows, len(aggregate.components))
    return aggregate, [draw(arrays(np.int64, shape, elements=numbers)) for _ in range(number)]


@given(states(3))
def test_order_and_grouping_of_merges_do_not_matter(sample):
    aggregate, (a, b, c) = sample
    f = aggregate.merge
    assert np.array_equal(f(a, b), f(b, a))
    assert np.array_equal(f(f(a, b), c), f(a, f(b, c)))


@given(states(1))
def test_each_has_an_identity(sample):
    aggregate, (a,) = sample
    identity = np.tile([IDENTITY[kind] for kind in aggregate.components], (len(a), 1))
    assert np.array_equal(aggregate.merge(a, identity), a)


@st.composite
def tuples(draw):
    size = draw(st.integers(0, 30))
    small = arrays(np.int64, size, elements=st.integers(-3, 3))
    return draw(small), draw(small), draw(arrays(np.int64, size, elements=st.integers(-9, 9)))


@given(aggregates, tuples(), st.integers(0, 30), st.randoms(use_true_random=False))
def test_any_cut_in_any_order_groups_to_the_same(aggregate, columns, cut, chance):
    order = list(range(len(columns[0])))
    chance.shuffle(order)
    shuffled = [column[order] for column in columns]
    halves = [
        partials(aggregate, *(c[part] for c in shuffled)) for part in (slice(cut), slice(cut, None))
    ]
    merged = aggregate.group(Partials.concat(*halves))
    whole = partials(aggregate, *columns)
    for name in ("windows", "keys", "values"):
        assert np.array_equal(getattr(merged, name), getattr(whole, name))
    assert merged.in_order


@given(st.lists(st.integers(INT64.min, INT64.max), min_size=1, max_size=6))
def test_a_sum_is_exact_or_an_error(values):
    column = np.zeros(len(values), dtype=np.int64)
    exact = sum(values)
    if INT64.min <= exact <= INT64.max:
        rows = partials(AGGREGATES["sum"], column, column, np.array(values, dtype=np.int64))
        assert rows.values.tolist() == [[exact]]
    else:
        with pytest.raises(OverflowError):
            partials(AGGREGATES["sum"], column, column, np.array(values, dtype=np.int64))
