"""How a task process calls its server: messages on a Unix socket, one connection a task."""

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
from aftlib.shared_state.packing import packed, told, understood, unpacked
from aftlib.shared_state.servers.lifetime import start_thread
from aftlib.shared_state.servers.server import Server
from aftlib.shared_state.stores.tables import Progress, StaleBatch

ERRORS = {error.__name__: error for error in (OverflowError, StaleBatch)}
"""Refusals of a server that its task gets to see."""


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
        """Serve a task of the same supervisor; nothing else that another one sends is looked at."""
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
                word, what, rows = _received(link)
                try:
                    answer = self.answered(task, word, what, rows)
                except tuple(ERRORS.values()) as error:
                    answer = packed(type(error).__name__, str(error))
                link.send_bytes(answer)
        except (EOFError, ConnectionError):
            self._server.leave(task)

    def answered(self, task: str, word: str, what: Any, rows: Partials) -> bytes:
        """What a request comes to; ValueError for a word that is none of a task's."""
        if word == "join":
            return packed("joined", told(self._server.join(task, what)))
        if word == "merge":
            self._server.merge(task, rows, understood(what))
        elif word == "leave":
            self._server.leave(task)
        else:
            raise ValueError(f"word must be join, merge or leave, got {word!r}")
        return packed("done")


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
        return understood(self._call(packed("join", partitions)))

    def merge(self, partials: Partials, progress: Mapping[int, Progress]) -> None:
        """Merge a batch, as `StateTable.merge`."""
        self._call(packed("merge", told(progress), partials))

    def stay(self) -> None:
        """Have no more to merge, and wait until the server ends, which raises EOFError."""
        self._call(packed("leave"))
        _received(self._link)

    def _call(self, request: bytes) -> Any:
        self._link.send_bytes(request)
        word, what, _ = _received(self._link)
        if word in ERRORS:
            raise ERRORS[word](what)
        return what

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *error: object) -> None:
        self._link.close()


def _received(link: Connection) -> tuple[str, Any, Partials]:
    """The next message; a peer that dies inside one has ended like any other."""
    try:
        return unpacked(link.recv_bytes())
    except OSError as error:  # of no class of its own when it comes in mid-message
        raise EOFError(f"the peer died inside a message ({error}): connect again") from error
