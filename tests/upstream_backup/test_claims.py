"""Each verdict of D4 comes out as recorded, and turns when the code or the data are wrong."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aftlib.upstream_backup import experiments, simulation
from aftlib.upstream_backup.claims import CLAIMS, SUMMARY
from aftlib.upstream_backup.experiments import Sweep, run_trial
from aftlib.upstream_backup.system import NODES, PROPOSED, SIMULATED_SCHEMES, UPSTREAM
from tests import judging

CASE = Sweep((200, 1000, 15_000), 12, seed=1)


def trials(*nodes, case=CASE):
    """As `recoveries`, in this process."""
    points = [
        ({"scheme": scheme.name, "rate": rate, "node": node, "trial": trial}, system, time)
        for rate in case.rates
        for scheme in SIMULATED_SCHEMES
        for node in nodes
        for trial, (system, time) in enumerate(case.drawn(rate))
    ]
    return pd.DataFrame(map(run_trial, points))


def make_frames():
    return {
        "outcomes": trials("primary"),
        "either": trials(*NODES),
        "ns3": experiments.compare_with_ns3(),
        "parts": experiments.tcp_parts(),
    }


@pytest.fixture(scope="module")
def frames():
    return make_frames()


def test_all_claims_come_out_as_recorded(frames):
    records = judging.judge(CLAIMS, frames)
    assert {id for id, record in records.items() if not record.as_recorded} == set()
    assert records["D4-4"].measured == pytest.approx(0.33, abs=0.005)
    assert records["D4-7"].measured == pytest.approx(6.6, abs=0.5)
    assert "at most 33% of the recovery gap" in SUMMARY.found.format_map(records)


def scaled(frame, measure, factor, scheme=PROPOSED, rate=None):
    rows = frame["scheme"] == scheme.name
    rows &= True if rate is None else frame["rate"] == rate
    return frame.assign(**{measure: frame[measure] * np.where(rows, factor, 1)})


def nagle_makes_it_slow(parts):
    return parts.assign(ns3_ms=parts["ns3_ms"].mask(parts["switch"] == "Nagle on", 200))


WRONG_DATA = [
    ("D4-1", "open", "outcomes", lambda rows: scaled(rows, "resent", 1.3, rate=200)),
    ("D4-1", "does not hold", "outcomes", lambda rows: scaled(rows, "resent", 3)),
    ("D4-2", "does not hold", "outcomes", lambda rows: scaled(rows, "resent", 5, UPSTREAM, 1000)),
    ("D4-2", "not run", "outcomes", lambda rows: rows[rows["rate"] > 1000]),
    ("D4-3", "does not hold", "outcomes", lambda rows: scaled(rows, "recovery_ms", 5)),
    ("D4-3", "open", "ns3", lambda ns3: ns3.assign(recovery_ms_error=0.2)),
    ("D4-4", "holds", "parts", nagle_makes_it_slow),
    ("D4-4", "not run", "parts", lambda parts: parts.assign(ms=parts["ms"] / 2)),
    ("D4-7", "holds", "outcomes", lambda rows: scaled(rows, "queue_at_crash", 0.05, UPSTREAM)),
    ("D4-7", "not run", "outcomes", lambda rows: rows[rows["rate"] > 1000]),
    ("D4-8", "does not hold", "either", lambda rows: rows[rows["node"] == "primary"]),
]


@pytest.mark.parametrize(("id", "expected", "name", "change"), WRONG_DATA)
def test_a_verdict_follows_its_data(id, expected, name, change, frames):
    assert judging.verdict(CLAIMS, frames | {name: change(frames[name])}, id) == expected


def everything_to_the_primary(parameters, times):
    return np.ones(len(times), dtype=bool)


ACKNOWLEDGED = simulation.acknowledged


def no_acks_from_the_secondary(parameters, route, time):
    return 0 if route.node == "secondary" else ACKNOWLEDGED(parameters, route, time)


def no_slow_start(arrival, service, window, echo_ns):
    return simulation.lindley(arrival, service)


WRONG_CODE = [
    ("D4-1", "does not hold", "primary_turn", everything_to_the_primary),
    ("D4-8", "does not hold", "acknowledged", no_acks_from_the_secondary),
    ("D4-4", "not run", "slow_start", no_slow_start),
]


@pytest.mark.parametrize(("id", "expected", "name", "wrong"), WRONG_CODE)
def test_a_verdict_turns_when_the_code_is_wrong(id, expected, name, wrong, monkeypatch):
    monkeypatch.setattr(simulation, name, wrong)
    assert judging.verdict(CLAIMS, make_frames(), id) == expected


def test_d4_3_and_d4_2_turn_when_recovery_is_wrong(frames, monkeypatch):
    wrong = property(lambda recovery: 0.5 * len(recovery.resent) ** 0)
    monkeypatch.setattr(simulation.Recovery, "recovery_ms", wrong)
    slow = {"outcomes": trials("primary"), "ns3": experiments.compare_with_ns3()}
    assert judging.verdict(CLAIMS, slow, "D4-3") != "holds"
    flat = trials("primary", case=replace(CASE, rates=(999, 1001)))
    assert judging.verdict(CLAIMS, frames | {"outcomes": flat}, "D4-2") == "does not hold"
