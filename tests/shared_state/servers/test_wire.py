"""The connection of a task and its server when either of them dies inside a message."""

import os
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
from aftlib.shared_state.aggregates import SUM
from aftlib.shared_state.servers.server import Server
from aftlib.shared_state.servers.stage import Stage
from aftlib.shared_state.servers.wire import Door, Link, address_of
from aftlib.shared_state.stores.memory import MemoryTable
from aftlib.shared_state.stream.parsing import Rules
from aftlib.shared_state.stream.tuplelog import TupleLog
from tests.shared_state.tuples import partials

BEGINNING = struct.pack("!i", 500_000) + bytes(50_000)
"""The first bytes of a message as long as a batch of some 20,000 rows."""


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = TupleLog.write(tmp_path / "log", [b"0,0,0\n" * 5])
    stage = Stage(log, Rules(Windows(10, 10)), tmp_path, servers=1, tasks=1)
    return Server(stage, 0, MemoryTable(SUM), MemoryTable(SUM))


def test_a_task_that_dies_inside_a_message_has_left(server):
    task, link = socket.socketpair()
    with task, Connection(task.dup().detach()) as calls:
        calls.send(("join", [0]))
        task.sendall(BEGINNING)
        task.shutdown(socket.SHUT_WR)
        Door(server).serve(Connection(link.detach()))
    with pytest.raises(KeyError, match="task 'visit 0' is not one of"):
        server.cycle.meet("visit 0")


def test_an_error_of_the_store_is_not_taken_for_a_death(server, monkeypatch):
    def full(*_):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(server.own, "merge", full)
    task, link = (Connection(end.detach()) for end in socket.socketpair())
    task.send(("join", [0]))
    task.send(("merge", partials(SUM, *np.zeros((3, 1), int)), {}))
    with pytest.raises(OSError, match="no space left"):
        Door(server).serve(link)


def test_a_server_that_dies_inside_a_message_is_one_that_has_died(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address_of(0))
        door.listen()

        def die_in_a_message():
            visit = Connection(door.accept()[0].detach())
            deliver_challenge(visit, current_process().authkey)
            answer_challenge(visit, current_process().authkey)
            visit.recv()
            os.write(visit.fileno(), BEGINNING)
            visit.close()

        threading.Thread(target=die_in_a_message, daemon=True).start()
        with Link(0) as link, pytest.raises(EOFError, match="the peer died inside a message"):
            link.join([0])


class Harm:
    """What leaves a file behind wherever it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, ("harm",))


def test_only_this_user_and_this_supervisor_s_processes_are_let_in(server):
    """Once, the socket's mode was the umask's, and whatever came was unpickled."""
    before = os.umask(0)
    try:
        door = Door(server)
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
