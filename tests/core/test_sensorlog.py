"""The sensor log: any keys over any steps, whole or refused."""

import json
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

from aftlib.core.sensorlog import MANIFEST, ROW_GROUP, LogReader, SensorLog, write_part
from tests.refusals import refused

NAMES = ["a", "b", "c"]


@pytest.fixture
def values():
    values = np.random.default_rng(0).normal(size=(10_000, 3))
    values[5, 1] = np.nan
    return values


@pytest.fixture
def log(tmp_path, values):
    return SensorLog.write(tmp_path / "log", values, NAMES, {"seed": 0})


@pytest.mark.parametrize(
    ("keys", "begin", "stop"),
    [(None, 0, 10_000), ([2, 0], 4000, 4200), ([1], 4095, 4097), ([1, 1], 0, 10), ([0], 7, 7)],
)
def test_read_gives_what_was_written(log, values, keys, begin, stop):
    wanted = values[begin:stop] if keys is None else values[begin:stop, keys]
    np.testing.assert_array_equal(log.read(keys, begin, stop), wanted)
    blocks = list(log.blocks(keys, begin, stop))
    if stop > begin:
        np.testing.assert_array_equal(np.concatenate(blocks), wanted)


def test_reading_some_keys_touches_their_columns_and_row_groups_only(log, monkeypatch):
    read = []

    class Watched(pq.ParquetFile):
        def read_row_groups(self, groups, columns, **how):
            read.append((list(groups), columns))
            return super().read_row_groups(groups, columns, **how)

    monkeypatch.setattr(pq, "ParquetFile", Watched)
    log.read([1], 1024, 2048)
    log.read([1, 0, 1], 4000, 4097)
    log.read([2], 5, 5)
    assert read == [([1], ["b"]), ([3], ["b", "a"]), ([0], ["b", "a"])]


def test_reading_onward_gives_the_same_and_no_row_group_twice(log, values, monkeypatch):
    read, original = [], pq.ParquetFile.read_row_groups

    def watched(file, groups, columns, **how):
        read.append(len(groups))
        return original(file, groups, columns, **how)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", watched)
    reader, cuts = LogReader(log), [0, 700, 701, 1024, 3000, 3000, 9000, 9990]
    for begin, stop in pairwise(cuts):
        rows = np.concatenate([*reader.blocks([2, 0], begin, stop), np.empty((0, 2))])
        np.testing.assert_array_equal(rows, values[begin:stop, [2, 0]])
    assert sum(read) == -(-10_000 // ROW_GROUP)
    [again] = reader.blocks([1], 9990, 10_000)  # another key: stored steps do not serve it
    np.testing.assert_array_equal(again, values[9990:, [1]])


def test_a_log_without_a_whole_manifest_is_refused(log):
    for text in ("{", json.dumps({"names": ["a"]}), json.dumps([1])):
        (log.path / MANIFEST).write_text(text)
        with pytest.raises(ValueError, match="path holds no complete sensor log"):
            SensorLog.open(log.path)
    (log.path / MANIFEST).unlink()
    with pytest.raises(ValueError, match="path holds no complete sensor log"):
        SensorLog.open(log.path)


test_bad_arguments_are_named = refused(
    lambda call, log: call(log),
    (lambda log: log.read([3], 0, 1), r"keys must lie inside 0 … 2, got \[3\]"),
    (lambda log: log.read(None, 0, 10_001), "begin and stop must satisfy .* 10000, got 0 and"),
    (lambda log: list(log.blocks(None, 5, 4)), "begin and stop must satisfy"),
    (
        lambda log: SensorLog.write(log.path.parent / "x", np.zeros((2, 2)), NAMES),
        r"values must have shape \(steps, 3\), got \(2, 2\)",
    ),
)


@pytest.mark.parametrize(
    ("rows", "reason"), [(3500, "without step 3500"), (1500, "row_group_indices is 2")]
)
def test_a_part_with_too_few_steps_is_refused(log, values, rows, reason):
    """A reader once read on for ever."""
    write_part(log.path, 0, values[:rows], NAMES)
    with pytest.raises((ValueError, OSError), match=reason):
        list(log.blocks(None, 0, 4096))


def test_sensors_may_have_any_names(tmp_path):
    names, values = ["step", "a\nb", "a.b", "größe", "with space"], np.arange(10.0).reshape(2, 5)
    log = SensorLog.write(tmp_path / "log", values, names)
    assert log.names == tuple(names)
    np.testing.assert_array_equal(log.read(None, 0, 2), values)
    np.testing.assert_array_equal(log.read([2, 0], 0, 2), values[:, [2, 0]])
