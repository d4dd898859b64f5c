"""What task and server say to each other, and when either of them dies inside a message."""

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
from aftlib.shared_state.server import Server
from aftlib.shared_state.stores.memory import MemoryTable
from aftlib.shared_state.stores.tables import (
    END,
    NEVER,
    Progress,
    StaleBatch,
    pack_message,
    progress_from_json,
    progress_to_json,
    unpack_message,
)
from aftlib.shared_state.task import Link, SocketServer, address_of
from aftlib.shared_state.tuplelog import TupleLog
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
def door(server):
    door = SocketServer(server)
    yield door
    door._listener.close()


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("components", [1, 2])
def test_a_message_says_what_was_said(rows, components):
    most = np.iinfo(np.int64).max
    windows, keys = np.full(rows, -most - 1), np.arange(rows) * 3
    values = np.arange(rows * components).reshape(components, rows).T - most  # not contiguous
    progress = {3: Progress(most, NEVER, 1, 2, 3, since=5), 0: Progress(np.int64(7), END)}
    sent = pack_message("merge", progress_to_json(progress), Partials(windows, keys, values))
    word, what, found = unpack_message(sent)
    assert (word, progress_from_json(what)) == ("merge", progress)
    np.testing.assert_array_equal(found.windows, windows)
    np.testing.assert_array_equal(found.keys, keys)
    np.testing.assert_array_equal(found.values, values)
    assert found.keys.flags.aligned and len(sent) < 300 + 8 * rows * (2 + components)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"x" * 15,
        pack_message("join", [0])[:-1],
        pack_message("leave") + b"12345678",
        pickle.dumps(["j"]),
    ],
)
def test_what_is_no_message_is_refused(message):
    with pytest.raises(ValueError, match=rf"message must be lengths, .* got {len(message)} bytes"):
        unpack_message(message)


def test_a_number_that_is_no_integer_is_not_cut_to_one():
    with pytest.raises(TypeError, match="float32"):
        pack_message("merge", {0: [np.float32(1.7)]})


def answers(door, *requests):
    """What a task is progress_to_json to each of its requests."""
    task, link = (Connection(end.detach()) for end in socket.socketpair())
    with task:
        for request in requests:
            task.send_bytes(request)
        threading.Thread(target=door.serve, args=(link,), daemon=True).start()
        return [unpack_message(task.recv_bytes())[:2] for _ in requests]


def test_a_refusal_is_raised_in_the_task(door):
    most = partials(SUM, [0], [1], [2**63 - 1])
    stale = pack_message(
        "merge", progress_to_json({0: Progress(9, since=5)}), partials(SUM, [0], [0], [1])
    )
    said = answers(door, pack_message("join", [0]), *[pack_message("merge", {}, most)] * 2, stale)
    assert [word for word, _ in said] == ["joined", "done", "OverflowError", "StaleBatch"]
    assert "leaves the 64 bits" in said[2][1] and "stands at 0" in said[3][1]

    link = Link.__new__(Link)
    for word, error in (("OverflowError", OverflowError), ("StaleBatch", StaleBatch)):
        link._link, server_end = (Connection(end.detach()) for end in socket.socketpair())
        server_end.send_bytes(pack_message(word, "for a reason"))
        with pytest.raises(error, match="for a reason"):
            link.merge(most, {})


def test_a_task_can_ask_for_nothing_else(door):
    task, link = (Connection(end.detach()) for end in socket.socketpair())
    task.send_bytes(pack_message("commit_epochs", []))
    with pytest.raises(ValueError, match="word must be join, merge or leave, got 'commit_epochs'"):
        door.serve(link)


def test_nothing_that_comes_is_unpickled(door):
    """Not even from who holds the key."""
    task, link = (Connection(end.detach()) for end in socket.socketpair())
    task.send(Harm())
    with pytest.raises(ValueError, match="message must be"):
        door.serve(link)
    assert not os.path.exists("harm")


def test_a_task_that_dies_inside_a_message_has_left(server, door):
    task, link = socket.socketpair()
    with task, Connection(task.dup().detach()) as calls:
        calls.send_bytes(pack_message("join", [0]))
        task.sendall(BEGINNING)
        task.shutdown(socket.SHUT_WR)
        door.serve(Connection(link.detach()))
    with pytest.raises(KeyError, match="task 'visit 0' is not one of"):
        server.cycle.meet("visit 0")


def test_an_error_of_the_store_is_not_taken_for_a_death(server, door, monkeypatch):
    def full(*_):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(server.own, "merge", full)
    task, link = (Connection(end.detach()) for end in socket.socketpair())
    task.send_bytes(pack_message("join", [0]))
    task.send_bytes(pack_message("merge", {}, partials(SUM, *np.zeros((3, 1), int))))
    with pytest.raises(OSError, match="no space left"):
        door.serve(link)


def test_a_server_that_dies_inside_a_message_is_one_that_has_died(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address_of(0))
        door.listen()

        def die_in_a_message():
            visit = Connection(door.accept()[0].detach())
            deliver_challenge(visit, current_process().authkey)
            answer_challenge(visit, current_process().authkey)
            visit.recv_bytes()
            os.write(visit.fileno(), BEGINNING)
            visit.close()

        threading.Thread(target=die_in_a_message, daemon=True).start()
        with Link(0) as link, pytest.raises(EOFError, match="the peer crashed inside a message"):
            link.join([0])


class Harm:
    """What leaves a file behind wherever it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("harm",))


def test_only_this_user_and_this_supervisor_s_processes_are_let_in(server):
    """Once, the socket's mode was the umask's, and whatever came was unpickled."""
    before = os.umask(0)
    try:
        door = SocketServer(server)
        assert stat.S_IMODE(os.stat(address_of(0)).st_mode) == 0o600
    finally:
        os.umask(before)

    def run():
        with suppress(OSError):  # closed at the end
            door.run()

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
    door._listener.close()
