"""Stretches come back as they were kept, and a substitute's replaces its forerunner's."""

from aftlib.shared_state.stores.tables import Progress
from aftlib.shared_state.stream.parsing import Rejected
from aftlib.shared_state.stream.stretch import Stretch, by_partition, kept, reject_table

BAD = Rejected(7, "1 fields instead of 3", "x")


def test_what_is_kept_is_found(tmp_path):
    before, after = Progress(5, 3, 0, 1), Progress(30, 9, 1, 4, 1)
    stretch = Stretch.between(2, before, after, [BAD])
    assert stretch == Stretch(2, 5, 30, 3, 1, 1, (BAD,))
    first = Stretch(2, 0, 5, 1, 0, 0)
    for each in (stretch, Stretch(0, 0, 4, 1, 0, 0), first, stretch):
        each.keep(tmp_path)
    found = kept(tmp_path)
    assert [(s.partition, s.since) for s in found] == [(0, 0), (2, 0), (2, 5)]
    assert found[2] == stretch
    assert by_partition(found).to_numpy().tolist() == [[0, 4, 1, 0, 0], [2, 30, 4, 1, 1]]
    assert reject_table(found).to_numpy().tolist() == [[2, 7, BAD.reason, "x"]]


def test_the_same_beginning_is_written_over(tmp_path):
    Stretch(0, 8, 90, 9, 0, 0).keep(tmp_path)
    Stretch(0, 8, 40, 4, 0, 0).keep(tmp_path)
    assert [s.offset for s in kept(tmp_path)] == [40]


def test_nothing_read_is_an_empty_table(tmp_path):
    assert by_partition(kept(tmp_path)).empty
    assert reject_table([]).empty
