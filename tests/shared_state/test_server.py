"""A server: tables that it flushes and commits, and its start after a crash."""

import os
from dataclasses import replace
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftlib.core.windows import Windows
from aftlib.shared_state import liveness
from aftlib.shared_state import server as servers
from aftlib.shared_state.aggregates import SUM
from aftlib.shared_state.job import Job
from aftlib.shared_state.liveness import fail
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.server import CheckpointCycle, Server
from aftlib.shared_state.stores.sql import SqliteTable
from aftlib.shared_state.stores.tables import BufferedTable, MemoryTable, Progress, StaleBatch
from aftlib.shared_state.tuplelog import TupleLog
from tests.shared_state.tuples import partials


@pytest.fixture
def job(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"0,0,0\n" * 5] * 2)
    return Job(log, Rules(Windows(10, 10)), tmp_path, servers=1)


def batch(value, key=1):
    return partials(SUM, np.array([0]), np.array([key]), np.array([value]))


def values(table, epoch=0):
    rows = table.read(epoch=epoch)
    return dict(zip(rows.keys.tolist(), rows.values[:, 0].tolist(), strict=True))


def merge_round(server, value, progress):
    """Let a task merge one batch and leave, and flush the table."""
    server.join("a", [0])
    server.merge("a", batch(value), progress)
    server.leave("a")
    server.checkpoint()


def test_tables_switch_at_the_barrier_and_are_committed(job):
    shared = MemoryTable(SUM)
    server = Server(job, 0, MemoryTable(SUM), shared)
    assert server.join("a", [0]) == server.join("b", [1]) == {}
    server.merge("a", batch(1), {0: Progress(1)})
    server.merge("b", batch(2), {1: Progress(1)})
    server.checkpoint()
    server.merge("a", batch(4), {0: Progress(2)})
    assert values(server.own, 2) == {1: 3}
    assert values(server.own, 3) == {1: 4}
    assert server.complete == []
    server.merge("b", batch(8), {1: Progress(2)})
    assert server.complete == [2]
    server.commit_epochs()
    assert values(shared) == {1: 3}
    assert shared.progress() == {0: Progress(1), 1: Progress(1)}
    assert server.own.progress() == {0: Progress(2), 1: Progress(2)}


def test_a_crashed_servers_stored_tables_are_complete(job, tmp_path):
    shared = MemoryTable(SUM)
    own = BufferedTable(SqliteTable(tmp_path / "own", SUM))
    server = Server(job, 0, own, shared)
    server.join("a", [0])
    server.merge("a", batch(1), {0: Progress(1)})
    server.checkpoint()
    server.merge("a", batch(2), {0: Progress(2)})  # meets the barrier, into the next table
    server.merge("a", batch(4), {0: Progress(3)})  # after the flush: lost
    own.close()
    again = Server(job, 0, BufferedTable(SqliteTable(tmp_path / "own", SUM)), shared)
    assert again.complete == [2, 3]
    assert again.cycle.epoch == 4
    assert again.join("a", [0]) == {0: Progress(2)}
    again.commit_epochs()
    assert values(shared) == {1: 3}
    again.own.close()


def test_a_server_that_lost_everything_goes_on_from_the_global_store(job):
    shared = MemoryTable(SUM)
    shared.merge(batch(5), {0: Progress(4), 7: Progress(9)}, token=("server-0", 6))
    server = Server(job, 0, MemoryTable(SUM), shared)
    assert shared.committed() == {"server-0": 7}  # fenced off
    assert server.cycle.epoch == 8
    assert server.join("a", [0, 1]) == {0: Progress(4)}


class InFlight(MemoryTable):
    """A global store in which a crashed server's commit lands just before the next merge."""

    def __init__(self, rows, progress, token):
        super().__init__(SUM)
        self.late = [(rows, progress, 0, token)]

    def merge(self, *args, **more):
        while self.late:
            super().merge(*self.late.pop())
        return super().merge(*args, **more)


