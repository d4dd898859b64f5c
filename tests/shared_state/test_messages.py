"""The messages between task and server, and crashes of either inside a message."""

import os
import pickle
import socket
import stat
import struct
import threading
from contextlib import suppress
from multiprocessing import AuthenticationError, current_process
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge

import numpy as np
import pytest

from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import SUM, Partials
from aftlib.shared_state.job import Job
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.server import Server, SocketServer
from aftlib.shared_state.stores.tables import END, NEVER, MemoryTable, Progress, StaleBatch
from aftlib.shared_state.task import (
    Link,
    address_of,
    pack_message,
    progress_from_json,
    progress_to_json,
    unpack_message,
)
from aftlib.shared_state.tuplelog import TupleLog
from tests.refusals import refused
from tests.shared_state.tuples import partials

BEGINNING = struct.pack("!i", 500_000) + bytes(50_000)
"""The first bytes of a message as long as a batch of some 20,000 rows."""


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = TupleLog.write(tmp_path / "log", [b"0,0,0\n" * 5])
    job = Job(log, Rules(Windows(10, 10)), tmp_path, servers=1, tasks=1)
    return Server(job, 0, MemoryTable(SUM), MemoryTable(SUM))


@pytest.fixture
def listener(server):
    listener = SocketServer(server)
    yield listener
    listener._listener.close()


def connected():
    """Two ends of a connection."""
    return [Connection(end.detach()) for end in socket.socketpair()]


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("components", [1, 2])
def test_a_message_is_read_as_it_was_written(rows, components):
    most = np.iinfo(np.int64).max
    windows, keys = np.full(rows, -most - 1), np.arange(rows) * 3
    values = np.arange(rows * components).reshape(components, rows).T - most  # not contiguous
    progress = {3: Progress(most, NEVER, 1, 2, 3, since=5), 0: Progress(np.int64(7), END)}
    sent = pack_message("merge", progress_to_json(progress), Partials(windows, keys, values))
    word, content, sums = unpack_message(sent)
    assert (word, progress_from_json(content)) == ("merge", progress)
    np.testing.assert_array_equal(sums.windows, windows)
    np.testing.assert_array_equal(sums.keys, keys)
    np.testing.assert_array_equal(sums.values, values)
    assert sums.keys.flags.aligned and len(sent) < 300 + 8 * rows * (2 + components)


OTHERS = [b"", b"x" * 15, pack_message("join", [0])[:-1], pack_message("leave") + b"12345678"]
test_other_bytes_are_refused = refused(
    unpack_message,
    *((each, rf"message must be lengths, .* got {len(each)} bytes") for each in OTHERS),
    (pickle.dumps(["j"]), "message must be lengths, JSON and rows"),
)


def test_a_number_that_is_no_integer_is_not_cut_to_one():
    with pytest.raises(TypeError, match="float32"):
        pack_message("merge", {0: [np.float32(1.7)]})


def test_a_refusal_is_raised_in_the_task(listener):
    most = partials(SUM, [0], [1], [2**63 - 1])
    stale = {0: Progress(9, since=5)}
    task, end = connected()
    link = Link.__new__(Link)
    link._link = task
    with task:
        threading.Thread(target=listener.serve, args=(end,), daemon=True).start()
        assert link.join([0]) == {}
        link.merge(most, {})
        with pytest.raises(OverflowError, match="leaves the 64 bits"):
            link.merge(most, {})
        with pytest.raises(StaleBatch, match="stands at 0"):
            link.merge(partials(SUM, [0], [0], [1]), stale)


class Harm:
    """Leaves a file behind wherever it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("harm",))


def test_other_requests_and_pickles_are_refused_even_from_a_holder_of_the_key(listener):
    task, end = connected()
    task.send_bytes(pack_message("commit_epochs", []))
    with pytest.raises(ValueError, match="word must be join, merge or leave, got 'commit_epochs'"):
        listener.serve(end)
    task, end = connected()
    task.send(Harm())
    with pytest.raises(ValueError, match="message must be"):
        listener.serve(end)
    assert not os.path.exists("harm")


def test_a_task_that_crashes_inside_a_message_has_left(server, listener):
    task, end = socket.socketpair()
    with task, Connection(task.dup().detach()) as calls:
        calls.send_bytes(pack_message("join", [0]))
        task.sendall(BEGINNING)
        task.shutdown(socket.SHUT_WR)
        listener.serve(Connection(end.detach()))
    assert server.cycle.tables == {}


def test_an_error_of_the_store_is_not_taken_for_a_crash(server, listener, monkeypatch):
    def full(*_):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(server.own, "merge", full)
    task, end = connected()
    task.send_bytes(pack_message("join", [0]))
    task.send_bytes(pack_message("merge", {}, partials(SUM, *np.zeros((3, 1), int))))
    with pytest.raises(OSError, match="no space left"):
        listener.serve(end)


def test_a_server_that_crashes_inside_a_message_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address_of(0))
        listener.listen()

        def crash_in_a_message():
            end = Connection(listener.accept()[0].detach())
            deliver_challenge(end, current_process().authkey)
            answer_challenge(end, current_process().authkey)
            end.recv_bytes()
            os.write(end.fileno(), BEGINNING)
            end.close()

        threading.Thread(target=crash_in_a_message, daemon=True).start()
        with Link(0) as link, pytest.raises(EOFError, match="the peer crashed inside a message"):
            link.join([0])


def test_only_this_user_and_this_supervisors_processes_are_served(server):
    """Once, the socket's mode was the umask's, and any message was unpickled."""
    before = os.umask(0)
    try:
        listener = SocketServer(server)
        assert stat.S_IMODE(os.stat(address_of(0)).st_mode) == 0o600
    finally:
        os.umask(before)

    def run():
        with suppress(OSError):  # closed at the end
            listener.run()

    threading.Thread(target=run, daemon=True).start()
    with pytest.raises(AuthenticationError):
        Client(address_of(0), "AF_UNIX", b"another key")
    with Client(address_of(0), "AF_UNIX") as stranger:
        stranger.send(Harm())
        with pytest.raises((EOFError, OSError)):
            while True:
                stranger.recv_bytes()
    assert not os.path.exists("harm")
    with Link(0) as link:
        assert link.join([0]) == {}
    listener._listener.close()
