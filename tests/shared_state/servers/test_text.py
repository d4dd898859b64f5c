"""Text logs as a source: the same tuples as arrays, and no malformed line lost or counted twice."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from aftlib.shared_state.servers.driver import run
from aftlib.shared_state.servers.job import Job
from aftlib.shared_state.servers.source import END, ArraySource
from aftlib.shared_state.servers.text import TextSource

from aftlib.core.windows import Windows
from aftlib.shared_state.servers import text as text_module
from aftlib.shared_state.stream.parsing import PartitionReader, Rules
from aftlib.shared_state.stream.stretch import kept
from aftlib.shared_state.stream.tuplelog import TupleLog

WINDOWS, DELAY, ROWS = Windows(20, 10), 5, 30_000


@pytest.fixture
def tuples():
    rng = np.random.default_rng(6)
    times = (np.arange(ROWS) // 50 - rng.integers(0, 20, ROWS)).clip(0)
    return np.column_stack([times, rng.integers(0, 40, ROWS), rng.integers(0, 100, ROWS)])


def source(tmp_path, text, most_rejected=100):
    log = TupleLog.write(tmp_path / "text", [text])
    return TextSource(log, Rules(WINDOWS, DELAY, most_rejected), tmp_path / "rejects")


def lines(tuples):
    return [b"%d,%d,%d\n" % tuple(row) for row in tuples.tolist()]


def all_of(batches):
    found = list(batches)
    return np.concatenate([np.stack(block) for block, _ in found], axis=1), found[-1][1]


def test_same_tuples_and_late_ones_as_arrays(tmp_path, tuples):
    arrays = ArraySource.write(tmp_path / "arrays", [tuples], WINDOWS.pane, DELAY)
    expected, end = all_of(arrays.batches(0, None, 1000))
    text = source(tmp_path, b"".join(lines(tuples)))
    found, after = all_of(text.batches(0, None, 1000))
    assert np.array_equal(found, expected)
    assert (after.late, after.watermark) == (end.late, END)
    assert end.late > 0
    first = next(text.batches(0, None, 1000))
    rest, again = all_of(text.batches(0, first[1], 1000))
    assert np.array_equal(np.concatenate([np.stack(first[0]), rest], axis=1), expected)
    assert (again.offset, again.late) == (after.offset, after.late)
    assert list(text.batches(0, after, 1000)) == []


def test_malformed_lines_are_kept_once_however_often_they_are_read(tmp_path, tuples):
    text = lines(tuples)
    for at in (3, 12_000, 29_000):
        text.insert(at, b"no tuple\n")
    there = source(tmp_path, b"".join(text))
    batches = list(there.batches(0, None, 5000))
    list(there.batches(0, batches[1][1], 5000))
    assert [r.line for s in kept(there.rejects) for r in s.rejects] == ["no tuple"] * 3


def test_malformed_lines_are_kept_once_when_batches_are_cut_elsewhere(
    tmp_path, tuples, monkeypatch
):
    """As they are when a substitute goes on inside what was a chunk to its forerunner."""
    text = lines(tuples)[:3_000]
    for at in range(0, 3_000, 50):
        text.insert(at, b"no tuple, no. %d\n" % at)
    there = source(tmp_path, b"".join(text))
    monkeypatch.setattr(text_module, "PartitionReader", partial(PartitionReader, chunk=1_000))
    first, *_, last = list(there.batches(0, None, 100))
    monkeypatch.setattr(text_module, "PartitionReader", partial(PartitionReader, chunk=1_300))
    *_, again = there.batches(0, first[1], 100)
    found = [r.line for s in kept(there.rejects) for r in s.rejects]
    assert len(found) == len(set(found)) == 60
    assert again[1].offset == last[1].offset


def test_the_threshold_counts_what_was_rejected_before_a_death(tmp_path, tuples):
    text = lines(tuples)
    for at in (3, 29_000):
        text.insert(at, b"no tuple\n")
    there = source(tmp_path, b"".join(text), most_rejected=1)
    first = next(there.batches(0, None, 5000))[1]
    with pytest.raises(ValueError, match="more than most_rejected = 1 malformed lines"):
        list(there.batches(0, first, 5000))
    assert [r.line for s in kept(there.rejects) for r in s.rejects] == ["no tuple"] * 2


def test_a_job_reads_text_wherever_it_was_started(tmp_path, tuples, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = source(Path(), b"".join(lines(tuples)))
    account = run(Job(text, Path("job"), WINDOWS, servers=1, tasks=1, own="memory"))
    assert account.units == text.log.bytes
    arrays = ArraySource.write(tmp_path / "arrays", [tuples], WINDOWS.pane, DELAY)
    run(Job(arrays, tmp_path / "other", WINDOWS, servers=1, tasks=1, own="memory"))
    one, other = (
        {p.name: p.read_text() for p in (tmp_path / name / "output").iterdir()}
        for name in ("job", "other")
    )
    assert one == other
    assert len(one) > 10
