"""Merge functions: exact, or an error."""

import numpy as np
import pytest

from aftlib.shared_state.aggregates import AGGREGATES, Partials
from aftlib.shared_state.stores.tables import MemoryTable, Progress
from tests.refusals import refused
from tests.shared_state.tuples import partials

TUPLES = ([0, 0, 0, 1], [7, 3, 7, 7], [10, 20, -4, 5])


@pytest.mark.parametrize(
    ("name", "values", "results"),
    [
        ("sum", [[20], [6], [5]], [20, 6, 5]),
        ("count", [[1], [2], [1]], [1, 2, 1]),
        ("min", [[20], [-4], [5]], [20, -4, 5]),
        ("max", [[20], [10], [5]], [20, 10, 5]),
        ("mean", [[20, 1], [6, 2], [5, 1]], [20.0, 3.0, 5.0]),
    ],
)
def test_each_aggregate_by_hand(name, values, results):
    rows = partials(AGGREGATES[name], *map(np.array, TUPLES))
    assert (rows.windows.tolist(), rows.keys.tolist()) == ([0, 0, 1], [3, 7, 7])
    assert rows.values.tolist() == values
    assert AGGREGATES[name].result(rows.values).tolist() == results


ONE, TWO = np.zeros(1, int), np.zeros(2, int)
test_arrays_that_do_not_fit_are_refused = refused(
    Partials,
    (ONE, TWO, TWO, "must have one row each, got 1, 2 and 2"),
    (ONE, ONE, np.array([0.5]), "values must be integers of at most 64 bits, got float64"),
    (ONE, ONE.astype(np.uint64) + 2**63, ONE, "keys must be integers of at most 64 .*got uint64"),
    (np.array(["a"]), ONE, ONE, "windows must be integers of at most 64 bits, got <U1"),
)


def test_smaller_integers_are_taken():
    assert Partials(ONE, np.array([7], dtype=np.uint8), ONE).keys.dtype == np.int64


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
