"""Verdicts of the back-tests on each claim, and the mutants of the code under which they turn."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.core.paths import DATA_SETS, project_root
from aftlib.guard.guard import Guard
from aftlib.notebook.claims import DOES_NOT_HOLD
from aftlib.notebook.texts import percent
from aftlib.sensor_plans import backtest, claims
from aftlib.sensor_plans.backtest import ALWAYS, GUARD, HINDSIGHT
from aftlib.sensor_plans.experiments import (
    SAMPLES,
    NotebookParameters,
    backtest_set,
    backtest_sets,
    troubles,
)
from aftlib.sensor_plans.sensor_plan import Score
from tests import judging

DELTA = 0.05


@pytest.fixture(scope="module")
def backtests():
    return {
        "sets": backtest_sets(DELTA),
        "small_windows": backtest_sets(DELTA, SAMPLES // 2),
        "walks": troubles(1200, DELTA, 1),
    }


def judge(backtests):
    return judging.judge(claims.CLAIMS, backtests)


def list_changed(backtests):
    """Return the verdicts that differ from the recorded ones, by claim."""
    return {id: record.verdict for id, record in judge(backtests).items() if not record.as_recorded}


def guard_with(change):
    class Mutant(Guard):
        def replay(self, windows):
            history = super().replay(windows)
            change(history)
            return history

    return Mutant


def certify(decision):
    return lambda history: history.decisions.fill(decision)


def estimates_too_high(history):
    history.estimate[:] += 0.5 * np.nanstd(history.estimate, axis=0)


def test_all_claims_come_out_as_recorded(backtests):
    assert list_changed(backtests) == {}


@pytest.mark.parametrize(
    ("change", "names", "changed"),
    [
        (certify(0), DATA_SETS, {"G-1": "not run", "G-3": "does not hold"}),
        (estimates_too_high, ["irish_wind"], {"G-1": "does not hold"}),
    ],
)
def test_a_guard_that_is_wrong_on_real_sets_is_noticed(
    backtests, change, names, changed, monkeypatch
):
    monkeypatch.setattr(backtest, "Guard", guard_with(change))
    wrong = {name: backtest_set(name, DELTA) for name in names}
    assert list_changed(backtests | {"sets": backtests["sets"] | wrong}) == changed


def test_troubles_and_adversaries_alone_can_exceed_the_bound(backtests, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(backtest, "Guard", guard_with(certify(2)))
        changed = list_changed(backtests | {"walks": troubles(1200, DELTA, 1)})
        assert changed == {"G-1": "does not hold"}
    monkeypatch.setattr(claims, "against_adversary", lambda delta, attacked: 1.01)
    assert list_changed(backtests) == {"G-1": "does not hold"}


def test_one_set_on_which_the_guard_certifies_too_little_decides(backtests):
    wind = backtests["sets"]["irish_wind"]
    lines = dict(wind.lines)
    lines[HINDSIGHT] = Score(HINDSIGHT, 0.3, 0.96)
    sets = backtests["sets"] | {"irish_wind": replace(wind, lines=lines)}
    record = judge(backtests | {"sets": sets})["G-3"]
    assert (record.verdict, record.measured) == ("does not hold", pytest.approx(0.2545, abs=1e-3))
    assert "(Irish wind, 10 samples a window)" in record.text
    assert "more than the model on 1 of 4" in record.sensitivity


def test_rows_name_what_the_guard_does_not_buy(backtests):
    records = judge(backtests)
    assert records["G-3"].text.startswith("at most 7.1 % of the windows")
    sensitivity = records["G-3"].sensitivity
    assert sensitivity.startswith("With 10 samples at most 4.6 % (Beijing's stations)")
    assert (
        "certifies 95 % of the windows of Beijing's stations, 52 % of the windows of Chicago's "
        "riders, 5 % of the windows of Irish wind, 67 % of the windows of SimBench's load profiles."
    ) in sensitivity
    assert "more than the model on 2 of 4 sets, and always estimating suffices on 1" in sensitivity
    assert "without the slack for Irish wind, 94.2 % of 558" in records["G-1"].sensitivity


def test_the_box_follows_the_verdicts(backtests):
    records = judge(backtests)
    box = claims.summarize(records, NotebookParameters())
    assert box.found.startswith(
        f"It holds that on each of {records['G-1'].n} streams at most that many are "
        "wrong, and that on four real sets it certifies at most 7.1 %"
    )
    assert records["G-1"].n == len(backtests["sets"]) + len(backtests["walks"]) + 2
    words = sum(len(text.split()) for text in vars(box).values())
    assert words <= 80
    turned = {"G-1": records["G-1"].model_copy(update={"verdict": DOES_NOT_HOLD})}
    box = claims.summarize(records | turned, NotebookParameters(delta=0.1))
    assert "It does not hold that on each of 9 streams at most that many" in box.found
    assert "δ = 0.1" in box.claimed


def test_the_page_of_the_guard_says_where_it_loses_and_where_the_slack_shows(backtests):
    page = (project_root() / "docs" / "documents" / "guard.md").read_text(encoding="utf-8")
    sets = backtests["sets"]
    assert [name for name, each in sets.items() if each.always_suffices] == ["beijing_pm25"]
    lines = sets["beijing_pm25"].lines
    certified = percent(lines[GUARD].certified, 1)
    within = percent(lines[ALWAYS].within, 1)
    text = " ".join(page.split())
    assert f"({certified} certified, where always estimating is within ε in {within})" in text
    assert f"windows ({sets['irish_wind'].guarantees:,}, all lengths" in text
