"""A task: reads its partitions, and merges batches into its server's table over a Unix socket."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
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
from aftlib.shared_state.intake import Intake
from aftlib.shared_state.job import Job, Journal
from aftlib.shared_state.liveness import start_thread
from aftlib.shared_state.parsing import BLOCK
from aftlib.shared_state.server import Server
from aftlib.shared_state.stores.tables import (
    END,
    Progress,
    StaleBatch,
    pack_message,
    progress_from_json,
    progress_to_json,
    unpack_message,
)
from aftlib.shared_state.tuplelog import TupleLog

ERRORS = {error.__name__: error for error in (OverflowError, StaleBatch)}
"""Refusals of a server that its task gets to see."""


def address_of(server: int) -> str:
    """Socket of a server, relative to the job's folder: a socket's path must be short."""
    return f"server-{server}.sock"


class SocketServer:
    """Lets tasks in; a connection that ends, however it ends, is a task that has left.

    Only processes of the same user can reach the socket, and only those of the same supervisor,
    which hands its key down to them, are listened to. All of them work in the job's folder.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._visits = count()
        address = address_of(server.number)
        if os.path.exists(address):  # left by a server that crashed
            os.unlink(address)
        mask = os.umask(0o177)
        try:
            self._listener = Listener(address, "AF_UNIX", backlog=server.job.tasks)
        finally:
            os.umask(mask)

    def run(self) -> None:
        """Let tasks in, for ever."""
        while True:
            start_thread(self.accept_task, self._listener.accept())

    def accept_task(self, link: Connection) -> None:
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
                word, what, rows = _receive(link)
                try:
                    answer = self.answered(task, word, what, rows)
                except tuple(ERRORS.values()) as error:
                    answer = pack_message(type(error).__name__, str(error))
                link.send_bytes(answer)
        except (EOFError, ConnectionError):
            self._server.leave(task)

    def answered(self, task: str, word: str, what: Any, rows: Partials) -> bytes:
        """What a request comes to; ValueError for a word that is none of a task's."""
        if word == "join":
            return pack_message("joined", progress_to_json(self._server.join(task, what)))
        if word == "merge":
            self._server.merge(task, rows, progress_from_json(what))
        elif word == "leave":
            self._server.leave(task)
        else:
            raise ValueError(f"word must be join, merge or leave, got {word!r}")
        return pack_message("done")


class Link:
    """A task's connection to its server.

    By any method a ConnectionError or EOFError says that the server is not there, or crashes.
    """

    def __init__(self, server: int) -> None:
        try:
            self._link = Client(address_of(server), "AF_UNIX", current_process().authkey)
        except (FileNotFoundError, AuthenticationError) as error:  # not there, or about to end
            raise ConnectionError(f"server {server} does not answer ({error})") from error

    def join(self, partitions: list[int]) -> dict[int, Progress]:
        """Begin; returns where the partitions stand."""
        return progress_from_json(self._call(pack_message("join", partitions)))

    def merge(self, partials: Partials, progress: Mapping[int, Progress]) -> None:
        """Merge a batch, as `StateTable.merge`."""
        self._call(pack_message("merge", progress_to_json(progress), partials))

    def stay(self) -> None:
        """Have no more to merge, and wait until the server ends, which raises EOFError."""
        self._call(pack_message("leave"))
        _receive(self._link)

    def _call(self, request: bytes) -> Any:
        self._link.send_bytes(request)
        word, what, _ = _receive(self._link)
        if word in ERRORS:
            raise ERRORS[word](what)
        return what

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *error: object) -> None:
        self._link.close()


def _receive(link: Connection) -> tuple[str, Any, Partials]:
    """The next message; a peer that crashes inside one has ended like any other."""
    try:
        return unpack_message(link.recv_bytes())
    except OSError as error:  # of no class of its own when it comes in mid-message
        raise EOFError(f"the peer crashed inside a message ({error}): connect again") from error


RETRY_S = 0.02


def work(job: Job, server: int, task: int, journal: Journal) -> None:
    """Read all partitions of a task to their ends.

    The server says where to begin, at first and again whenever it, or this task's process, has
    crashed. Nothing about the past is kept here. A task that has come to the end waits until its
    server has handed all of it over: if the server crashes before, some is to be read again. Errors
    are those of `PartitionReader.blocks` and `StateTable.merge`, and a ValueError when a
    partition's file is gone, or has not the length that it was written with.
    """
    at = job.points(journal.who)
    while not (job.directory / f"server-{server}.done").exists():
        try:
            with Link(server) as link:
                read_on(job, link, job.partitions_of(server, task), journal, at)
                journal.note("ended")
                link.stay()
        except (ConnectionError, EOFError, StaleBatch):
            time.sleep(RETRY_S)


def read_on(
    job: Job, link: Link, partitions: list[int], journal: Journal, at: Callable[[str], None]
) -> None:
    """Read partitions to their ends, a batch of each in turn."""
    TupleLog.open(job.log.path)  # all of it is there
    stands = link.join(partitions)
    journal.note("joined", offsets={p: now.offset for p, now in stands.items()})
    intake = Intake(job.rules, stands, job.function, job.rejects, note_all=False)
    rows = min(BLOCK, job.batch)
    readers = {
        p: intake.read(p, job.log.part(p), rows)
        for p in partitions
        if p not in stands or stands[p].watermark != END
    }
    while readers:
        for partition in list(readers):
            since = intake.progress.get(partition, Progress()).tuples
            if not any(waiting >= job.batch for waiting in readers[partition]):
                TupleLog.open(job.log.path)  # as it was written: this is a partition's end
                intake.end(partition)
                del readers[partition]
            partials, progress = intake.take()
            upto = intake.progress[partition].tuples
            journal.note("read", partition=partition, since=since, upto=upto)
            at("read")
            link.merge(partials, progress)
            at("merged")
