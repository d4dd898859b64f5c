"""How a task process calls its server: a Unix socket, one connection a task."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count
from multiprocessing import AuthenticationError, current_process
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from typing import Any

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.servers.lifetime import start_thread
from aftlib.shared_state.servers.server import Server
from aftlib.shared_state.stores.tables import Progress, StaleBatch


def address_of(server: int) -> str:
    """Socket of a server, relative to the stage's folder: a socket's path must be short."""
    return f"server-{server}.sock"


class Door:
    """Lets tasks in; a connection that ends, however it ends, is a task that has left.

    Only processes of the same user can reach the socket, and only those of the same supervisor,
    which hands its key down to them, are listened to. All of them work in the stage's folder.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._visits = count()
        address = address_of(server.number)
        if os.path.exists(address):  # left by a server that died
            os.unlink(address)
        mask = os.umask(0o177)
        try:
            self._listener = Listener(address, "AF_UNIX", backlog=server.stage.tasks)
        finally:
            os.umask(mask)

    def run(self) -> None:
        """Let tasks in, for ever."""
        while True:
            start_thread(self.let_in, self._listener.accept())

    def let_in(self, link: Connection) -> None:
        """Serve a task of the same supervisor; nothing that another one sends is unpickled."""
        key = current_process().authkey
        try:
            deliver_challenge(link, key)
            answer_challenge(link, key)
        except (AuthenticationError, AssertionError, ValueError, EOFError, OSError):
            link.close()
        else:
            self.serve(link)

    def serve(self, link: Connection) -> None:
        """Do what a task asks for, until it leaves."""
        task = f"visit {next(self._visits)}"
        try:
            while True:
                verb, *what = _received(link)
                try:
                    answer = getattr(self._server, verb)(task, *what)
                except (OverflowError, StaleBatch) as error:
                    answer = error
                link.send(answer)
        except (EOFError, ConnectionError):
            self._server.leave(task)


class Link:
    """A task's connection to its server.

    By any method a ConnectionError or EOFError says that the server is not there, or dies.
    """

    def __init__(self, server: int) -> None:
        try:
            self._link = Client(address_of(server), "AF_UNIX", current_process().authkey)
        except (FileNotFoundError, AuthenticationError) as error:  # not there, or about to die
            raise ConnectionError(f"server {server} does not answer ({error})") from error

    def join(self, partitions: list[int]) -> dict[int, Progress]:
        """Begin; returns where the partitions stand."""
        return self._call("join", partitions)

    def merge(self, partials: Partials, progress: Mapping[int, Progress]) -> None:
        """Merge a batch, as `StateTable.merge`."""
        self._call("merge", partials, dict(progress))

    def stay(self) -> None:
        """Have no more to merge, and wait until the server ends, which raises EOFError."""
        self._call("leave")
        _received(self._link)

    def _call(self, *request: Any) -> Any:
        self._link.send(request)
        answer = _received(self._link)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *error: object) -> None:
        self._link.close()


def _received(link: Connection) -> Any:
    """The next message; a peer that dies inside one has ended like any other."""
    try:
        return link.recv()
    except OSError as error:  # of no class of its own when it comes in mid-message
        raise EOFError(f"the peer died inside a message ({error}): connect again") from error
