"""Jobs, their source, their output, and runs from end to end."""

from dataclasses import replace

import numpy as np
import pytest
from aftlib.shared_state.servers.driver import run
from aftlib.shared_state.servers.identity import keep_to
from aftlib.shared_state.servers.job import Job
from aftlib.shared_state.servers.source import END, ArraySource, watermark

from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import AGGREGATES, SUM, Partials
from aftlib.shared_state.servers.journal import Account, Journal
from aftlib.shared_state.servers.output import Output
from aftlib.shared_state.stores.memory import MemoryTable
from aftlib.shared_state.stores.tables import NEVER, Progress


def job_with(tmp_path, **other):
    return Job(ArraySource(tmp_path, 5), tmp_path, Windows(10, 5), **other)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"servers": 0}, "servers must be at least 1, got 0"),
        ({"tasks": 0}, "tasks must be at least 1, got 0"),
        ({"batch": -1}, "batch must be at least 1, got -1"),
        ({"checkpoint_s": 0}, "checkpoint_s must be above 0 seconds, got 0"),
        ({"aggregate": "median"}, "aggregate must be one of .*, got 'median'"),
        ({"own": "postgres"}, "own must be one of .*, got 'postgres'"),
        ({"shared": "rocksdb:x"}, "shared must be sqlite: or postgresql://.*, got 'rocksdb:x'"),
    ],
)
def test_jobs_that_cannot_be(tmp_path, other, said):
    with pytest.raises(ValueError, match=said):
        job_with(tmp_path, **other)


def test_every_partition_has_one_task(tmp_path):
    ArraySource.write(tmp_path / "log", [np.zeros((1, 3), int)] * 11, 5)
    job = Job(ArraySource(tmp_path / "log", 5), tmp_path, Windows(5, 5), servers=3, tasks=2)
    dealt = [p for s in range(3) for t in range(2) for p in job.partitions_of(s, t)]
    assert sorted(dealt) == list(range(11))
    assert job.partitions_of(1) == [1, 4, 7, 10]


