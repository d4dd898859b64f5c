"""Primary or secondary killed for real: nothing lost, copies removed, order restored if needed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
import psutil
import pytest

from aftlib.spark.faults import Fault
from aftlib.upstream_backup import figures, processes
from aftlib.upstream_backup.experiments import beyond
from aftlib.upstream_backup.parameters import NODES, OTHER
from aftlib.upstream_backup.processes import deliver
from aftlib.upstream_backup.schemes import PROPOSED, UPSTREAM

pytestmark = pytest.mark.crash
TRIALS = 40 if os.environ.get("AFT_TRIALS") == "full" else 2
TUPLES = 3000
BOTH = pytest.mark.parametrize("scheme", [UPSTREAM, PROPOSED], ids=lambda s: s.name)
IN_TURN = [Fault("kill", "primary", 1000), Fault("kill", "secondary", 1800)]


def check(delivery, tuples=TUPLES):
    """Every result exactly once."""
    released = sorted(delivery.released)
    # not as lists: where pytest shows whole differences, it takes minutes over long ones
    assert np.array_equal(released, np.arange(tuples))


@pytest.fixture(autouse=True)
def started(monkeypatch):
    """The processes that a test starts, all of which must have ended after it."""
    nodes = []

    class Recorded(subprocess.Popen):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            nodes.append(self)

    monkeypatch.setattr(processes.subprocess, "Popen", Recorded)
    yield nodes
    assert all(process.returncode is not None for process in nodes)


@BOTH
@pytest.mark.parametrize("seed", range(TRIALS))
def test_a_killed_node(scheme, seed, once):
    chance = random.Random(f"{scheme.name} {seed}")
    kill = Fault("kill", NODES[seed % 2], chance.randrange(200, TUPLES - 200))
    delivery = deliver(scheme, TUPLES, [kill])
    check(delivery)
    assert len(delivery.requests) >= delivery.faults == 1
    once()


@BOTH
@pytest.mark.parametrize(
    "faults",
    [
        # in a row
        [("kill", "primary", 400), ("kill", "secondary", 1200), ("kill", "primary", 2000)],
        # taken for failed while it is stopped: it is killed, comes back, and can fail again
        [("pause", "primary", 400), ("kill", "primary", 1200)],
        # with the last results: neither is passed over
        [("kill", "primary", TUPLES - 3), ("kill", "secondary", TUPLES - 2)],
    ],
)
def test_several_failures(scheme, faults, once):
    delivery = deliver(scheme, TUPLES, [Fault(*fault) for fault in faults])
    check(delivery)
    assert len(delivery.requests) >= delivery.faults == len(faults)
    once()


@contextmanager
def pauses(started, chance):
    """Stop a node's process at random for .05 to .8 s, again and again."""
    over = threading.Event()

    def pause():
        while not over.wait(chance.uniform(0, 0.1)):
            # a snapshot: others are started meanwhile
            running = [process for process in [*started] if process.poll() is None]
            for process in chance.sample(running, min(1, len(running))):
                process.send_signal(signal.SIGSTOP)
                over.wait(chance.uniform(0.05, 0.8))
                process.send_signal(signal.SIGCONT)

    threads = [threading.Thread(target=pause) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@BOTH
@pytest.mark.parametrize("seed", range(TRIALS))
def test_pauses_of_the_nodes_hang_no_delivery(scheme, seed, once, started):
    """Once, 1 of 20 had a node process that was started while the delivery ended, and hung."""
    chance = random.Random(f"pauses {scheme.name} {seed}")
    kills = [
        Fault("kill", "primary", chance.randrange(200, TUPLES - 200)),
        Fault("kill", "secondary", TUPLES - 1),
    ]
    with pauses(started, chance):
        delivery = deliver(scheme, TUPLES, kills, patience_s=60)
    check(delivery)
    assert delivery.faults == 2
    once()


def test_without_removing_copies_the_check_fails(monkeypatch):
    """The first broken control.

    Nothing is acknowledged, so a node's whole queue is sent again when it fails. Both fail: one of
    them has sent results, whichever node was taken for failed before.
    """
    check(deliver(PROPOSED, TUPLES, IN_TURN, ack_s=600))
    monkeypatch.setattr(processes.Downstream, "is_new", lambda downstream, i: True)
    delivery = deliver(PROPOSED, TUPLES, IN_TURN, ack_s=600)
    assert (delivery.duplicates > 0, delivery.faults) == (True, 2)
    with pytest.raises(AssertionError):
        check(delivery)


@BOTH
def test_forgetting_before_the_ack_is_caught(scheme, monkeypatch):
    """The second broken control: the queue is trimmed when a tuple is sent.

    The node is killed to which the next batch goes, before the batch is sent.
    """

    def send(upstream, node, ids):
        processes.write_message(node.writer, {"ids": ids})

    def inject_next(system, fault):
        upstream = system.upstream
        turn = NODES[upstream.sent // processes.TURN % 2] if scheme.switching else upstream.active
        node = turn if turn in upstream.nodes else OTHER[turn]
        system.patience_s = 20  # the lost tuples never come
        inject(system, replace(fault, target=node))

    inject = processes._System.inject
    monkeypatch.setattr(processes.Upstream, "_send", send)
    monkeypatch.setattr(processes._System, "inject", inject_next)
    delivery = deliver(scheme, TUPLES, [Fault("kill", "primary", 1250)], patience_s=60)
    assert delivery.faults == 1
    with pytest.raises(AssertionError):
        check(delivery)


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux's")
def test_a_stopped_node_ends_with_its_coordinator(tmp_path):
    """Once, it stayed for ever when the coordinator was killed."""
    program = "from aftlib.upstream_backup import processes as p; p.deliver(p.UPSTREAM, 10**12)"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    coordinator = subprocess.Popen([sys.executable, "-c", program], env=environment)
    while not [*tmp_path.glob("*/primary-1")]:  # its socket, which it opens after the call
        assert coordinator.poll() is None
        time.sleep(0.01)
    nodes = psutil.Process(coordinator.pid).children()
    next(node for node in nodes if "primary" in node.cmdline()).suspend()
    coordinator.kill()
    coordinator.wait(timeout=500)
    deadline = time.monotonic() + 500
    while any(map(runs, nodes)):
        assert time.monotonic() < deadline, "a node outlives its coordinator"
        time.sleep(0.01)


def runs(process):
    """Whether a process has not ended; one that nobody has waited for yet is a zombie."""
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


@BOTH
def test_nobody_fails(scheme):
    delivery = deliver(scheme, TUPLES, heartbeat_s=600)
    check(delivery)
    assert (delivery.requests, delivery.faults, delivery.duplicates) == ((), 0, 0)


@pytest.mark.parametrize(
    ("does", "patience_s", "message"),
    [
        ("echo no such module >&2; exit 7", 30, "ended with status 7: no such module"),
        ("exec sleep 60", 0.3, "did not start within 0.3 s: no error output"),
    ],
    ids=["ends at once", "hangs"],
)
def test_a_node_that_does_not_start(does, patience_s, message, tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setattr(processes.sys, "executable", str(program))
    with pytest.raises(RuntimeError, match=f"the (primary|secondary) {message}"):
        deliver(UPSTREAM, TUPLES, patience_s=patience_s)


def test_kills_of_the_report():
    """Real kills beside the simulation of the same system."""
    kills = beyond.real_kills(1, seed=3)
    assert kills["scheme"].tolist() == ["upstream backup", "proposed"]
    assert (kills["lost"] == 0).all() and (kills["requests"] >= 1).all()
    assert (kills["unnoticed_ms"] > 0).all() and kills.notna().all(axis=None)
    undisturbed = kills[kills["requests"] == 1]  # nobody else was too slow to answer
    assert (undisturbed[["resent", "recovery_ms"]] > 0).all(axis=None)
    assert len(figures.real_kills(kills, "").data) == 8
