"""The contract of state tables, run over all of them."""

import numpy as np
import pytest

from aftlib.shared_state.aggregates import SUM
from aftlib.shared_state.stores import claim
from aftlib.shared_state.stores.sql import SqliteTable
from aftlib.shared_state.stores.tables import BufferedTable, MemoryTable, Progress
from tests.shared_state.tuples import lift, partials

INT64 = np.iinfo(np.int64)


def rows(*tuples):
    return lift(SUM, *np.array(tuples, np.int64).T)


def content(partials):
    """Rows as a dictionary."""
    columns = (partials.windows.tolist(), partials.keys.tolist(), partials.values.tolist())
    values = {(w, k): tuple(v) for w, k, v in zip(*columns, strict=True)}
    assert len(values) == len(partials)
    assert list(values) == sorted(values)
    return values


def test_largest_keys_windows_and_values(opened):
    ends = [INT64.min, -1, 0, INT64.max]
    batch = rows(*((w, k, v) for w in ends for k in ends for v in (INT64.min, INT64.max)))
    table = opened()
    table.merge(batch, {INT64.max: Progress(INT64.max, INT64.min, INT64.max)})
    assert content(table.read()) == {(w, k): (-1,) for w in ends for k in ends}
    assert table.progress() == {INT64.max: Progress(INT64.max, INT64.min, INT64.max)}


def test_overflow_is_refused_whole(opened):
    table = opened()
    table.merge(rows((0, 1, INT64.max - 1), (0, 2, INT64.min + 1)), {0: Progress(1)})
    for batch in (
        rows((0, 0, 7), (0, 1, 2)),
        rows((0, 0, 7), (0, 2, -2)),
        rows((5, 5, INT64.max), (5, 5, 1)),
    ):
        with pytest.raises(OverflowError, match="a sum leaves the 64 bits .* nothing was merged"):
            table.merge(batch, {0: Progress(2)})
    assert content(table.read()) == {(0, 1): (INT64.max - 1,), (0, 2): (INT64.min + 1,)}
    assert table.progress() == {0: Progress(1)}
    table.merge(rows((0, 1, 1), (0, 2, -1)), {0: Progress(2)})
    assert content(table.read()) == {(0, 1): (INT64.max,), (0, 2): (INT64.min,)}


def test_emitted_windows_are_recorded_as_their_slices_are_forgotten(opened):
    table = opened()
    table.merge(rows((0, 1, 5), (1, 1, 5), (2, 900, 5)), {0: Progress(10)})
    assert table.outputs() == {}
    table.forget(0, 1, output=(-3, 2**32 - 1))
    table.forget(output=(INT64.max, 0))
    assert content(table.read()) == {(2, 900): (5,)}
    assert table.outputs() == {-3: 2**32 - 1, INT64.max: 0}
    if table.durable:
        table.barrier()
        table.close()
        again = opened()
        assert again.outputs() == {-3: 2**32 - 1, INT64.max: 0}
        assert again.windows().tolist() == [2]


def test_merged_arrays_stay_the_callers(opened):
    table = opened()
    batch = SUM.group(rows((0, 1, 5), (0, 2, 6)))
    table.merge(batch, {})
    table.merge(batch, {})
    table.read().values[:] = 0
    assert batch.values.tolist() == [[5], [6]]
    assert content(table.read()) == {(0, 1): (10,), (0, 2): (12,)}


def test_flushed_rows_are_there_again(opened):
    table = opened()
    if not table.durable:
        pytest.skip("a table in memory")
    table.merge(rows((0, 1, 5)), {0: Progress(10, 3, 1)}, epoch=2, token=("a", 2))
    table.barrier()
    table.merge(rows((0, 1, 6)), {0: Progress(20)}, epoch=3)
    table.close()
    again = opened()
    assert content(again.read(epoch=2)) == {(0, 1): (5,)}
    assert again.progress(2)[0] == Progress(10, 3, 1)
    assert again.committed() == {"a": 2}
    # of what came after the barrier, all is there or nothing
    assert content(again.read(epoch=3)) == ({(0, 1): (6,)} if 3 in again.epochs() else {})
    assert again.progress()[0].offset == (20 if 3 in again.epochs() else 10)


@pytest.mark.parametrize("owner", ["a", None])
def test_a_table_is_of_one_owner(opened, owner):
    """The state of nobody known is another's, too."""
    table = opened()
    for _ in range(2 if owner else 0):
        claim(table, owner)
    table.merge(rows((0, 1, 5)), {0: Progress(10)})
    if owner:
        claim(table, owner)
    with pytest.raises(
        ValueError, match="table must be new, or the one with which this log or job"
    ):
        claim(table, "b")
    assert content(table.read()) == {(0, 1): (5,)}


