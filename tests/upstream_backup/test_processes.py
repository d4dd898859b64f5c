"""The protocol between the nodes, with nodes that are played by the test."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import stat
from functools import wraps

import pytest

from aftlib.spark.faults import Fault
from aftlib.upstream_backup import node_process, processes
from aftlib.upstream_backup.node_process import NodeProcess, read_messages, serve
from aftlib.upstream_backup.processes import Downstream, Upstream, deliver
from aftlib.upstream_backup.schemes import ACTIVE, PROPOSED, UPSTREAM
from tests.refusals import refused

LIMIT_S = 60
SERVERS = []  # of the scenario that runs
FOREIGN = [
    b"not json\n",
    b"[" * 100_000 + b"\n",
    b'["hello", "secondary"]\n',
    b'{"hello": "nobody", "start": 1}\n',
    b'{"hello": ["primary"], "start": 1}\n',
    b'{"hello": "primary", "start": 7}\n',
    b'{"hello": "primary", "start": 0}\n',
    b'{"hello": "secondary", "start": 1}\n{"ids": [-1]}\n{"request": "primary"}\n',
    b'{"ids": [-1]}\n',
    b'{"request": "primary"}\n',
    b'{"hello": "prim',
]


class Played:
    """One connection of a node that the test plays."""

    @classmethod
    async def connect(cls, path, **hello):
        played = cls()
        played.reader, played.writer = await asyncio.open_unix_connection(path, limit=1 << 26)
        if hello:
            played.send(**hello)
        return played

    def send(self, **message):
        self.writer.write(json.dumps(message).encode() + b"\n")

    async def receive(self):
        try:
            line = await self.reader.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None


def played(scenario):
    """A test that runs a scenario to its end, without an error in a connection."""

    @wraps(scenario)
    def test(**fixtures):
        errors = []

        async def run():
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: errors.append(context["message"]))
            await asyncio.wait_for(scenario(**fixtures), LIMIT_S)
            while SERVERS:
                SERVERS.pop().close()
            gc.collect()  # an error that nobody awaited is reported when its task is deleted

        asyncio.run(run())
        assert errors == []

    return test


async def listen(meet, path):
    """Serve connections at a path until the scenario's end."""
    SERVERS.append(await serve(meet, path))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


async def two_nodes(tmp_path, scheme):
    """An upstream node, and a primary and a secondary that have introduced themselves."""
    starts, restarted = {"primary": 1, "secondary": 1}, []
    upstream = Upstream(scheme, starts, restarted.append)
    await listen(upstream.meet, tmp_path / "upstream")
    nodes = [await Played.connect(tmp_path / "upstream", hello=n, start=1) for n in starts]
    for node in nodes:
        assert await node.receive() == {"peer": 1}
    return upstream, restarted, *nodes


@played
async def test_unacknowledged_tuples_are_sent_again_in_one_message(tmp_path):
    """Of more than asyncio's usual 64 KiB."""
    upstream, restarted, primary, secondary = await two_nodes(tmp_path, UPSTREAM)
    upstream.send([*range(14_000)])
    assert await primary.receive() == {"ids": [*range(14_000)]}
    primary.send(ack=2000)
    await until(lambda: len(upstream.nodes["primary"].queue) <= 12_000)
    secondary.send(request="primary", start=1)
    assert await secondary.receive() == {"ids": [*range(2000, 14_000)]}
    assert restarted == ["primary"]
    assert [(name, len(ids)) for name, _, ids in upstream.requests] == [("primary", 12_000)]


@played
async def test_a_node_taken_for_failed_is_not_heard(tmp_path):
    upstream, restarted, primary, secondary = await two_nodes(tmp_path, UPSTREAM)
    upstream.send([1, 2, 3])
    secondary.send(request="primary", start=1)
    assert await secondary.receive() == {"ids": [1, 2, 3]}
    primary.send(request="secondary", start=1)
    assert await primary.receive() == {"ids": [1, 2, 3]}
    assert await primary.receive() is None, "its connection is closed"
    upstream.send([4])
    assert await secondary.receive() == {"ids": [4]}
    assert restarted == ["primary"] and [*upstream.nodes] == ["secondary"]


@played
async def test_acknowledgements_are_counted_from_each_start(tmp_path):
    upstream, _, primary, secondary = await two_nodes(tmp_path, PROPOSED)
    upstream.send([*range(10)])
    primary.send(ack=4)
    await until(lambda: len(upstream.nodes["primary"].queue) <= 6)
    secondary.send(request="primary", start=1)
    assert await secondary.receive() == {"ids": [*range(4, 10)]}
    upstream.starts["primary"] = 2
    primary = await Played.connect(tmp_path / "upstream", hello="primary", start=2)
    assert await primary.receive() == {"peer": 1}
    assert await secondary.receive() == {"peer": 2}
    upstream.send([10, 11, 12, 13])
    primary.send(ack=2)
    await until(lambda: len(upstream.nodes["primary"].queue) <= 2)
    secondary.send(request="primary", start=1)  # about the earlier process
    secondary.send(request="primary", start=2)
    assert await secondary.receive() == {"ids": [12, 13]}


