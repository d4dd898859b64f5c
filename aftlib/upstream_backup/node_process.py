"""A primary or secondary as a process.

``python -m aftlib.upstream_backup.node_process NAME START DIRECTORY HEARTBEAT_S``

It processes the tuples of the upstream node (a filter that lets everything pass) and forwards
level-0 ACKs as level-1 ACKs. It answers heartbeats, sends its own to the other node, and requests
recovery when one is not answered. All sockets lie in the directory, which belongs to one user
alone. START counts the processes of this name.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from aftlib.upstream_backup.parameters import OTHER

ACK_S, HEARTBEAT_S = 0.025, 0.25
POLL_S = 0.002
LIMIT = 1 << 26  # bytes of a message: a whole queue is one
LONGEST_FOLDER = 85
"""Bytes of a folder of sockets: a socket's path has at most 103 on some systems."""
UP, DOWN = "upstream", "downstream"
PROGRAM = "aftlib.upstream_backup.node_process"
Message = dict[str, Any]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def serve(handler: Handler, path: Path) -> asyncio.Server:
    """Listen on a Unix socket that only this user can open; ValueError if its path is too long."""
    if len(os.fsencode(path.parent)) > LONGEST_FOLDER:
        raise ValueError(
            f"TMPDIR must be short enough for the paths of sockets, got {str(path.parent)!r}: set "
            f"TMPDIR to a path of at most {LONGEST_FOLDER - 13} bytes"
        )
    server = await asyncio.start_unix_server(handler, path, limit=LIMIT)
    path.chmod(0o600)
    return server


def end_process(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Kill a process; wait at most `seconds` for its end, because a system call may hang."""
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)


async def read_messages(reader: asyncio.StreamReader) -> AsyncIterator[Message]:
    """Yield messages until the connection closes, or a message is cut short or no JSON object."""
    try:
        while (line := await reader.readline()).endswith(b"\n"):
            message = json.loads(line)
            if not isinstance(message, dict):
                return
            yield message
    except (ConnectionError, ValueError, RecursionError):
        return


def write_message(writer: asyncio.StreamWriter, message: Message) -> None:
    """Send a message; on a connection that is closing the message is lost, as on a network."""
    if not writer.is_closing():
        writer.write(json.dumps(message).encode() + b"\n")


async def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition, at most for some seconds; return whether it came true."""
    limit = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < limit:
        await asyncio.sleep(POLL_S)
    return met


def introduced(hello: Message, starts: Mapping[str, int], greeted: dict[str, int]) -> str | None:
    """Return the node that a hello names, if the hello is its newest process's first; else None."""
    match hello:
        case {"hello": str(name), "start": int(number)}:
            if greeted.get(name, number) < number == starts[name]:
                greeted[name] = number
                return name
    return None


async def pass_on(kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward the messages of a kind until a message of another kind comes."""
    async for message in read_messages(reader):
        if kind not in message:
            break
        write_message(writer, message)


async def answer_heartbeats(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Return heartbeats to their sender."""
    await pass_on("beat", reader, writer)
    writer.close()


class NodeProcess:
    """The node's connections: upstream, downstream, and heartbeats to and from the other node."""

    def __init__(self, name: str, start: int, directory: Path, heartbeat_s: float) -> None:
        self.name, self.start = name, start
        self.directory, self.heartbeat_s = directory, heartbeat_s
        self.watched, self.answered = 0, True  # start of the other node, and whether it answered
        self.watching = asyncio.Event()
        self.peer: asyncio.StreamWriter | None = None
        self.listening: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Work until the upstream node closes the connection."""
        await serve(answer_heartbeats, self.directory / f"{self.name}-{self.start}")
        reader, self.up = await self._connect(UP)
        acks, self.down = await self._connect(DOWN)
        for writer in (self.up, self.down):
            write_message(writer, {"hello": self.name, "start": self.start})
        # level-0 ACKs become level-1 ACKs: each result stems from one tuple, in order
        tasks = [asyncio.create_task(t) for t in (pass_on("ack", acks, self.up), self._watch())]
        async for message in read_messages(reader):
            if "ids" in message:
                write_message(self.down, message)
            else:
                await self._watch_peer(message["peer"])
        for task in tasks:
            task.cancel()

    async def _connect(self, socket: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.directory / socket, limit=LIMIT)

    async def _watch_peer(self, start: int) -> None:
        self.watched = start
        if self.peer is not None and self.listening is not None:
            self.listening.cancel()  # an answer of the failed process no longer counts
            self.peer.close()
        try:
            reader, self.peer = await self._connect(f"{OTHER[self.name]}-{start}")
            self.listening = asyncio.create_task(self._listen(reader))
            self.answered = True
        except OSError:  # it has failed before it could be watched
            self.answered = False
        self.watching.set()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        async for _ in read_messages(reader):
            self.answered = True

    async def _watch(self) -> None:
        while True:
            await self.watching.wait()
            if self.answered and self.peer is not None:
                self.answered = False
                write_message(self.peer, {"beat": self.name})
            else:
                self.watching.clear()
                write_message(self.up, {"request": OTHER[self.name], "start": self.watched})
            await asyncio.sleep(self.heartbeat_s)


def end_with_parent() -> None:
    """Let Linux kill this process when its parent ends, also while it is stopped."""
    set_parent_death_signal = 1
    with suppress(AttributeError):  # other systems have no such call
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent()
    name, start, directory, heartbeat_s = sys.argv[1:]
    asyncio.run(NodeProcess(name, int(start), Path(directory), float(heartbeat_s)).run())
