"""The sink: writing twice is writing once, and what is no sink is refused."""

import numpy as np
import pytest

from aftlib.approximately_once.sink import Outage, WindowSink

ROWS = [
    (0, 10, "X1", 1.5, None, 0, 10),
    (5, 15, "X1", 2.0, 0.3, 1, 0),
    (5, 15, "X2", np.nan, None, 0, 0),
]


def test_write_is_idempotent(tmp_path):
    sink = WindowSink(tmp_path / "sink.sqlite")
    for _ in range(2):
        sink.write(ROWS, [Outage(1, 16, 19, 100, 101)])
    frame = WindowSink(tmp_path / "sink.sqlite").windows()
    assert len(frame) == 3
    assert frame["estimated"].tolist() == [False, True, False]
    np.testing.assert_array_equal(frame["value"], [1.5, 2.0, np.nan])
    assert sink.outages() == [Outage(1, 16, 19, 100, 101)]


def test_results_are_counted_up_to_the_step_at_which_their_window_begins(tmp_path):
    sink = WindowSink(tmp_path / "sink.sqlite")
    sink.write(ROWS)
    assert [sink.count(before=step) for step in (0, 1, 5, 6)] == [0, 1, 1, 3]


def test_a_later_write_replaces_and_a_failing_one_leaves_all_as_it_was(tmp_path):
    sink = WindowSink(tmp_path / "sink.sqlite")
    sink.write(ROWS)
    sink.write([(0, 10, "X1", 9.0, None, 0, 10)])
    with pytest.raises(Exception, match="NOT NULL"):
        sink.write([(20, 30, "X1", 1.0, None, 0, 10), (25, 35, None, 1.0, None, 0, 10)])
    assert sink.windows()["value"].tolist()[0] == 9.0
    assert len(sink.windows()) == 3


def test_what_is_no_sink_is_refused(tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("not a database, but long enough to be taken for one" * 20)
    for path in (other, tmp_path / "missing" / "sink.sqlite", tmp_path):
        with pytest.raises(ValueError, match="path must be a sink of windows or a new file"):
            WindowSink(path)
    assert other.read_text().startswith("not a database")


def test_an_estimate_never_replaces_an_exact_value(tmp_path):
    sink = WindowSink(tmp_path / "sink.sqlite")
    sink.write(ROWS)
    sink.write([(0, 10, "X1", 7.0, 0.2, 1, 0), (5, 15, "X1", 3.0, 0.1, 1, 0)])
    sink.write([(5, 15, "X2", 4.0, None, 0, 10)])
    assert sink.windows()["value"].tolist() == [1.5, 3.0, 4.0]
    assert sink.exact([0]) == {(0, "X1"): (1.5, 10)}
    sink.write([(5, 15, "X1", 5.0, None, 0, 9)])
    assert sink.exact([5]) == {(5, "X1"): (5.0, 9), (5, "X2"): (4.0, 10)}


def test_the_results_of_another_query_are_refused(tmp_path):
    WindowSink(tmp_path / "sink.sqlite", "mean")
    WindowSink(tmp_path / "sink.sqlite", "mean")
    WindowSink(tmp_path / "sink.sqlite")
    with pytest.raises(ValueError, match="path holds the results of another query"):
        WindowSink(tmp_path / "sink.sqlite", "sum")


def test_more_rows_than_a_statement_permits_are_all_written(tmp_path):
    sink = WindowSink(tmp_path / "sink.sqlite")
    sink.write((10 * i, 10 * i + 10, "X1", float(i), None, 0, 10) for i in range(250))
    assert sink.windows()["value"].tolist() == [float(i) for i in range(250)]


def test_a_worker_that_was_down_holds_its_input_since_its_last_recovery(tmp_path):
    sink = WindowSink(tmp_path / "sink.sqlite")
    sink.write([], [Outage(1, 16, 19), Outage(1, 40, 52), Outage(0, 41, 45)])
    assert sink.held() == {0: 45, 1: 52}
