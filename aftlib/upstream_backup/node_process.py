"""A primary or secondary as a process: ``python -m`` this module ``NAME UP DOWN BEAT``.

It processes what upstream sends (a filter that lets everything pass), passes level-0 ACKs on as
level 1, answers heartbeats, sends its own, and asks upstream for help when one is not answered.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from aftlib.upstream_backup.parameters import OTHER

ACK_S, HEARTBEAT_S = 0.025, 0.25
HOST, LIMIT = "127.0.0.1", 1 << 26
Line = dict[str, Any]


async def read_lines(reader: asyncio.StreamReader) -> AsyncIterator[Line]:
    """Messages until the connection is closed; half a message is none."""
    try:
        while (line := await reader.readline()).endswith(b"\n"):
            yield json.loads(line)
    except ConnectionError:
        return


def write_line(writer: asyncio.StreamWriter, message: Line) -> None:
    """Send a message; one to a process that is gone is lost without a word, as on a network."""
    if not writer.is_closing():
        writer.write(json.dumps(message).encode() + b"\n")


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send on what is said: a heartbeat to where it came from, an ACK to upstream."""
    async for said in read_lines(reader):
        write_line(writer, said)


class NodeProcess:
    """The node's connections: upstream, downstream, and heartbeats to and from the other node."""

    def __init__(self, name: str, heartbeat_s: float) -> None:
        self.heartbeat_s = heartbeat_s
        self.name, self.other = name, OTHER[name]
        self.answered, self.watching = True, asyncio.Event()
        self.peer: asyncio.StreamWriter | None = None

    async def run(self, up: int, down: int) -> None:
        """Work until upstream goes away."""
        server = await asyncio.start_server(pass_on, HOST, 0)  # answers heartbeats
        port = server.sockets[0].getsockname()[1]
        reader, self.up = await asyncio.open_connection(HOST, up, limit=LIMIT)
        results, self.down = await asyncio.open_connection(HOST, down, limit=LIMIT)
        write_line(self.up, {"hello": self.name, "port": port})
        # level-0 ACKs become level-1 ACKs: each result stems from one tuple, in order
        tasks = [asyncio.create_task(t) for t in (pass_on(results, self.up), self._watch())]
        async for said in read_lines(reader):
            if "ids" in said:
                write_line(self.down, {"ids": said["ids"]})
                continue
            try:  # watch the other node, which listens there, from now on
                peer, self.peer = await asyncio.open_connection(HOST, said["peer"])
                self.listening = asyncio.create_task(self._listen(peer))
                self.answered = True
            except ConnectionError:  # it died before it could be watched
                self.answered = False
            self.watching.set()
        for task in tasks:
            task.cancel()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        async for _ in read_lines(reader):
            self.answered = True

    async def _watch(self) -> None:
        while True:
            await self.watching.wait()
            if self.answered and self.peer is not None:
                self.answered = False
                write_line(self.peer, {"beat": self.name})
            else:
                self.watching.clear()
                write_line(self.up, {"request": self.other})
            await asyncio.sleep(self.heartbeat_s)


if __name__ == "__main__":
    node = NodeProcess(sys.argv[1], heartbeat_s=float(sys.argv[4]))
    asyncio.run(node.run(*map(int, sys.argv[2:4])))
