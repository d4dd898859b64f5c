"""Verdicts of the back-tests on each claim, and the mutants of the code under which they turn.

What figures and captions say of the same back-tests is tested here, too.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest

from aftlib.core.paths import DATA_SETS, project_root
from aftlib.guard.guard import Guard
from aftlib.notebook.claims import DOES_NOT_HOLD
from aftlib.notebook.texts import percent
from aftlib.sensor_plans import backtest, claims, figures
from aftlib.sensor_plans.backtest import ALWAYS, BASELINE, GUARD, HINDSIGHT
from aftlib.sensor_plans.experiments import (
    SAMPLES,
    TROUBLES,
    NotebookParameters,
    backtest_set,
    backtest_sets,
    trouble_shares,
    troubles,
)
from aftlib.sensor_plans.sensor_plan import Score
from tests import judging

DELTA = 0.05


class Remembering(Guard):
    """A guard that computes nothing for windows that a guard in the same state had before."""

    replayed = {}

    def replay(self, windows):
        key = (self.to_bytes(), windows.tobytes())
        if key not in self.replayed:
            history = super().replay(windows)
            self.replayed[key] = (history, copy.copy(self))
        history, after = self.replayed[key]
        self._guards = copy.copy(after)._guards
        return copy.deepcopy(history)


@pytest.fixture(scope="module")
def backtests():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backtest, "Guard", Remembering)
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
    class Mutant(Remembering):
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


def test_the_caption_of_real_sets_says_where_the_guard_loses(backtests):
    rows = [backtests["sets"][name] for name in ("beijing_pm25", "irish_wind")]
    text = figures.about_sets(rows).markdown
    assert "Always estimating errs too often on 1 of 2 rows" in text
    assert "fewer windows than hindsight on Beijing's stations (10 samples)." in text
    assert "on Irish wind (10 samples): 94.18 % of 558 certified windows" in text
    table = figures.compare_sets(rows).to_html()
    assert "+4.6" in table and "−4.6" in table and "64.6 %" in table


def test_troubles_are_drawn_with_and_without_the_guard(backtests):
    drawn = figures.troubles(trouble_shares(backtests["walks"]), 0.05)
    assert len(drawn.data) == 3 * 2 * 2
    assert {*TROUBLES} <= {note.text for note in drawn.layout.annotations}  # no "trouble=drift"


def test_the_guard_withdraws_where_the_baseline_model_goes_on(backtests):
    walks = backtests["walks"]
    parts = trouble_shares(walks)
    assert set(parts["trouble"]) == set(TROUBLES) and parts["window"].min() == 600
    late = parts[parts["window"] > 700].drop(columns="window")
    late = late.groupby(["trouble", "method"]).mean()
    for trouble in TROUBLES:
        assert late.loc[(trouble, BASELINE), "within"] < 0.75
        assert walks[trouble].share_of_bound <= 1
    assert late.loc[("drift", "guard"), "within"] > 0.95
    assert late.loc[("change of regime", "guard"), "certified"] < 0.1
