"""Primary or secondary killed for real: nothing lost, copies removed, order restored if needed."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from aftlib.upstream_backup import experiments, figures, processes
from aftlib.upstream_backup.parameters import NODES
from aftlib.upstream_backup.processes import NodeKill, deliver
from aftlib.upstream_backup.schemes import ACTIVE, PROPOSED, UPSTREAM

pytestmark = pytest.mark.crash
TRIALS = 40 if os.environ.get("AFT_TRIALS") == "full" else 2
TUPLES = 3000
BOTH = pytest.mark.parametrize("scheme", [UPSTREAM, PROPOSED], ids=lambda s: s.slug)


def check(delivery, ordered=False, tuples=TUPLES):
    """Every result exactly once, and in order where the operator needs it."""
    released = delivery.released if ordered else sorted(delivery.released)
    # not as lists: where pytest shows whole differences, it takes minutes over long ones
    assert np.array_equal(released, np.arange(tuples))
    assert len(set(delivery.arrived)) == tuples


@BOTH
@pytest.mark.parametrize("seed", range(TRIALS))
def test_a_killed_node(scheme, seed, once):
    chance = random.Random(f"{scheme.name} {seed}")
    kill, ordered = (
        NodeKill(chance.randrange(200, TUPLES - 200), NODES[seed % 2]),
        chance.random() < 0.5,
    )
    found = deliver(scheme, TUPLES, [kill], ordered=ordered)
    check(found, ordered)
    assert len(found.requests) >= found.kills == 1
    once()


@BOTH
def test_failures_in_a_row(scheme, once):
    kills = [NodeKill(400), NodeKill(1200, "secondary"), NodeKill(2000)]
    found = deliver(scheme, TUPLES, kills, ordered=True)
    check(found, ordered=True)
    assert len(found.requests) >= found.kills == 3
    once()


@BOTH
def test_a_node_that_stalls_is_fenced(scheme):
    """Taken for dead while it lives: it is killed for certain, comes back, and can die again."""
    found = deliver(scheme, TUPLES, [NodeKill(400, stalled=True), NodeKill(1200)], patience_s=10)
    check(found)
    assert len(found.requests) >= found.kills == 2


def test_failures_at_the_very_end():
    """Two in the last batch: neither is passed over."""
    found = deliver(PROPOSED, TUPLES, [NodeKill(TUPLES - 3), NodeKill(TUPLES - 2, "secondary")])
    check(found)
    assert found.kills == 2


def test_a_long_queue_is_sent_again():
    """Nothing is acknowledged: one message of more than asyncio's usual 64 KiB."""
    tuples = 14_000
    found = deliver(UPSTREAM, tuples, [NodeKill(12_000)], ack_s=600)
    assert (sum(len(r.resent) for r in found.requests) >= 12_000, found.kills) == (True, 1)
    check(found, tuples=tuples)


@BOTH
def test_without_removing_copies_the_check_fails(scheme, monkeypatch):
    """The first broken control; nothing is acknowledged, so everything is sent again."""
    check(deliver(scheme, TUPLES, [NodeKill(1250)], ack_s=600))
    monkeypatch.setattr(processes._Downstream, "is_new", lambda downstream, i: True)
    found = deliver(scheme, TUPLES, [NodeKill(1250)], ack_s=600)
    assert (found.duplicates > 0, found.kills) == (True, 1)
    with pytest.raises(AssertionError):
        check(found)


@BOTH
def test_forgetting_before_the_ack_is_caught(scheme, monkeypatch):
    """The second broken control: the queue is trimmed when a tuple is sent."""

    def send(upstream, name, ids):
        processes.write_line(upstream.writers[name], {"ids": ids})

    monkeypatch.setattr(processes._Upstream, "_send", send)
    found = deliver(scheme, TUPLES, [NodeKill(1250)], patience_s=5)
    assert found.kills == 1
    with pytest.raises(AssertionError):
        check(found)


def test_without_sorting_the_proposals_order_is_lost():
    """The third: what is sent again comes behind what went to the survivor."""
    found = deliver(PROPOSED, TUPLES, [NodeKill(1250)], ack_s=600)
    check(found)
    with pytest.raises(AssertionError):
        check(found, ordered=True)


@BOTH
def test_nobody_dies(scheme):
    # a busy machine may well let a node wait for longer than the usual heartbeat
    found = deliver(scheme, TUPLES, ordered=True, heartbeat_s=5)
    check(found, ordered=True)
    assert (found.requests, found.kills) == ((), 0)


@pytest.mark.parametrize(
    ("does", "patience_s", "said"),
    [("echo no such module >&2", 30, "no such module"), ("exec sleep 60", 0.3, "it said nothing")],
    ids=["ends at once", "hangs"],
)
def test_a_node_that_does_not_start(does, patience_s, said, tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setattr(processes.sys, "executable", str(program))
    with pytest.raises(RuntimeError, match=f"did not get ready within {patience_s} s: {said}"):
        deliver(UPSTREAM, TUPLES, patience_s=patience_s)


def test_kills_of_the_report():
    """Real kills beside the simulation of the same system."""
    found = experiments.real_kills(1, seed=3)
    assert found["scheme"].tolist() == ["upstream backup", "proposed"]
    assert (found["lost"] == 0).all()
    assert (found[["unnoticed_ms", "recovery_ms", "recovery_ms_simulated"]] > 0).all(axis=None)
    assert found["unnoticed_ms_simulated"].between(250, 500).all()
    one, half = found["resent_simulated"] / found["rate"]
    assert half == pytest.approx(one / 2, rel=0.1)
    assert len(figures.real_kills(found, "").data) == 4


def test_what_is_refused():
    with pytest.raises(ValueError, match="scheme 'active standby' has no processes here"):
        deliver(ACTIVE, TUPLES)
    with pytest.raises(ValueError, match="kills must strike a node inside 1 … 2999, got Node"):
        deliver(UPSTREAM, TUPLES, [NodeKill(3000)])
    with pytest.raises(ValueError, match="kills must strike a node"):
        deliver(UPSTREAM, TUPLES, [NodeKill(30, "upstream")])
