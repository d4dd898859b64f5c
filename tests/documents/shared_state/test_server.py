"""A server's checkpoints, and how its tasks and its replacement go on."""

import threading
import time
from functools import partial

import pytest

from aftlib.core.windows import Windows
from aftlib.documents.shared_state.parsing import END, Progress
from aftlib.documents.shared_state.server import (
    Job,
    Server,
    TupleSource,
    read_journal,
    serve,
)
from aftlib.documents.shared_state.table import OwnFile, SqliteTable
from aftlib.documents.shared_state.tuples import TupleLog
from aftlib.spark.faults import Fault, TaskStopped
from tests.documents.shared_state.slow import listed, partials, slow_rows, text_of

ROWS = [[(i // 4, i % 5, i) for i in range(p, 600, 2)] for p in (0, 1)]
DUE = [(10 * s, *rest) for s, *rest in slow_rows([(t // 10, k, v) for p in ROWS for t, k, v in p])]


@pytest.fixture
def job(tmp_path):
    log = TupleLog.write(tmp_path / "log", map(text_of, ROWS))
    source = TupleSource(log, Windows(10, 10))
    place = tmp_path / "job"
    place.mkdir()
    table = partial(SqliteTable, place / "table.sqlite")
    table().prepare(2).close()
    return partial(Job, source, place, table, batch=50, checkpoint_s=60.0)


def state(job):
    with job.table() as table:
        return listed(table.read()), table.progress()


def test_a_server_waits_for_sums_before_it_raises_a_barrier(job, monkeypatch):
    """With barriers as often as possible, it does not spin while its tasks read."""
    checkpoint, merge, idle = Server.checkpoint, Server.merge, []

    def count(server):
        idle.append(server.epoch not in server.tables)
        checkpoint(server)

    def merge_slowly(*batch):
        merge(*batch)
        time.sleep(0.01)  # on a busy machine, too, a barrier is due before the tasks have ended

    monkeypatch.setattr(Server, "checkpoint", count)
    monkeypatch.setattr(Server, "merge", merge_slowly)
    serve(job(checkpoint_s=0.0), 0)
    *due, _ = idle  # the last one is at the end, when nothing may be left
    assert due and not any(due)


def test_a_server_sums_everything_and_leaves_nothing_behind(job):
    serve(job(checkpoint_s=0.0), 0)
    rows, progress = state(job())
    assert rows == DUE
    assert {(now.watermark, now.tuples) for now in progress.values()} == {(END, 300)}
    assert OwnFile(job().directory / "server-0.sqlite").epochs() == []


def test_the_course_of_a_checkpoint(job):
    """Open, checkpointing until each task has met the barrier, complete."""
    with job().table() as shared:
        server = Server(job(), 0, OwnFile(job().directory / "own"), shared)
        server.writes = {0: 1, 1: 1}
        server.merge(0, partials([(0, 1, 5, 1)]), 0, 0, Progress(10))
        assert server.state == "open"
        flushing = threading.Thread(target=server.checkpoint)
        flushing.start()
        while server.state == "open":  # until the barrier is raised
            time.sleep(0.001)
        server.merge(0, partials([(0, 1, 7, 1)]), 0, 10, Progress(20))  # meets the barrier
        flushing.join(0.2)
        assert flushing.is_alive() and server.state == "checkpointing"
        assert listed(shared.read()) == []
        server.merge(1, partials([(0, 2, 9, 1)]), 1, 0, Progress(30))
        flushing.join()
        assert server.state == "open"
        assert listed(shared.read()) == [(0, 1, 5, 1)]  # the old table alone
        assert [now.offset for now in shared.progress().values()] == [10, 0]
        server.writes.clear()  # both end
        server.checkpoint()
        assert listed(shared.read()) == [(0, 1, 12, 2), (0, 2, 9, 1)]
        assert [now.offset for now in shared.progress().values()] == [20, 30]


def test_a_stopped_task_goes_on_at_the_offset_in_memory_and_disturbs_no_other(job):
    faulty = job(faults=(Fault("stop", "task-0-1", 3, "read"),), journal=True)
    serve(faulty, 0)
    assert state(faulty)[0] == DUE
    reads = read_journal(faulty.directory)
    read = {
        task: sum(each["tuples"] for each in reads if each["task"] == task)
        for task in ("task-0-0", "task-0-1")
    }
    assert read == {"task-0-0": 300, "task-0-1": 350}  # one batch of 50 again


def test_a_task_that_always_fails_ends_the_server(job, monkeypatch):
    def fail(injector, target, step=0, point=""):
        if target == "task-0-1":
            raise TaskStopped("again")

    monkeypatch.setattr("aftlib.documents.shared_state.server.Injector.reach", fail)
    with pytest.raises(TaskStopped, match="again"):
        serve(job(journal=True), 0)
    reads = read_journal(job().directory)
    assert len({each["process"] for each in reads if each["task"] == "task-0-1"}) == 4


class Crash(BaseException):
    """The end of a server's process."""


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("point", ["merged", "flushed", "committed", "dropped"])
def test_a_replacement_goes_on_where_the_failed_server_stood(job, monkeypatch, point, lost):
    """With its file, or without it at the offsets of the global table."""
    crash = {"at": point}

    def reach(injector, target, step=0, point=""):
        if target == "server-0" and point == crash["at"] and step >= 1:
            raise Crash

    monkeypatch.setattr("aftlib.documents.shared_state.server.Injector.reach", reach)
    with pytest.raises(Crash):
        serve(job(checkpoint_s=0.0), 0)
    crash["at"] = ""
    if lost:
        for path in job().directory.glob("server-0*"):
            path.unlink()
    serve(job(), 0)
    assert state(job())[0] == DUE


def test_a_replacement_first_commits_what_was_flushed(job):
    own = OwnFile(job().directory / "server-0.sqlite")
    own.flush(1, partials([(0, 1, 5, 1)]), {0: (0, Progress(60, 3, 9))})
    with job().table() as shared:
        server = Server(job(), 0, own, shared)
        assert listed(shared.read()) == [(0, 1, 5, 1)] and own.epochs() == []
        assert (server.epoch, server.stands) == (2, {0: Progress(60, 3, 9), 1: Progress()})


def test_a_bad_line_ends_the_run_with_its_text(job):
    with job().source.log.part(1).open("ab") as file:
        file.write(b"1,x,3\n")
    with pytest.raises(ValueError, match=r"line at byte \d+ of part-00001.csv .* got '1,x,3'"):
        serve(job(), 0)
