"""D3's verdicts in a world where its claims hold, and how each turns."""

import itertools

import numpy as np
import pandas as pd
import pytest

from aftlib.documents.shared_state.claims import CLAIMS, summarize
from aftlib.documents.shared_state.experiments import NotebookParameters
from aftlib.documents.shared_state.throughput import BARRIER, ONE, TEN
from aftlib.notebook.claims import Finding
from aftlib.notebook.scorecard import ClaimRecord
from tests.judging import judge, list_changed, verdict

TURNS = range(5)
NOISE = 1 + np.array([0.01, -0.01, 0.02, -0.02, 0.0])


def timed(names, speeds, value="throughput", shift=0):
    """Speeds by the columns `names` in five turns; with `shift` 1 their ratios are noisy, too."""
    rows = [
        (*case, turn, speed * NOISE[turn - shift * place])
        for place, (case, speed) in enumerate(speeds.items())
        for turn in TURNS
    ]
    return pd.DataFrame(rows, columns=[*names, "turn", value])


def measured(shuffled=1.0, shared=2.0, skewed=1.5, receivers=0.4):
    """Throughput of the strategies; skew multiplies that of late global by `skewed`."""
    speeds = {}
    for skew in (0.0, 1.4, 2.0):
        fast = shared * (skewed if skew else 1)
        strategies = {"upfront": shuffled, "late local": 1.2 * fast, "late global": fast}
        speeds |= {(skew, name): speed for name, speed in strategies.items()}
    frame = timed(["skew", "strategy"], speeds)
    return frame.assign(sender_s=1 - receivers, receiver_s=receivers)


def grown(factor=1.7):
    return timed(["tasks"], {(1,): 1, (2,): factor}, shift=1)


def shuffles(uniform=1.7, skewed=0.9):
    speeds = {(0.0, 1): 1, (0.0, 2): uniform, (1.4, 1): 1, (1.4, 2): skewed}
    return timed(["skew", "tasks"], speeds, shift=1)


def killed(wrong=0, disturbed=0, broken=7, behind=3000):
    rows = [("task", "read"), ("server", "flushed"), ("server, offsets apart", "between")]
    frame = pd.DataFrame(rows, columns=["killed", "point"]).assign(turn=0, again=4000)
    return frame.assign(
        wrong=[0, wrong, broken], disturbed=[disturbed, 0, 0], behind_a_shuffle=behind
    )


def stored():
    return killed()[["killed", "point", "wrong"]].assign(kills=75, date="2026-11-28")


def flushes(factor=1.3, fewer=1.4):
    return timed(["flush"], {(TEN,): 1, (ONE,): factor, (BARRIER,): factor * fewer}, "per_s")


def engines(names=("flink keyed", "flink shared"), growth=1.5):
    cases = itertools.product(names, (1, 2), (0.0, 1.4, 2.0))
    rows = [(*case, 10, (1 + case[2]) * growth ** (case[1] - 1)) for case in cases]
    return pd.DataFrame(rows, columns=["engine", "tasks", "skew", "tuples", "throughput"])


def searched(gain=1.4, few=(0.9, 1.4, 1.4)):
    """Skew gains with many keys, and with 1,000 keys by the factors `few` of the turns."""
    rows = []
    for keys, factors in ((1_000, few), (100_000, (1.2,) * 3), (1_000_000, (gain,) * 3)):
        for skew, turn in itertools.product((0.0, 1.2, 1.4), range(3)):
            rows.append((keys, skew, turn, factors[turn] if skew else 1.0))
    return pd.DataFrame(rows, columns=["keys", "skew", "turn", "throughput"])


def world(**changed):
    return {
        "p": NotebookParameters(),
        "measured": measured(),
        "grown": grown(),
        "shuffles": shuffles(),
        "searched": searched(),
        "killed": killed(),
        "stored_kills": stored(),
        "flushes": flushes(),
        "engines": engines(),
    } | changed


def test_all_is_as_recorded_also_without_stored_runs():
    assert list_changed(CLAIMS, world()) == set()
    assert list_changed(CLAIMS, world(engines=engines(()), stored_kills=stored()[:0])) == set()


@pytest.mark.parametrize(
    ("id", "changed", "turned"),
    [
        ("D3-1", {"shuffles": shuffles(0.9)}, "does not hold"),
        ("D3-1", {"shuffles": shuffles(1.0)}, "open"),
        ("D3-1", {"engines": engines(growth=0.9)}, "does not hold"),
        ("D3-2", {"measured": measured(receivers=0.05)}, "does not hold"),
        ("D3-4", {"measured": measured(skewed=0.8)}, "does not hold"),
        ("D3-4", {"p": NotebookParameters(keys=10_000)}, "open"),
        ("D3-4", {"p": NotebookParameters(tuples=20_000_000)}, "open"),
        ("D3-5", {"killed": killed(disturbed=1)}, "does not hold"),
        ("D3-5", {"killed": killed(behind=0)}, "open"),
        ("D3-7", {"measured": measured(receivers=0.2)}, "does not hold"),
        ("D3-8", {"killed": killed(wrong=1)}, "does not hold"),
        ("D3-8", {"killed": killed(broken=0)}, "open"),
        ("D3-9", {"measured": measured(shuffled=4.0)}, "does not hold"),
        ("D3-10", {"flushes": flushes(0.9)}, "does not hold"),
    ],
)
def test_a_verdict_turns_with_its_evidence(id, changed, turned):
    assert verdict(CLAIMS, world(**changed), id) == turned