@pytest.mark.parametrize("line", FOREIGN)
@played
async def test_foreign_messages_close_their_connection_only(tmp_path, line):
    """Once, a foreign hello displaced the secondary, and a malformed line ended the delivery."""
    upstream, restarted, _, secondary = await two_nodes(tmp_path, UPSTREAM)
    downstream = Downstream(upstream.starts)
    await listen(downstream.meet, tmp_path / "downstream")
    results = await Played.connect(tmp_path / "downstream", hello="secondary", start=1)
    await until(lambda: downstream.acknowledged)
    for name in ("upstream", "downstream"):
        foreign = await Played.connect(tmp_path / name)
        foreign.writer.write(line)
        foreign.writer.write_eof()
        assert await foreign.receive() is None
    assert [*upstream.nodes] == ["primary", "secondary"] and restarted == []
    results.send(ids=[5])
    secondary.send(request="primary", start=1)
    assert await secondary.receive() == {"ids": []}
    await until(lambda: downstream.arrived)
    assert downstream.released == [5]


@pytest.mark.parametrize(
    "message", [{"ack": "all"}, {"request": "primary", "start": 1}, {"beat": "primary"}]
)
@played
async def test_messages_that_a_node_does_not_send_close_its_connection(tmp_path, message):
    upstream, restarted, primary, _ = await two_nodes(tmp_path, UPSTREAM)
    primary.send(**message)
    assert await primary.receive() is None
    assert restarted == [] and upstream.requests == []


def test_copies_are_removed():
    downstream = Downstream({})
    for ids in ([0, 1], [4, 5], [1, 2, 3, 4]):
        downstream.take(ids)
    assert downstream.released == [0, 1, 4, 5, 2, 3]
    assert [i for i, _ in downstream.arrived] == [0, 1, 4, 5, 1, 2, 3, 4]


@played
async def test_results_are_acknowledged_once_each(tmp_path):
    downstream = Downstream({"primary": 1})
    await listen(downstream.meet, tmp_path / "downstream")
    acknowledging = asyncio.create_task(downstream.acknowledge(0.001))
    node = await Played.connect(tmp_path / "downstream", hello="primary", start=1)
    for ids, count in (([0, 1], 2), ([2], 3)):
        node.send(ids=ids)
        assert await node.receive() == {"ack": count}
    acknowledging.cancel()


async def node_between(tmp_path):
    """A node's process in this one; the connections that it opened, upstream and downstream."""
    opened = {}

    def keep(name):
        async def meet(reader, writer):
            opened[name] = read_messages(reader), writer

        return meet

    for name in ("upstream", "downstream"):
        await listen(keep(name), tmp_path / name)
    node = asyncio.create_task(NodeProcess("primary", 1, tmp_path, 0.01).run())
    await until(lambda: len(opened) == 2)
    for messages, _ in opened.values():
        assert await anext(messages) == {"hello": "primary", "start": 1}
    return node, *opened["upstream"], *opened["downstream"]


@played
async def test_a_node_passes_tuples_on_and_requests_help_when_no_answer_comes(tmp_path):
    node, messages, up, results, down = await node_between(tmp_path)
    up.write(b'{"ids": [7, 8]}\n')
    assert await anext(results) == {"ids": [7, 8]}
    down.write(b'{"ack": 2}\n')
    assert await anext(messages) == {"ack": 2}

    beats = asyncio.Queue()

    async def peer(reader, writer):
        async for message in read_messages(reader):
            await beats.put(message)
            if beats.qsize() < 3:  # then it fails
                writer.write(b'{"beat": "primary"}\n')

    await listen(peer, tmp_path / "secondary-4")
    up.write(b'{"peer": 4}\n')
    assert await anext(messages) == {"request": "secondary", "start": 4}
    assert [beats.get_nowait() for _ in range(3)] == 3 * [{"beat": "primary"}]
    up.write(b'{"peer": 5}\n')  # nobody listens there
    assert await anext(messages) == {"request": "secondary", "start": 5}
    up.close()
    await node


@played
async def test_a_node_answers_heartbeats_and_nothing_else(tmp_path):
    node, _, up, _, _ = await node_between(tmp_path)
    for line in (b"not json\n", b'{"ids": [1]}\n', b"[]\n"):
        foreign = await Played.connect(tmp_path / "primary-1")
        foreign.writer.write(line)
        assert await foreign.receive() is None
    peer = await Played.connect(tmp_path / "primary-1", beat="secondary")
    assert await peer.receive() == {"beat": "secondary"}
    up.close()
    await node


