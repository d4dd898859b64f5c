"""The shuffle's imbalance and growth against counting by hand, and runs on emulated cores."""

import socket
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from aftlib.shared_state import paced
from aftlib.shared_state.paced import SLICES, Clock, PacedRun, hash_keys, run_paced, split, unsplit
from aftlib.shared_state.scaling import largest_share, shuffled_growth
from aftlib.shared_state.tuplelog import TupleStream


@pytest.mark.parametrize(
    ("skew", "expected"),
    [(1.2, (2.18, 5.27, 19.4)), (1.4, (3.01, 8.11, 31.5)), (2.0, (4.97, 14.6, 58.4))],
)
def test_imbalance_is_the_digests(skew, expected):
    shares, ranks = TupleStream(1, skew=skew).shares, np.arange(100_000)
    imbalances = [p * largest_share(shares, ranks, p) for p in (8, 24, 96)]
    assert imbalances == pytest.approx(expected, rel=0.02)


def test_growth_of_a_shuffle_by_hand():
    even = np.full(24, 1 / 24)
    assert shuffled_growth(even, np.arange(24), 1.0, 1.0) == pytest.approx(3)
    one = np.array([1.0])
    assert shuffled_growth(one, np.array([5]), read_s=1.0, receive_s=1.0) == 1
    # senders limit 8 tasks (1/8), the one receiver limits 24 tasks (1/16)
    assert shuffled_growth(one, np.array([5]), read_s=1.0, receive_s=1 / 16) == 2


def test_every_turn_has_a_hash_function_of_its_own():
    assert (hash_keys(1_000, 1) == hash_keys(1_000, 1)).all()
    assert (hash_keys(1_000, 1) != hash_keys(1_000, 2)).mean() > 0.99


def test_tuples_reach_the_task_of_their_key():
    rng = np.random.default_rng(1)
    block = rng.integers(0, 50, (3, 1_000))
    parts = [unsplit(message) for message in split(block, block[1] % 4, 4)]
    assert [np.unique(part[1] % 4).tolist() for part in parts] == [[0], [1], [2], [3]]
    assert sorted(map(tuple, np.concatenate(parts, axis=1).T)) == sorted(map(tuple, block.T))


def test_a_late_process_makes_up_for_its_delay(monkeypatch):
    now, slept = [100.0], []
    time = SimpleNamespace(monotonic=lambda: now[0], sleep=slept.append)
    monkeypatch.setattr(paced, "time", time)  # other threads keep theirs
    clock = Clock(100.0)
    now[0] = 103.0
    clock.spend(2.0)  # due at 102
    assert (slept, clock.behind_s) == ([0.0], 1.0)
    clock.spend(2.0)  # due at 104
    assert (slept[1:], clock.behind_s) == ([1.0], 0.0)
    now[0] = 110.0
    clock.resume()  # after a wait for others it makes up for nothing
    clock.spend(2.0)
    assert slept[2:] == [2.0]


def test_a_full_receiver_holds_the_sender_up(monkeypatch):
    time = SimpleNamespace(monotonic=lambda: 5.0, sleep=lambda seconds: None)
    monkeypatch.setattr(paced, "time", time)
    outgoing, incoming = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    clock = Clock(1.0)
    with outgoing, incoming:
        paced.send_all(outgoing, b"x", clock)
        assert incoming.recv(9) == b"x"
    clock.spend(0.0)
    assert clock.behind_s == 4.0


def test_late_tasks_have_every_key_of_the_tuples_that_they_stand_for(monkeypatch):
    monkeypatch.setattr(paced, "start_process", lambda work: None)
    run = PacedRun("late", 24, 1.4, 10_000, 10**7, 1.0)
    emulation = paced.Emulation([run])
    emulation._draw(run)
    keys = emulation._parts.reshape(3, -1)[1].reshape(SLICES, run.rows)
    expected = -np.expm1(-(10**7 / SLICES) * run.stream.shares).sum()
    assert np.mean([len(np.unique(part)) for part in keys]) == pytest.approx(expected, rel=0.01)
    shuffled = replace(run, design="shuffle")  # which has the skew of the stream
    emulation._draw(shuffled)
    keys = emulation._parts.reshape(3, -1)[1]
    most_frequent = (keys == run.stream.ids[0]).mean()
    assert most_frequent == pytest.approx(run.stream.shares[0], rel=0.02)


def test_emulated_cores_sum_every_tuple():
    late, shuffle = run_paced(
        [PacedRun(design, 4, 1.4, 100, 10**6, 1.0) for design in ("late", "shuffle")]
    )
    for run in (late, shuffle):
        assert run["seconds"] > 0 and run["cpu_share"] > 0
    assert late["receive_ns"] < shuffle["receive_ns"]