@pytest.mark.parametrize(("landing", "read_to"), [(3, 5), (5, 3)])
def test_a_commit_that_lands_after_a_crash_is_neither_lost_nor_doubled(job, landing, read_to):
    """Each tuple counts 1; nine are read in all."""
    rows = batch(landing)
    shared = InFlight(rows, {0: Progress(landing, since=0)}, ("server-0", 1))
    server = Server(job, 0, MemoryTable(SUM), shared)
    stands = server.join("a", [0])
    for end in (read_to, 9):
        since = stands[0].offset if stands else 0
        if end > since:
            merge_round(server, end - since, {0: Progress(end, since=since)})
            stands = {0: Progress(end)}
            server.commit_epochs()
    assert shared.progress() == {0: Progress(9)}
    assert values(shared) == {1: 9}


class CrashesBeforeDrop(MemoryTable):
    """A server's own store whose process crashes as the first table is to be dropped."""

    def drop(self, epoch):
        raise SystemExit


def test_a_server_that_crashes_between_its_last_two_steps_agrees_with_the_global_store(job):
    """Where the partitions stand is recorded before the tables that say so are dropped."""
    own, shared = CrashesBeforeDrop(SUM), MemoryTable(SUM)
    server = Server(job, 0, own, shared)
    merge_round(server, 1, {0: Progress(3)})
    with pytest.raises(SystemExit):
        server.commit_epochs()
    own.__class__ = MemoryTable
    for epoch in server.complete:
        own.drop(epoch)  # the disk stored that, and nothing after it
    again = Server(job, 0, own, shared)
    assert again.join("a", [0]) == {0: Progress(3)}
    assert values(shared) == {1: 1}


class Away(MemoryTable):
    """A global store of which the next calls fail."""

    def __init__(self, aggregate, errors=()):
        super().__init__(aggregate)
        self.errors = [*errors]

    def committed(self):
        if self.errors:
            raise self.errors.pop()
        return super().committed()


class Overtaken(MemoryTable):
    """A global store in which a crashed server's last commit lands at the last moment."""

    def merge(self, partials, progress, epoch=0, token=None):
        if token == ("server-0", 3):
            super().merge(batch(1), {0: Progress(1)}, epoch, ("server-0", 2))
        return super().merge(partials, progress, epoch, token)


def test_a_crashed_servers_late_commit_is_not_merged_again(job):
    server = Server(job, 0, MemoryTable(SUM), Overtaken(SUM))
    for i in (1, 2):
        merge_round(server, i, {0: Progress(i)})
    server.commit_epochs()
    assert values(server.shared) == {1: 3}
    assert server.shared.committed() == {"server-0": 3}
    assert server.tables == []


@pytest.mark.parametrize("error", [ConnectionError, TimeoutError, StaleBatch])
def test_a_global_store_out_of_reach_is_waited_for_no_longer_than_wanted(
    job, monkeypatch, caplog, error
):
    monkeypatch.setattr(servers, "RETRY_S", 0.001)
    server = Server(job, 0, MemoryTable(SUM), Away(SUM))
    merge_round(server, 1, {0: Progress(1)})
    server.shared.errors = [error("could not merge")] * 3
    server.commit_epochs()
    assert values(server.shared) == {1: 1} and not caplog.messages  # it came back at once
    monkeypatch.setattr(liveness, "REPORT_S", 0.0)
    server.job = replace(job, patience_s=0.01)
    merge_round(server, 1, {0: Progress(2)})
    server.shared.errors = [error("could not merge")] * 10**5
    with pytest.raises(error):
        server.commit_epochs()
    assert caplog.messages == ["waiting: could not merge; waiting for it"]


@pytest.mark.parametrize("patience_s", [600.0, 1e-9])
@pytest.mark.parametrize("error", [ConnectionError, TimeoutError])
def test_a_store_that_goes_away_once_opened_is_waited_for(job, monkeypatch, error, patience_s):
    job, opened = replace(job, patience_s=patience_s), [Away(SUM), Away(SUM, [error("gone")])]
    job.claim_folder()
    monkeypatch.setattr(Job, "open_shared", lambda job: opened.pop())
    try:
        server = job.open_claimed(lambda shared: Server(job, 0, MemoryTable(SUM), shared))
        assert not opened and not server.shared.errors
    except error:
        assert opened and patience_s < 1