def test_sockets_are_this_users_alone(monkeypatch):
    """And an error at the start ends the delivery, with its text."""
    modes = {}

    async def fails(system, name):
        for path in (system.folder, *system.folder.iterdir()):
            modes[path.name if path != system.folder else "folder"] = path.stat().st_mode
        raise RuntimeError(f"the {name} did not start: no memory")

    monkeypatch.setattr(processes._System, "start", fails)
    with pytest.raises(RuntimeError, match="the primary did not start: no memory"):
        deliver(UPSTREAM, 100)
    permissions = {name: stat.S_IMODE(mode) for name, mode in modes.items()}
    assert permissions == {"folder": 0o700, "upstream": 0o600, "downstream": 0o600}


@pytest.fixture
def actors(monkeypatch):
    """Let `deliver` start idle nodes; the secondary sends a late request when it is killed."""
    started = []

    class Actor:
        pid = 2**22 + 1  # of no process

        def __init__(self, at_end):
            self.at_end = at_end

        def kill(self):
            if self.at_end:
                self.node.send(**self.at_end)

        def wait(self, timeout):
            """It has no process."""

    async def start(system, name):
        system.starts[name] += 1
        started.append(name)
        hello = {"hello": name, "start": system.starts[name]}
        at_end = {"request": "primary", "start": 1} if name == "secondary" else None
        system.processes[name] = actor = Actor(at_end)
        actor.node = await Played.connect(system.folder / "upstream", **hello)
        actor.below = await Played.connect(system.folder / "downstream", **hello)
        while len(system.downstream.acknowledged) < len(started):
            await asyncio.sleep(0)

    monkeypatch.setattr(processes._System, "start", start)
    return started


def test_a_node_that_does_not_come_back_is_named(actors, monkeypatch):
    """Once, a TimeoutError without a text."""
    monkeypatch.setattr(Downstream, "has", lambda downstream, number: number < 100)
    message = "the secondary did not take part again within 0.3 s .*; give a longer patience_s"
    with pytest.raises(TimeoutError, match=message):
        deliver(UPSTREAM, 100, [Fault("kill", "secondary", 30)], patience_s=0.3)
    assert actors == ["primary", "secondary"]


def test_no_node_is_heard_after_the_end(actors):
    """Once, a request that was read then started a process that nobody ended."""
    delivery = deliver(UPSTREAM, 100, patience_s=0.3)
    assert (delivery.arrived, delivery.requests) == ((), ())
    assert actors == ["primary", "secondary"]


WHERE = "faults must be .* at a node, after 1 … 2999 results"

test_what_is_refused = refused(
    lambda scheme, tuples, fault: deliver(scheme, tuples, [fault] if fault else []),
    (ACTIVE, 3000, None, "scheme 'active standby' has no processes here"),
    (UPSTREAM, 3000, Fault("kill", "primary", 3000), WHERE),
    (UPSTREAM, 3000, Fault("kill", "primary", 0), WHERE),
    (UPSTREAM, 3000, Fault("kill", "upstream", 30), WHERE),
    (UPSTREAM, 3000, Fault("melt", "primary", 30), "kind must name .* of NodeInjector .*'melt'"),
    *(
        (UPSTREAM, tuples, None, "tuples must be a whole number at least 0, got")
        for tuples in (-5, 10.5, "x")
    ),
)

# once, heartbeats of nan s ended healthy nodes, and an infinite patience waited for ever
test_times_that_cannot_be = refused(
    lambda name, value: deliver(UPSTREAM, 100, **{name: value}),
    *(
        (name, value, f"{name} must be above 0, got {value!r}")
        for name in ("ack_s", "heartbeat_s", "patience_s")
        for value in (0, math.nan, math.inf, "x")
    ),
)


def test_a_folder_whose_sockets_nobody_can_open_is_refused(tmp_path, monkeypatch):
    """Once, the error was asyncio's "AF_UNIX path too long"."""
    (folder := tmp_path / ("x" * 90)).mkdir()
    monkeypatch.setattr(processes.tempfile, "tempdir", str(folder))
    with pytest.raises(ValueError, match="TMPDIR must be short enough .*, got .*: set TMPDIR"):
        deliver(UPSTREAM, 100)
    assert not [*folder.iterdir()]


def test_a_process_that_does_not_end_is_not_waited_for():
    """Such as one that hangs in a system call."""

    class Endless:
        def kill(self):
            self.killed = True

        def wait(self, timeout):
            raise node_process.subprocess.TimeoutExpired("node", timeout)

    process = Endless()
    node_process.end_process(process, 0.1)
    assert process.killed