def late_one_by_one(times, pane, delay):
    mark, found = NEVER, []
    for at in times:
        found.append(at // pane * pane + pane <= mark)
        mark = max(mark, at - delay)
    return found, mark


@pytest.mark.parametrize("rows", [1, 3, 50])
def test_late_tuples_do_not_depend_on_batches(tmp_path, rows):
    rng = np.random.default_rng(2)
    times = (np.arange(40) + rng.integers(-15, 15, 40)).clip(0)
    tuples = np.column_stack([times, np.arange(40), np.ones(40, int)])
    source = ArraySource.write(tmp_path / "log", [tuples], pane=5, delay=6)
    expected, mark = late_one_by_one(times.tolist(), 5, 6)
    keys, batches = [], list(source.batches(0, None, rows))
    for (slices, found, _), _ in batches:
        keys += found.tolist()
        assert (slices == times[found] // 5 * 5).all()
    assert keys == [i for i in range(40) if not expected[i]]
    now = batches[-1][1]
    assert (now.offset, now.late, now.watermark) == (40, sum(expected), END)
    middle = next(p for _, p in source.batches(0, None, 17))
    again = [k for block, _ in source.batches(0, middle, rows) for k in block[1].tolist()]
    assert [*[k for k in keys if k < 17], *again] == keys
    assert mark > 0 < sum(expected)


def test_an_empty_partition_ends_at_once(tmp_path):
    source = ArraySource.write(tmp_path / "log", [np.zeros((0, 3), int)], 5)
    ((block, now),) = source.batches(0, None, 10)
    assert [len(column) for column in block] == [0, 0, 0]
    assert now == Progress(0, END, 0, 0)
    assert list(source.batches(0, now, 10)) == []


def test_times_before_the_first_window_are_refused(tmp_path):
    partitions = [np.zeros((2, 3), int), np.array([[3, 1, 1], [-4, 1, 1]])]
    with pytest.raises(ValueError, match="timestamps from 0 on.* got -4 in partition 1"):
        ArraySource.write(tmp_path / "log", partitions, 5)
    assert not (tmp_path / "log").exists()


def test_the_watermark_is_that_of_the_slowest():
    progress = {0: Progress(1, 50), 1: Progress(1, 40)}
    assert watermark(progress, [0, 1]) == 40
    assert watermark(progress, [0, 1, 2]) == NEVER
    assert watermark(progress, []) == END


def put_out(job):
    return {p.name: p.read_text().split() for p in sorted(job.output.iterdir())}


def test_windows_go_out_when_the_watermark_has_passed_them(tmp_path):
    job, table = job_with(tmp_path), MemoryTable(SUM)
    slices = np.array([0, 5, 10, 15])
    table.merge(
        Partials(slices, np.array([1, 1, 2, 1]), np.array([1, 2, 4, 8])), {0: Progress(4, 15)}
    )
    output = Output(job, table, [0])
    assert not output.put_out()
    name = "window-{:020d}-all.csv".format
    assert put_out(job) == {name(0): ["0,1,3"], name(5): ["5,1,2", "5,2,4"]}
    assert table.windows().tolist() == [10, 15]
    table.merge(Partials.empty(1), {0: Progress(4, END)})
    assert output.put_out()
    assert put_out(job)[name(10)] == ["10,1,8", "10,2,4"]
    assert put_out(job)[name(15)] == ["15,1,8"]
    assert table.windows().tolist() == []


def test_a_window_that_is_out_is_not_put_out_again(tmp_path):
    job, table = job_with(tmp_path), MemoryTable(AGGREGATES["mean"])
    rows = AGGREGATES["mean"].partials(np.array([0, 0]), np.array([1, 1]), np.array([1, 2]))
    table.merge(rows, {0: Progress(2, END)})
    points = []
    output = Output(job_with(tmp_path, aggregate="mean"), table, [0], at=points.append)
    (job.output / "window-00000000000000000000-all.csv").write_text("there\n")
    assert output.put_out()
    assert put_out(job) == {"window-00000000000000000000-all.csv": ["there"]}
    assert points == ["forgotten"]


def test_the_account_of_a_journal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, other = Journal("one"), Journal("other")
    one.note("joined")
    for since, offset in ((0, 10), (10, 20)):
        one.note("read", partition=3, since=since, offset=offset)
    other.note("joined")
    other.note("joined")
    other.note("read", partition=3, since=15, offset=30)
    account = Account.of(tmp_path)
    assert 0 <= account.seconds < 60
    assert replace(account, seconds=0) == Account(
        {"one": 1, "other": 2}, {3: 30}, 35, 0, {"other": 5}
    )


def test_a_job_runs_to_its_end(tmp_path):
    rng = np.random.default_rng(4)
    tuples = rng.integers(0, 50, (2, 500, 3))
    source = ArraySource.write(tmp_path / "log", list(tuples), 5)
    job = Job(source, tmp_path / "job", Windows(10, 5), "max", servers=1, own="memory", batch=70)
    account = run(job)
    assert (account.units, account.read_again) == (1000, {})
    found = {
        (w, k): v
        for w, k, v in (map(int, x.split(",")) for xs in put_out(job).values() for x in xs)
    }
    expected = {}
    for at, key, value in tuples.reshape(-1, 3).tolist():
        for start in {at // 5 * 5, at // 5 * 5 - 5} - {-5}:
            expected[start, key] = max(value, expected.get((start, key), 0))
    assert found == expected


def test_an_overflow_ends_the_run(tmp_path):
    tuples = np.array([[0, 1, np.iinfo(np.int64).max]] * 2)
    source = ArraySource.write(tmp_path / "log", [tuples], 5)
    job = Job(source, tmp_path / "job", Windows(5, 5), servers=1, tasks=1, own="memory", batch=1)
    with pytest.raises(RuntimeError, match="task-0-0 ended with an error(.|\n)*leaves the 64 bits"):
        run(job)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"servers": 3}, "servers was 2, is 3"),
        ({"windows": Windows(20, 5)}, "width was 10, is 20"),
        ({"aggregate": "max"}, "aggregate was 'sum', is 'max'"),
        ({"keys_apart": True}, "keys_apart was False, is True"),
        ({"delay": 7}, "log was .*'delay': None.*, is .*'delay': 7"),
    ],
)
def test_a_folder_keeps_to_the_job_that_began_there(tmp_path, other, said):
    source = ArraySource.write(tmp_path / "log", [np.zeros((1, 3), int)], 5)
    job = Job(source, tmp_path / "job", Windows(10, 5))
    keep_to(job)
    keep_to(replace(job, batch=7, tasks=1))
    if "delay" in other:
        other = {"source": replace(source, **other)}
    with pytest.raises(ValueError, match=f"{said}.*choose a new directory and schema"):
        run(replace(job, **other))
