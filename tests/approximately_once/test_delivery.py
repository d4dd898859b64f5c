"""What workers sent of a micro-batch, side by side: nothing is mixed up, nothing is made up."""

import numpy as np
import pyarrow as pa
import pytest

from aftlib.approximately_once.assignment import assess
from aftlib.approximately_once.operator import RESULT, result_row
from aftlib.approximately_once.pipeline import Delivery
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows

WINDOWS, NAMES = Windows(10, 5), ("d", "c", "b", "a")
ASSIGNMENT = assess(GaussianModel(np.zeros(4), np.eye(4)), [(0, 2), (1, 3)], Requirement(1.0, 0.05))


def said(worker):
    about = {"worker": worker, "attempt": 0, "pid": 7, "start": 20, "begin": 15, "stop": 40}
    return about | dict.fromkeys(["again", "crashed", "failure", "recovery"])


@pytest.fixture
def delivery():
    """Windows 3 … 6 are due; worker 1 lost the first two of them."""
    values, samples = np.arange(8.0).reshape(4, 2), np.full((4, 2), 10)
    rows = [result_row(said(0), range(3, 4), values[:1], samples[:1])]
    rows += [
        result_row(said(1), range(3, 5)),
        result_row(said(0), range(4, 4), values[:0], samples[:0]),
    ]
    rows += [result_row(said(0), range(4, 7), values[1:], samples[1:]), result_row(said(0))]
    rows += [result_row(said(1), range(5, 7), -values[2:], samples[2:]), result_row(said(1))]
    return Delivery.of(pa.Table.from_batches(rows, RESULT), WINDOWS, ASSIGNMENT)


def test_windows_come_to_their_places(delivery):
    assert delivery.windows == range(3, 7)
    assert [split["worker"] for split in delivery.splits] == [0, 1]
    assert delivery.sent.tolist() == [[True, False], [True, False], [True, True], [True, True]]
    expected = [[0, np.nan, 1, np.nan], [2, np.nan, 3, np.nan], [4, -4, 5, -5], [6, -6, 7, -7]]
    np.testing.assert_array_equal(delivery.values, expected)
    np.testing.assert_array_equal(delivery.samples, np.where(np.isnan(expected), 0, 10))


def test_cells_are_of_what_was_sent_in_the_sinks_order(delivery):
    cells = delivery.cells([1, 2], NAMES)
    assert cells == sorted(cells)
    assert cells[:2] == [(20, 30, "b", 3.0, None, 0, 10), (20, 30, "d", 2.0, None, 0, 10)]
    assert [cell[2:4] for cell in cells[2:]] == [("a", -5.0), ("b", 5.0), ("c", -4.0), ("d", 4.0)]
    assert delivery.cells([], NAMES) == []


def test_what_is_taken_later_counts_as_sent(delivery):
    delivery.take(0, 1, np.array([8.0, 9.0]), np.array([3, 4]))
    assert delivery.sent[0].all() and not delivery.sent[1].all()
    assert delivery.values[0].tolist() == [0, 8, 1, 9]
    assert delivery.samples[0].tolist() == [10, 3, 10, 4]
