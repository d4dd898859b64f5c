"""Merge functions: exact, or an error."""

import numpy as np
import pytest

from aftlib.shared_state.aggregates import AGGREGATES, SUM, Partials
from aftlib.shared_state.stores.tables import MemoryTable, Progress
from tests.shared_state.tuples import partials

INT64 = np.iinfo(np.int64)
TUPLES = ([0, 0, 0, 1], [7, 3, 7, 7], [10, 20, -4, 5])


def test_each_aggregate_by_hand():
    expected = {"sum": [20, 6, 5], "count": [1, 2, 1], "min": [20, -4, 5], "max": [20, 10, 5]}
    for name, values in expected.items():
        rows = partials(AGGREGATES[name], *map(np.array, TUPLES))
        assert rows.windows.tolist() == [0, 0, 1]
        assert rows.keys.tolist() == [3, 7, 7]
        assert AGGREGATES[name].result(rows.values).tolist() == values


def test_mean_keeps_sum_and_count():
    rows = partials(AGGREGATES["mean"], *map(np.array, TUPLES))
    assert rows.values.tolist() == [[20, 1], [6, 2], [5, 1]]
    assert AGGREGATES["mean"].result(rows.values).tolist() == [20.0, 3.0, 5.0]


def test_overflow_is_an_error_not_a_wrap():
    for big, more in ((INT64.max, 1), (INT64.min, -1)):
        one, other = np.array([[big]]), np.array([[more]])
        with pytest.raises(OverflowError, match="a sum leaves the 64 bits"):
            SUM.merge(one, other)
        with pytest.raises(OverflowError, match="a sum leaves the 64 bits"):
            partials(SUM, np.zeros(2, int), np.zeros(2, int), np.array([big, more]))
    largest = np.array([INT64.max, INT64.min, INT64.max])
    rows = partials(SUM, np.zeros(3, int), np.zeros(3, int), largest)
    assert rows.values.tolist() == [[INT64.max - 1]]


def test_arrays_that_do_not_fit_are_refused():
    one, two = np.zeros(1, int), np.zeros(2, int)
    with pytest.raises(ValueError, match="must have one row each, got 1, 2 and 2"):
        Partials(one, two, two)
    with pytest.raises(ValueError, match="values must be integers of at most 64 bits, got float64"):
        partials(SUM, one, one, np.array([0.5]))
    with pytest.raises(ValueError, match="keys must be integers of at most 64 bits, got uint64"):
        Partials(one, np.array([2**63], dtype=np.uint64), one)
    with pytest.raises(ValueError, match="windows must be integers of at most 64 bits, got <U1"):
        Partials(np.array(["a"]), one, one)
    assert Partials(one, np.array([7], dtype=np.uint8), one).keys.dtype == np.int64


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("name", "columns"), [("sum", 2), ("max", 3), ("mean", 1), ("mean", 3)])
def test_rows_of_another_aggregate_are_refused(name, columns, order):
    """Columns too many were dropped without a word, and one too few stayed in the table."""
    aggregate, whole = AGGREGATES[name], np.ones(2, int)
    rows = Partials(whole, np.array([1, 2][::order]), np.ones((2, columns), int))
    table = MemoryTable(aggregate)
    with pytest.raises(
        ValueError, match=rf"partials must have . values per row .*\(2, {columns}\)"
    ):
        table.merge(rows, {0: Progress(5)})
    assert not table.progress() and not len(table.read())