def test_two_who_claim_a_table_at_once_are_both_refused_it():
    class Late(MemoryTable):
        def merge(self, partials, progress, epoch=0, token=None):
            super().merge(partials, progress, epoch, ("owner b", 0))
            return super().merge(partials, progress, epoch, token)

    with pytest.raises(ValueError, match="table must be new"):
        claim(Late(SUM), "a")


class TestBuffered:
    """What the contract leaves open, of a table in front of one."""

    @pytest.fixture
    def behind(self, tmp_path):
        with SqliteTable(tmp_path / "s", SUM) as table:
            yield table

    def test_a_batch_waits_for_the_barrier(self, behind):
        table = BufferedTable(behind)
        table.merge(rows((0, 1, 5)), {0: Progress(10)})
        assert not behind.epochs()
        assert not behind.progress()
        table.barrier()
        assert content(behind.read()) == {(0, 1): (5,)}
        assert behind.progress() == {0: Progress(10)}

    @pytest.mark.parametrize(
        "act",
        [
            lambda table: table.drop(3),
            lambda table: table.merge(rows((0, 1, 7)), {0: Progress(30)}, 3, ("a", 3)),
        ],
    )
    def test_no_offset_overtakes_rows_of_an_earlier_table(self, behind, act):
        table = BufferedTable(behind)
        for epoch in (2, 3, 4):
            table.merge(rows((0, 1, 5)), {0: Progress(10 * epoch)}, epoch)
        act(table)
        assert content(behind.read(epoch=2)) == {(0, 1): (5,)}
        assert behind.progress()[0] == Progress(40 if 4 in behind.epochs() else 30)

    def test_what_a_full_disk_did_not_take_goes_on_waiting(self, tmp_path):
        wide = partials(SUM, np.zeros(9000, int), np.arange(9000), np.ones(9000, int))
        with BufferedTable(SqliteTable(tmp_path / "s", SUM)) as table:
            table.merge(rows((0, 1, 5)), {0: Progress(10)}, 1)
            table.barrier()
            table.merge(rows((0, 1, 5)), {0: Progress(20)}, 2)
            table.merge(wide, {0: Progress(30)}, 3)
            pages = table.store._rows("PRAGMA page_count")[0][0]
            table.store._rows(f"PRAGMA max_page_count = {pages}")
            for _ in range(2):
                with pytest.raises(OSError, match="could not merge in .*full"):
                    table.barrier()
            with SqliteTable(tmp_path / "s", SUM) as reopened:
                assert (reopened.progress(), reopened.epochs()) == ({0: Progress(20)}, (1, 2))
            table.store._rows("PRAGMA max_page_count = 1000000")
            table.barrier()
        with BufferedTable(SqliteTable(tmp_path / "s", SUM)) as again:
            assert (again.progress(), again.epochs()) == ({0: Progress(30)}, (1, 2, 3))
            assert len(again.read(epoch=3)) == 9000
            assert content(again.read(epoch=2)) == {(0, 1): (5,)}

    def test_sums_past_the_limit_stop_the_barrier_and_go_on_waiting(self, behind):
        table = BufferedTable(behind)
        for key in (1, 2):
            table.merge(rows((0, key, 2**62)), {key: Progress(1)})
            table.barrier()
        table.merge(rows((0, 1, 2**62)), {1: Progress(2)})
        for _ in range(2):
            with pytest.raises(OverflowError):
                table.barrier()
        assert content(behind.read()) == {(0, 1): (2**62,), (0, 2): (2**62,)}
        assert behind.progress()[1] == Progress(1)


def test_a_servers_window_in_sqlite_is_cut_into_blobs(tmp_path, monkeypatch):
    monkeypatch.setattr("aftlib.shared_state.stores.sql.PACKED", 4)
    with SqliteTable(tmp_path / "s", SUM) as table:
        table.merge(rows(*((0, key, 1) for key in range(0, 18, 2))), {}, epoch=2)
        table.merge(rows(*((0, key, 1) for key in range(18))), {}, epoch=2)
        with pytest.raises(OverflowError, match="leaves the 64 bits"):
            table.merge(rows((0, 3, 2**63 - 1)), {}, epoch=2)
        assert content(table.read(epoch=2)) == {(0, key): (2 - key % 2,) for key in range(18)}
        assert content(table.read(0, epoch=2)) == content(table.read(epoch=2))
