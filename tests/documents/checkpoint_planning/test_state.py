"""The checkpoint store: whole commits or none, and nobody else's files."""

import os
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aftlib.core.generators import block_model
from aftlib.core.storage import open_database, transaction
from aftlib.documents.checkpoint_planning import state
from aftlib.documents.checkpoint_planning.state import (
    Checkpoint,
    CheckpointStore,
    IntervalRecord,
    PreparedReplay,
)
from tests.documents.checkpoint_planning.crashes import MODEL, QUERY

C1 = Checkpoint(
    0, 3, np.array([1.5, np.pi]), np.array([3, 2]), np.array([0.0, 0.25]), (0, 3, 7), "a"
)
RESULTS = pd.DataFrame({"start": 0, "stop": 7, "key": ["X1", "X2"], "value": [1.5, np.nan]})
RESULTS = RESULTS.assign(half_width=[0.1, 0.0], samples=[7, 0])


def record(batch=0):
    return IntervalRecord(batch, 0, 3, False, 2, 1.0, 2.0, 0.5)


def same(one, other):
    pairs = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "one")


def test_commit_is_restored_by_another_process(store):
    assert store.restore() is None
    assert not store.committed(0)
    store.commit(C1, RESULTS, record())
    again = CheckpointStore(store.path.parent)
    assert same(again.restore(), C1)
    assert again.committed(0)
    (stored,) = again.records().to_dict("records")
    assert stored == vars(record()) | {"tuples": 6, "total_ms": 3.5}
    pd.testing.assert_frame_equal(again.results(), RESULTS)


def test_a_batch_started_by_a_crashed_process_is_known(store):
    assert not store.unfinished(30)
    assert not store.begin(30, "first")
    assert not store.begin(30, "first")
    assert store.unfinished(30)
    assert store.begin(30, "second")
    assert store.begin(30, "third")
    assert not store.begin(20, "second")  # another batch
    assert not store.unfinished(31)


def test_a_process_that_stops_withdraws_its_own_batch_only(store):
    store.begin(30, "crashed")
    store.begin(30, "ends")
    store.withdraw("ends")
    assert store.begin(30, "next")
    store.withdraw("crashed")
    store.withdraw("next")
    assert not store.unfinished(30)


def test_a_plan_stored_after_the_commit_replaces_the_old_one(store):
    store.commit(C1, None, record())
    store.save(replace(C1, times=(3, 5, 7), plan_name="b"))
    assert store.restore().times == (3, 5, 7)
    assert store.restore().next_boundary == 5
    assert store.records()["batch"].tolist() == [0]


def test_a_commit_that_fails_in_the_middle_leaves_all_as_it_was(store):
    store.commit(C1, None, record())
    later = Checkpoint(0, 7, C1.sums * 2, C1.counts * 2, C1.sum_variance, C1.times, "a")
    with pytest.raises(sqlite3.IntegrityError):
        store.commit(later, RESULTS, record())  # the same batch twice
    assert same(store.restore(), C1)
    assert store.results().empty


def test_completed_sums_are_the_posterior_mean():
    sensors, steps = [1, 6], 10
    gain = MODEL.gain(sensors, [0, 2, 3, 4, 5, 7])
    prepared = PreparedReplay(np.array(sensors), gain, MODEL.posterior_variance(sensors))
    sums = prepared.estimate(MODEL.mean, np.array([60.0, 45.0]), steps)
    seen = MODEL.aggregate(steps, "sum").condition({"X2": 60.0, "X7": 45.0})
    np.testing.assert_allclose(sums[[0, 2, 3, 4, 5, 7]], seen.mean)
    assert sums[[1, 6]].tolist() == [60, 45]


def test_a_name_is_of_the_sets_and_what_they_estimate(tmp_path):
    plan, store = QUERY.plan(), CheckpointStore(tmp_path)
    fewer = replace(plan, replay=(plan.replay[0], plan.replay[0].loosened(2.0)))
    other = replace(QUERY, model=block_model(8, 2, 4.0, 3.0001, mean=5.0)).plan()
    assert [replay.sensors for replay in other.replay] == [r.sensors for r in plan.replay]
    names = [store.prepare(each) for each in (plan, fewer, other)]
    assert len(set(names)) == 3
    assert [store.prepare(each) for each in (plan, fewer, other)] == names


def open_files(path):
    """Descriptors of this process for files that belong to a database."""
    links = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return [link for link in links if link.startswith(str(path))]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_a_closed_store_holds_no_file(store):
    store.begin(3, "a")
    assert open_files(store.path)
    store.close()
    assert not open_files(store.path)
    with CheckpointStore(store.path.parent) as again:
        assert again.unfinished(3)
    assert not open_files(store.path)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        again.records()


def test_a_reader_does_not_wait_for_the_writer(store, monkeypatch):
    at_once = partial(open_database, timeout_s=0.0)
    monkeypatch.setattr(state, "open_database", at_once)
    with transaction(store._connection, "write to"), CheckpointStore(store.path.parent) as reader:
        assert reader.restore() is None
        assert reader.records().empty
