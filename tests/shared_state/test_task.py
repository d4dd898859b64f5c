"""A task reads on from its server's offset; no malformed line is lost or counted twice."""

from collections import Counter
from contextlib import suppress

import numpy as np
import pytest

from aftlib.core.windows import Windows
from aftlib.shared_state import parsing
from aftlib.shared_state import sums as kernels
from aftlib.shared_state.job import Job, Journal
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.stores.tables import END, Progress
from aftlib.shared_state.task import (
    load_kernels,
    read_markers,
    read_on,
    sum_partitions,
)
from aftlib.shared_state.tuplelog import TupleLog
from tests.shared_state.test_parsing import slow

WINDOWS, DELAY, ROWS = Windows(20, 10), 5, 30_000


class Recording:
    """A server that records its batches, and breaks when it has enough."""

    def __init__(self, stands, most=10**9):
        self.stands, self.most, self.batches = dict(stands), most, []

    def join(self, partitions):
        return {p: self.stands[p] for p in partitions if p in self.stands}

    def merge(self, partials, progress):
        if len(self.batches) == self.most:
            raise ConnectionError("gone")
        ((partition, now),) = progress.items()
        assert now.since == self.stands.get(partition, Progress()).offset
        self.stands[partition] = Progress(*now.stored)
        self.batches.append((partials, progress))

    @property
    def sums(self):
        sums = Counter()
        for partials, _ in self.batches:
            rows = partials.windows.tolist(), partials.keys.tolist(), partials.values[:, 0].tolist()
            for window, key, value in zip(*rows, strict=True):
                sums[window, key] += value
        return sums


@pytest.fixture
def text():
    rng = np.random.default_rng(6)
    times = (np.arange(ROWS) // 50 - rng.integers(0, 20, ROWS)).clip(0)
    rows = np.column_stack([times, rng.integers(0, 40, ROWS), rng.integers(1, 100, ROWS)])
    return [b"%d,%d,%d\n" % tuple(row) for row in rows.tolist()]


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Read a log of one partition from an offset on, and return the server."""
    monkeypatch.chdir(tmp_path)

    def go(text, stands=(), batch=1000, most_rejected=100, most=10**9):
        if not (tmp_path / "log").exists():
            TupleLog.write(tmp_path / "log", [b"".join(text)])
        rules = Rules(WINDOWS, DELAY, most_rejected)
        job = Job(TupleLog.open(tmp_path / "log"), rules, tmp_path, batch=batch)
        link = Recording(stands, most)
        with suppress(ConnectionError):
            read_on(job, link, [0], Journal("task"), lambda point: None)
        return link

    return go


def one_by_one(text):
    """The slow twin: sums by (slice, key), and how many tuples are late."""
    tuples, progress, _ = slow(b"".join(text), Rules(WINDOWS, DELAY))
    sums = Counter()
    for part, key, value in tuples:
        sums[part * WINDOWS.pane, key] += value
    return sums, progress.late


@pytest.mark.parametrize("batch", [999, 7_000, 10**6])
def test_sums_and_late_tuples_do_not_depend_on_batches(read, text, batch):
    sums, late = one_by_one(text)
    link = read(text, batch=batch)
    assert link.sums == sums
    now = link.stands[0]
    assert (now.tuples, now.late, now.watermark) == (ROWS, late, END)
    assert late > 0
    stands = [progress[0].tuples for _, progress in link.batches]
    assert all(np.diff([0, *stands[:-1]]) >= batch)


def test_a_replacement_goes_on_where_the_server_says(read, text):
    first = read(text, most=7)
    second = read(text, first.stands)
    sums, late = one_by_one(text)
    assert first.sums + second.sums == sums
    assert second.stands[0].late == late
    assert read(text, second.stands).batches == []


def test_an_empty_partition_ends_at_once(read):
    link = read([])
    assert link.stands == {0: Progress(0, END)}
    assert len(link.batches[0][0]) == 0


def rejects(folder):
    return read_markers(folder / "rejects")[1]["line"].tolist()


def test_malformed_lines_are_recorded_once_wherever_batches_are_cut(read, text, tmp_path):
    text = text[:3_000]
    for at in range(0, 3_000, 50):
        text.insert(at, b"no tuple, no. %d\n" % at)
    stands = read(text, batch=100, most=11).stands
    for _ in range(2):
        last = read(text, stands, batch=130).stands
        lines = rejects(tmp_path)
        assert len(lines) == len(set(lines)) == last[0].rejected == 60


def test_the_threshold_counts_rejects_before_a_crash(read, text, tmp_path):
    for at in (3, 29_000):
        text.insert(at, b"no tuple\n")
    stands = read(text, most=5, most_rejected=1).stands
    with pytest.raises(ValueError, match="more than most_rejected = 1 malformed lines"):
        read(text, stands, most_rejected=1)
    assert rejects(tmp_path) == ["no tuple"] * 2


@pytest.mark.parametrize("wrong", ["gone", "emptied"])
def test_a_partition_that_goes_away_is_an_error(read, text, tmp_path, monkeypatch, wrong):
    """Once, a missing file was waited for without end, an emptied one taken for the end."""
    part = tmp_path / "log" / "part-00000.csv"
    merge = Recording.merge

    def merge_and_lose(link, *batch):
        merge(link, *batch)
        part.unlink(missing_ok=True) if wrong == "gone" else part.write_bytes(b"")

    monkeypatch.setattr(Recording, "merge", merge_and_lose)
    with pytest.raises(ValueError, match="path (must hold files|holds)"):
        read(text)


def test_nothing_is_compiled_when_tuples_come(tmp_path):
    load_kernels()
    functions = [parsing.parse_lines, kernels.merge_rows, kernels.move_rows, kernels.move_to_cells]
    before = [[*each.signatures] for each in functions]
    assert all(before)
    (tmp_path / "part").write_text("5,7,1\n" * 9)
    sum_partitions({0: tmp_path / "part"}, Rules(Windows(4, 2), 3))
    assert [[*each.signatures] for each in functions] == before