def elsewhere(stands, due):
    reason = f"offsets that server-0 committed, got partition 0 at {stands} instead of {due}"
    return pytest.raises(ValueError, match=f"{reason}: .* replaced or is an older copy")


def test_a_server_s_store_older_than_the_global_one_is_refused(job):
    own, shared = MemoryTable(SUM), MemoryTable(SUM)
    own.merge(batch(1), {0: Progress(3)}, 2)
    shared.merge(batch(7), {0: Progress(7)})
    with elsewhere(7, 0):
        Server(job, 0, own, shared)


@pytest.mark.parametrize("back", [0, 1], ids=["emptied", "an older copy"])
def test_a_global_store_that_goes_back_is_an_error(job, back):
    """Once, it was merged on, and the sums were short by what it had lost."""
    shared = [MemoryTable(SUM) for _ in range(2)]
    server = Server(job, 0, MemoryTable(SUM), shared[1])
    for i in range(3):
        if i == 2:
            server.shared = shared[0]
        merge_round(server, 1, {0: Progress(i + 1, since=i)})
        if i == 2:
            with elsewhere(back, 2):
                server.commit_epochs()
        else:
            server.commit_epochs()
            if i < back:
                shared[0].merge(batch(1), {0: Progress(1)}, token=("server-0", 2))
    server.shared = shared[0]
    with elsewhere(back, 2):  # as a server that comes back finds it
        Server(job, 0, server.own, shared[0])


def test_a_process_ends_though_its_error_cannot_be_reported(monkeypatch):
    monkeypatch.setattr(os, "write", Mock(side_effect=OSError("no space left")))
    monkeypatch.setattr(os, "_exit", Mock(side_effect=SystemExit))
    monkeypatch.setattr(liveness, "_error_pipe", [99])
    with pytest.raises(SystemExit):
        fail()
    assert os._exit.call_args.args == (1,)


def test_the_first_epoch_commit_waits_like_later_ones(job):
    server = Server(replace(job, commit_s=99.0), 0, MemoryTable(SUM), MemoryTable(SUM))
    server.changed, server.commit_epochs = MagicMock(), Mock(side_effect=SystemExit)
    with pytest.raises(SystemExit):
        server.keep_committing()
    assert server.changed.wait_for.call_args.args[1] == 99.0


def test_the_course_of_a_checkpoint():
    cycle = CheckpointCycle(1)
    cycle.join("a")
    cycle.join("b")
    assert (cycle.meet("a"), cycle.meet("b"), cycle.complete) == (1, 1, False)
    cycle.raise_barrier()
    assert not cycle.complete
    for _ in range(2):
        assert (cycle.meet("a"), cycle.complete) == (2, False)
    with pytest.raises(RuntimeError, match=r"table 1 is not complete.*: wait for \['a', 'b'\]"):
        cycle.finish()
    assert (cycle.meet("b"), cycle.complete) == (2, True)
    assert cycle.finish() == 1
    assert (cycle.epoch, cycle.complete, cycle.meet("a")) == (2, False, 2)
    cycle.raise_barrier()
    cycle.meet("a")
    cycle.leave("b")  # a crashed task delays no checkpoint, and its replacement starts in the next
    cycle.join("b again")
    assert cycle.complete and cycle.meet("b again") == 3
    with pytest.raises(KeyError, match=r"task 'b' is not one of \['a', 'b again'\]: join first"):
        cycle.meet("b")


@given(
    st.lists(st.tuples(st.sampled_from(["join", "leave", "meet", "barrier"]), st.integers(0, 3)))
)
def test_complete_tables_are_never_written(steps):
    cycle, complete, tasks = CheckpointCycle(0), -1, set()
    for verb, task in steps:
        if verb == "join":
            cycle.join(str(task))
            tasks.add(task)
        elif verb == "leave":
            cycle.leave(str(task))
            tasks.discard(task)
        elif verb == "barrier":
            cycle.raise_barrier()
        elif task in tasks:
            assert complete < cycle.meet(str(task)) <= complete + 2
        if cycle.complete:
            assert cycle.finish() == complete + 1
            complete += 1
