"""Stretches come back as they were noted, and a substitute's replaces its forerunner's."""

from aftlib.core.windows import Windows
from aftlib.shared_state import loops
from aftlib.shared_state.intake import load_loops, note, noted, summed, take_away
from aftlib.shared_state.parsing import Rejected, Rules
from aftlib.shared_state.stores.tables import Progress

BAD = Rejected(7, "1 fields instead of 3", "x")


def test_what_is_noted_is_found(tmp_path):
    before, after = Progress(5, 3, 0, 1), Progress(30, 9, 1, 4, 1)
    note(tmp_path, 2, before, after, [BAD])
    note(tmp_path, 0, Progress(), Progress(4, tuples=1), [])
    note(tmp_path, 2, Progress(), before, [Rejected(0, "", "y")])
    note(tmp_path, 2, before, after, [BAD])
    partitions, rejects = noted(tmp_path)
    assert partitions.columns.tolist() == ["partition", "offset", "tuples", "late", "rejected"]
    assert partitions.to_numpy().tolist() == [[0, 4, 1, 0, 0], [2, 30, 4, 1, 1]]
    assert rejects.columns.tolist() == ["partition", "offset", "reason", "line"]
    assert rejects.to_numpy().tolist() == [[2, 0, "", "y"], [2, 7, BAD.reason, "x"]]


def test_the_same_beginning_is_written_over(tmp_path):
    note(tmp_path, 0, Progress(8), Progress(90, tuples=9), [BAD])
    note(tmp_path, 0, Progress(8), Progress(40, tuples=4), [])
    assert noted(tmp_path)[0].to_numpy().tolist() == [[0, 40, 4, 0, 0]]
    assert noted(tmp_path)[1].empty


def test_what_is_read_again_is_taken_away(tmp_path):
    for partition, since in ((0, 0), (0, 8), (0, 12), (1, 8)):
        note(tmp_path, partition, Progress(since), Progress(since + 4, tuples=1), [])
    take_away(tmp_path, 0, 8)
    assert noted(tmp_path)[0].to_numpy().tolist() == [[0, 4, 1, 0, 0], [1, 12, 1, 0, 0]]


def test_nothing_read_is_an_empty_table(tmp_path):
    partitions, rejects = noted(tmp_path)
    assert partitions.empty
    assert rejects.empty


def test_nothing_is_left_to_load_when_tuples_come(tmp_path):
    load_loops()
    compiled = [loops.split, loops.merge, loops.moved, loops.spread]
    before = [[*each.signatures] for each in compiled]
    assert all(before)
    (tmp_path / "part").write_text("5,7,1\n" * 9)
    summed({0: tmp_path / "part"}, Rules(Windows(4, 2), 3))
    assert [[*each.signatures] for each in compiled] == before
