"""Each verdict of D4 comes out as recorded, and turns when the code or the data are wrong."""

import re

import numpy as np
import pandas as pd
import pytest

from aftlib.documents.upstream_backup import simulation, stored_runs
from aftlib.documents.upstream_backup.claims import CLAIMS, summarize
from aftlib.documents.upstream_backup.experiments import NotebookParameters, list_trials, run_trial
from aftlib.documents.upstream_backup.system import NODES, PROPOSED, UPSTREAM
from tests import judging

P = NotebookParameters(rates=[200, 1000, 5000, 15_000], trials=12)


def trials(*nodes):
    """As `recoveries`, in this process."""
    return pd.DataFrame(map(run_trial, list_trials(P, nodes)))


def make_frames():
    return {
        "outcomes": trials("primary"),
        "either": trials(*NODES),
        "ns3": stored_runs.compare_with_ns3(),
        "parts": stored_runs.tcp_parts(),
        "p": P,
    }


@pytest.fixture(scope="module")
def frames():
    return make_frames()


def test_all_claims_come_out_as_recorded(frames):
    assert judging.list_changed(CLAIMS, frames) == set()


def unchanged(frames):
    return {}


def without(rate):
    return lambda frames: {"outcomes": frames["outcomes"][frames["outcomes"]["rate"] != rate]}


def slow_acks(frames):
    return {"p": P.model_copy(update={"ack_ms": 100.0})}


@pytest.mark.parametrize(
    ("id", "change", "field", "expected"),
    [
        ("D4-1", unchanged, "condition", "the primary fails"),
        ("D4-2", unchanged, "condition", "the primary fails, and fig. 5 reaches 10,000 tuples/s"),
        ("D4-2", without(1000), "condition", "fig. 5 reaches 2,000 tuples/s"),
        ("D4-2", unchanged, "text", "0.0665 of the largest difference: 87 tuples at 1,000/s"),
        ("D4-2", unchanged, "text", "1,310 at 15,000/s"),
        ("D4-3", unchanged, "sensitivity", "at most 0.44 at 8 rates from 25 to 20,000 tuples/s."),
        ("D4-4", unchanged, "text", "65 % at 100/s, 39 % at 200/s, 1.3 % at 500/s, 0 % at 1,000/s"),
        ("D4-4", unchanged, "sensitivity", "100 tuples/s; at 50 and 100 tuples/s if TCP delays"),
        ("D4-4", unchanged, "sensitivity", "at none of these rates without delays"),
        ("D4-4", unchanged, "sensitivity", "round trip (10.1 ms) beside the handshake's 10.1 ms"),
        ("D4-4", unchanged, "sensitivity", "first window then make 87 % to 98 % of the gap"),
        ("D4-7", unchanged, "sensitivity", "queue is at most 1 below 30.8, so at D4-4's 25/s."),
        ("D4-7", unchanged, "sensitivity", "32.5 ms for its ACK on average, and at most 45 ms."),
        ("D4-7", slow_acks, "sensitivity", "the mean queue is at most 1 below 14.3."),
    ],
)
def test_a_sentence_has_the_numbers_of_the_run(id, change, field, expected, frames):
    record = judging.judge(CLAIMS, frames | change(frames), id)[id]
    assert expected in getattr(record, field)


def test_d4_3_names_the_times_if_either_node_fails(frames):
    times = []
    for factor in (1, 2):
        either = scaled(frames["either"], "recovery_ms", factor)
        text = judging.judge(CLAIMS, frames | {"either": either}, "D4-3")["D4-3"].sensitivity
        times += map(float, re.findall(r"either node fails: ([\d.]+) to", text))
    assert times[1] == pytest.approx(2 * times[0], abs=0.02)


def test_the_box_follows_the_verdicts(frames):
    records = judging.judge(CLAIMS, frames)
    box = summarize(records, P)
    replays = "It holds that it replays 0.52 times upstream backup's tuples if the primary fails."
    assert replays in box.found
    assert "It does not hold that Nagle's algorithm" in box.found
    assert sum(len(text.split()) for text in vars(box).values()) <= 76
    turned = {"D4-4": records["D4-4"].model_copy(update={"verdict": "holds"})}
    assert "and that Nagle's algorithm" in summarize(records | turned, P).found
    with pytest.raises(KeyError):
        summarize({}, P)


def scaled(frame, measure, factor, scheme=PROPOSED, rate=None):
    rows = frame["scheme"] == scheme.name
    rows &= True if rate is None else frame["rate"] == rate
    return frame.assign(**{measure: frame[measure] * np.where(rows, factor, 1)})


def nagle_makes_it_slow(parts, acknowledgements=stored_runs.DELAYED):
    rows = (parts["switch"] == "Nagle on") & (parts["acknowledgements"] == acknowledgements)
    return parts.assign(ns3_ms=parts["ns3_ms"].mask(rows, 200))


WRONG_DATA = [
    ("D4-1", "open", "outcomes", lambda rows: scaled(rows, "resent", 1.3, rate=200)),
    ("D4-1", "does not hold", "outcomes", lambda rows: scaled(rows, "resent", 3)),
    ("D4-2", "does not hold", "outcomes", lambda rows: scaled(rows, "resent", 5, UPSTREAM, 1000)),
    ("D4-2", "not run", "outcomes", lambda rows: rows[rows["rate"] > 1000]),
    ("D4-3", "does not hold", "outcomes", lambda rows: scaled(rows, "recovery_ms", 5)),
    ("D4-3", "open", "ns3", lambda ns3: ns3.assign(recovery_ms_error=0.2)),
    ("D4-2", "does not hold", "outcomes", lambda rows: rows[rows["rate"] <= 5000]),
    ("D4-2", "does not hold", "outcomes", lambda rows: scaled(rows, "resent", 10, UPSTREAM, 5000)),
    ("D4-4", "holds", "parts", nagle_makes_it_slow),
    ("D4-4", "does not hold", "parts", lambda parts: nagle_makes_it_slow(parts, "at once")),
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


def test_d4_3_turns_when_recovery_takes_equally_long(frames, monkeypatch):
    monkeypatch.setattr(simulation.Recovery, "recovery_ms", property(lambda recovery: 0.5))
    slow = {"outcomes": trials("primary"), "ns3": stored_runs.compare_with_ns3()}
    assert judging.verdict(CLAIMS, frames | slow, "D4-3") != "holds"