def test_a_single_turn_has_no_interval():
    one = {name: frame[frame["turn"] == 0] for name, frame in world().items()
           if name in ("measured", "shuffles", "grown", "flushes")}  # fmt: skip
    records = judge(CLAIMS, world(**one))
    assert [records[id].interval for id in ("D3-1", "D3-4", "D3-9", "D3-10")] == [None] * 4


@pytest.mark.parametrize(
    ("id", "keys", "named"), [("D3-2", 100_000, 16), ("D3-7", 100_000, 24), ("D3-7", 500, 23)]
)
def test_a_computed_claim_holds_from_the_share_that_its_condition_names(id, keys, named):
    p = NotebookParameters(keys=keys)
    condition = judge(CLAIMS, world(p=p), id)[id].condition
    assert condition.endswith(f"receivers bear at least {named} % of a tuple's cost")
    verdicts = [
        verdict(CLAIMS, world(p=p, measured=measured(receivers=share / 100)), id)
        for share in (named - 1, named)
    ]
    assert verdicts == ["does not hold", "holds if"]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({}, "one key per 20 tuples (100,000 keys in 2,000,000)"),
        ({"searched": searched(few=(1.1, 1.1, 1.1))}, "one key per 2,000 tuples (1,000 keys in"),
        ({"p": NotebookParameters(tuples=10_000_000)}, "one key per 100 tuples (100,000 keys in"),
        ({"p": NotebookParameters(keys=50_000)}, "one key per 40 tuples (50,000 keys in"),
    ],
)
def test_skew_needs_the_keys_with_which_it_is_faster_in_every_turn(changed, named):
    record = judge(CLAIMS, world(**changed), "D3-4")["D3-4"]
    assert f"there is at least {named}" in record.condition
    assert record.condition.endswith("and the skew is at least 1.4")


def test_conditions_name_the_tasks_of_the_run():
    assert judge(CLAIMS, world(), "D3-1")["D3-1"].condition == "keys are uniform, from 1 to 2 tasks"
    more = shuffles().replace({"tasks": {2: 4}})
    record = judge(CLAIMS, world(shuffles=more), "D3-1")["D3-1"]
    assert record.condition == "keys are uniform, from 1 to 4 tasks"
    assert record.counted == "turns of 1 and 4 tasks"


def test_d3_7_names_the_bounds_with_the_same_verdict():
    text = judge(CLAIMS, world(measured=measured(receivers=0.3)), "D3-7")["D3-7"].sensitivity
    assert "With bounds from 1.11 to 1.35 receivers must bear 26 to 22 %." in text


def test_kills_say_how_little_they_exclude_and_what_was_killed():
    kills = pd.concat([killed(wrong=3), killed().iloc[1:2]])
    records = judge(CLAIMS, world(killed=kills), "D3-5", "D3-8")
    stored_text = "Stored run of 2026-11-28: 0 of 150 kills wrong (at most 2.4 %)."
    assert records["D3-8"].sensitivity == stored_text
    assert records["D3-8"].text == "3 wrong sums; 1 of 3 kills wrong (at most 90.6 %)"
    assert {record.counted for record in records.values()} == {
        "kills: 1 stopped threads, 2 killed servers"
    }


@pytest.mark.parametrize(("times", "opening"), [(3.0, "It holds"), (0.5, "It does not hold")])
def test_the_box_follows_from_verdicts_and_values(times, opening):
    (claim,) = [claim for claim in CLAIMS if claim.id == "D3-9"]
    record = ClaimRecord.of(claim, Finding(times))
    box = summarize({"D3-9": record}, NotebookParameters())
    assert box.found == (
        f"{opening} that shared state has at least {times:.2f} times a shuffle's throughput under "
        "skew."
    )
    assert box.limits == "The document names neither keys nor costs."
    skewed = record.model_copy(update={"id": "D3-4", "verdict": "holds if"})
    box = summarize({"D3-9": record, "D3-4": skewed}, NotebookParameters())
    assert box.limits == "Skew makes it faster only with many keys (D3-4)."


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("D3-1", "Skewed keys: × 0.90 at skew 1.4."),
        ("D3-1", "Flink's shuffle, stored: × 1.50 uniform"),
        ("D3-1", "Shared table: × 1.70 here, × 1.50 in Flink's"),
        ("D3-4", "With 1,000,000 keys: × 1.40 at skew 1.2, × 1.40"),
        ("D3-4", "the same point varied: × 1.20 to 1.50."),
        ("D3-4", "100,000,000 tuples, and more than 1,000,000 keys, were"),
        ("D3-7", "With bounds from"),
        ("D3-9", "The least gain, at skew 1.4."),
        ("D3-9", "Uniform keys: × 2.00; in Flink × 1.00."),
        ("D3-9", "late local) has × 1.20 the proposal's"),
        ("D3-10", "a further × 1.40, together × 1.82"),
    ],
)
def test_a_row_has_the_numbers_of_the_run(id, expected):
    assert expected in judge(CLAIMS, world(), id)[id].sensitivity
