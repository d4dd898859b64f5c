"""The checkpoint store: whole commits or none, and nobody else's files."""

import sqlite3
from dataclasses import astuple, replace

import numpy as np
import pytest

from aftlib.checkpoint_planning.state import (
    Checkpoint,
    CheckpointStore,
    IntervalRecord,
    WindowResult,
)

C1 = Checkpoint(
    0, 3, np.array([1.5, np.pi]), np.array([3, 2]), np.array([0.0, 0.25]), (0, 3, 7), "a"
)
RESULTS = [
    WindowResult(0, 7, "X1", 1.5, 0.1, 7, True),
    WindowResult(0, 7, "X2", float("nan"), 0.0, 0, False),
]


def record(batch=0, **other):
    return IntervalRecord(**{**vars(IntervalRecord(batch, 0, 3, False, 2, 1.0, 2.0, 0.5)), **other})


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(astuple(one), astuple(other), strict=True))


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "state.sqlite", "one")


def test_checkpoint_survives_as_bytes():
    assert same(Checkpoint.from_bytes(C1.to_bytes()), C1)


@pytest.mark.parametrize("cut", [0, 5, 17, 30, -1])
def test_damaged_bytes_are_refused(cut):
    data = C1.to_bytes()
    flipped = data[:cut] + bytes([data[cut] ^ 1]) + (data[cut:][1:])
    for damaged in (data[:cut], flipped):
        with pytest.raises(ValueError, match="data is no intact checkpoint"):
            Checkpoint.from_bytes(damaged)


def test_commit_is_restored_by_another_process(store):
    assert store.restore() is None
    assert not store.committed(0)
    store.commit(C1, RESULTS, record())
    again = CheckpointStore(store.path, "one")
    assert same(again.restore(), C1)
    assert again.committed(0)
    assert again.records() == [record()]
    first, second = again.results()
    assert first == RESULTS[0]
    assert np.isnan(second.value)


def test_a_batch_begun_by_a_dead_process_is_known(store):
    assert store.unfinished(30) is None
    assert not store.begin(4, 30, "first")
    assert not store.begin(4, 30, "first")
    assert store.unfinished(30) == 4
    assert store.begin(4, 30, "second")
    assert not store.begin(3, 20, "second")  # what began later is another batch
    assert store.unfinished(31) is None


def test_a_process_that_ends_of_itself_takes_back_its_own_batch_only(store):
    store.begin(4, 30, "died")
    store.begin(4, 30, "ends")
    store.end("ends")
    assert store.begin(4, 30, "next")
    store.end("died")
    store.end("next")
    assert store.unfinished(30) is None


def test_a_plan_made_after_the_commit_is_kept(store):
    store.commit(C1, [], record())
    store.keep(replace(C1, times=(3, 5, 7), plan="b"))
    assert store.restore().times == (3, 5, 7)
    assert store.restore().next_boundary == 5
    assert store.records() == [record()]


def test_commit_that_fails_half_way_leaves_all_as_it_was(store):
    store.commit(C1, [], record())
    later = Checkpoint(0, 7, C1.sums * 2, C1.counts * 2, C1.variance, C1.times, "a")
    with pytest.raises(sqlite3.IntegrityError):
        store.commit(later, RESULTS, record())  # the same batch twice
    assert same(store.restore(), C1)
    assert store.results() == []


def test_full_disk_while_committing(store):
    store.commit(C1, [], record())
    pages = store._rows("PRAGMA page_count")[0][0]
    store._rows(f"PRAGMA max_page_count = {pages}")
    wide = Checkpoint(0, 7, np.ones(9000), np.ones(9000), np.ones(9000), (0, 7), "a")
    with pytest.raises(
        OSError, match=r"could not commit batch 1 .*full.*nothing before it is lost"
    ):
        store.commit(wide, [], record(1))
    store._rows("PRAGMA max_page_count = 1000000")
    assert same(store.restore(), C1)
    store.commit(wide, [], record(1))
    assert store.restore().position == 7


def test_files_of_others_are_refused(tmp_path, store):
    text = tmp_path / "text"
    text.write_text("no database " * 100)
    with pytest.raises(ValueError, match="path must be a checkpoint store or a new file"):
        CheckpointStore(text, "one")
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE windows (a)")
    with pytest.raises(ValueError, match="path must be a checkpoint store, got another's file"):
        CheckpointStore(foreign, "one")
    with pytest.raises(
        ValueError, match=r"path belongs to another stream \(one\), not to this one"
    ):
        CheckpointStore(store.path, "two")
    with sqlite3.connect(store.path) as connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(ValueError, match="path must be of version 6, got version 9"):
        CheckpointStore(store.path, "one")


def test_damaged_state_is_refused_not_used(store):
    store.commit(C1, [], record())
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE state SET checkpoint = substr(checkpoint, 1, 60)")
    with pytest.raises(ValueError, match="data is no intact checkpoint"):
        store.restore()
