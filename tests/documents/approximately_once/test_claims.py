"""What the grid says about each claim, and changes of it under which its verdict turns."""

import re
from functools import partial

import numpy as np
import pytest

from aftlib.core.generators import block_model
from aftlib.documents.approximately_once import experiments
from aftlib.documents.approximately_once.claims import CLAIMS, summarize
from aftlib.documents.approximately_once.error_rates import RANDOM
from aftlib.documents.approximately_once.experiments import NotebookParameters
from aftlib.notebook.claims import DOES_NOT_HOLD, HOLDS, NOT_RUN, OPEN
from tests import judging

SETTINGS = {
    "workers": [2, 3, 4, 6, 8, 12, 24, 60],
    "epsilons": [0.65, 0.7, 0.8, 1.0, 1.96],
    "rows": 2000,
    "draws": 3,
}


@pytest.fixture(scope="module", autouse=True)
def without_spark():
    """Points run here, so that changes made here count in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "sweep", lambda spark, work, points: [work(p) for p in points])
        yield


@pytest.fixture(scope="module")
def grid():
    return experiments.grid(None, NotebookParameters(**SETTINGS))


@pytest.fixture(scope="module")
def averaged():
    return experiments.averaged_grid(None, NotebookParameters(**SETTINGS))


@pytest.fixture(scope="module")
def real():
    return experiments.real_grid(experiments.project_tables(), 0.05, 1)


@pytest.fixture(scope="module")
def judge(averaged, real):
    def judge(grid, **other):
        frames = {"grid": grid, "averaged": averaged, "real": real}
        frames["parameters"] = NotebookParameters(**SETTINGS)
        return judging.judge(CLAIMS, frames | other)

    return judge


@pytest.fixture(scope="module")
def verdicts(judge):
    def verdicts(grid, **other):
        return {id: record.verdict for id, record in judge(grid, **other).items()}

    return verdicts


def replaced(grid, other):
    """The grid if greedy gave the same assignments as another method."""
    rows = grid[(grid["method"] == other) & (grid["draw"] == 0)]
    columns = ["estimable", "rate", "largest", "everyone", "measured", "error", "z"]
    values = rows.set_index(["workers", "epsilon"])[columns]
    changed = grid.copy()
    greedy = changed["method"] == "greedy"
    at = list(zip(changed.loc[greedy, "workers"], changed.loc[greedy, "epsilon"], strict=True))
    changed.loc[greedy, columns] = values.loc[at].to_numpy()
    return changed


def scaled(grid, method, factor, column="rate"):
    """The grid if a method had so many times its rate."""
    rates = grid[column].where(grid["method"] != method, grid[column] * factor)
    return grid.assign(**{column: rates})


def without_growth(grid):
    """The grid if greedy had at most two estimable workers."""
    few = np.minimum(grid["estimable"], 2)
    return grid.assign(estimable=grid["estimable"].where(grid["method"] != "greedy", few))


def above_delta(grid):
    """The grid if some rates of estimable workers were above δ."""
    return grid.assign(largest=grid["largest"] * 1.01, rate=grid["rate"] * 1.01)


def test_all_claims_come_out_as_recorded(grid, verdicts):
    assert verdicts(grid) == {claim.id: claim.recorded for claim in CLAIMS}


@pytest.mark.parametrize(
    ("change", "turns"),
    [
        (partial(replaced, other="h-best"), {"D1-1": DOES_NOT_HOLD, "D1-4": DOES_NOT_HOLD}),
        (partial(replaced, other="h-worst"), {"D1-1": DOES_NOT_HOLD}),
        (partial(replaced, other=RANDOM), {"D1-1": HOLDS, "D1-4": HOLDS}),
        (without_growth, {"D1-2": DOES_NOT_HOLD}),
        (above_delta, {"D1-3": DOES_NOT_HOLD, "D1-4": DOES_NOT_HOLD}),
        (partial(scaled, method="greedy", factor=0.5), {"D1-4": DOES_NOT_HOLD}),
        (partial(scaled, method=RANDOM, factor=3), {"D1-5": HOLDS}),
    ],
    ids=lambda value: "-".join(sorted(value)) if isinstance(value, dict) else "",
)
def test_a_change_turns_its_verdicts(grid, change, turns, verdicts):
    changed = verdicts(change(grid))
    assert {id: changed[id] for id in turns} == turns


def test_the_share_of_the_lead_is_the_one_of_the_sums(grid, judge):
    sums = grid[grid["draw"] == 0].groupby("method")["estimable"].sum()
    record = judge(grid)["D1-1"]
    lead = (sums["greedy"] - sums["h-worst"]) / (sums["h-best"] - sums["h-worst"])
    assert record.measured == pytest.approx(lead)


def test_an_h_best_that_differs_from_the_closed_form_leaves_d1_2_open(grid, verdicts):
    assert verdicts(grid, parameters=NotebookParameters(**SETTINGS, blocks=20))["D1-2"] == OPEN


def test_samples_of_another_covariance_leave_the_rates_open(grid, monkeypatch, verdicts):
    true = experiments.draw

    def other_data(model, rows, seed):
        return true(block_model(covariance=0.85), rows, seed)

    monkeypatch.setattr(experiments, "draw", other_data)
    few = {"workers": [6, 12], "epsilons": [0.7, 0.8]}
    other = experiments.grid(None, NotebookParameters(**SETTINGS | few))
    changed = verdicts(other)
    assert changed["D1-3"] == changed["D1-4"] == OPEN
    same = grid[grid["workers"].isin(few["workers"]) & grid["epsilon"].isin(few["epsilons"])]
    assert verdicts(same)["D1-3"] == HOLDS
    np.testing.assert_array_equal(other["rate"], same["rate"])


def test_where_nothing_is_estimable_nothing_is_judged(grid, verdicts):
    columns = ["rate", "largest", "measured", "error", "first", "z"]
    empty = grid.assign(estimable=0, **dict.fromkeys(columns, np.nan))
    assert set(verdicts(empty).values()) == {NOT_RUN}
    assert verdicts(grid[grid["workers"] == 6])["D1-2"] == NOT_RUN


def sentences(grid, judge):
    return summarize(judge(grid), NotebookParameters(**SETTINGS)).found


def test_the_box_says_what_the_verdicts_say(grid, judge):
    box = summarize(judge(grid), NotebookParameters(**SETTINGS))
    assert len(re.findall(r"\S*\w\S*", " ".join(vars(box).values()))) <= 75
    usual = box.found
    assert usual.startswith("It holds that error rates stay within δ, and that greedy has most")
    assert "of h-best's lead over h-worst in estimable workers, " in usual
    assert "It does not hold that it errs far less often: 1." in usual
    broken = sentences(grid.assign(largest=2 * grid["largest"]), judge)
    assert "It does not hold that error rates stay within δ" in broken
    assert "and that it errs far less often" in sentences(scaled(grid, RANDOM, 3), judge)
    equal = sentences(replaced(grid, "h-best"), judge)
    assert "It does not hold that greedy has most, not all: 100 % of h-best's lead" in equal


@pytest.mark.parametrize(
    ("many", "words", "verdict"),
    [(60, "less than", "Reversed"), (0, "no less than", "The same")],
)
def test_d1_1_says_whether_chance_does_better(grid, judge, many, words, verdict):
    estimable = grid["estimable"].where(grid["method"] != RANDOM, many)
    record = judge(grid.assign(estimable=estimable))["D1-1"]
    lead = f"of h-best's lead over h-worst in estimable workers, {words} a random assignment's "
    assert lead in record.text
    assert f"{verdict} if 'efficiently' means better than chance" in record.sensitivity


def test_bounds_with_the_same_verdict_follow_from_the_number(grid, judge):
    usual = judge(grid)
    for id in ("D1-1", "D1-2", "D1-5"):
        said = re.search(r"Any bound below ([\d.]+)( %)? gives the same", usual[id].sensitivity)
        bound = float(said[1]) / (100 if said[2] else 1)
        assert bound <= usual[id].measured + 1e-9 < bound + 0.01 + 1e-6
    far = judge(scaled(grid, "greedy", 0.1))["D1-5"]
    bound = float(re.search(r"Any bound above ([\d.]+) gives", far.sensitivity)[1])
    assert bound - 0.01 - 1e-6 < far.measured <= bound + 1e-9


def test_d1_2_says_that_h_worst_grows_as_fast_and_where_nothing_is_estimable(grid, judge):
    usual = judge(grid)["D1-2"].sensitivity
    assert "so the slope does not tell assignments apart." in usual and "smallest" not in usual
    worst = grid["estimable"].where(grid["method"] != "h-worst", 1)
    assert "tell assignments apart" not in judge(grid.assign(estimable=worst))["D1-2"].sensitivity
    none = grid.assign(estimable=grid["estimable"].where(grid["epsilon"] > 0.65, 0))
    assert "At 1 of 5 values of ε, the smallest," in judge(none)["D1-2"].sensitivity


def test_real_sensors_are_named_where_greedy_reverses(grid, real, judge):
    usual = judge(grid)
    assert "is reversed on 4 of 4 sets of real sensors" in usual["D1-1"].sensitivity
    assert "on 2 of 4 sets by the model, and on 1 as measured (" in usual["D1-4"].sensitivity
    against = experiments.compare_real(real)
    for id, column, form in (
        ("D1-1", "more", "{:.2f}"),
        ("D1-4", "gap", "{:.4f}"),
        ("D1-4", "measured_gap", "{:.4f}"),
        ("D1-5", "ratio", "{:.2f}"),
        ("D1-5", "measured_ratio", "{:.2f}"),
    ):
        number = form.format(against.loc["irish_wind", column]).replace("-", "−")
        assert f"Irish wind {number}" in usual[id].sensitivity, id
        assert experiments.list_by_set(against[column], form) in usual[id].sensitivity, id
    equal = judge(grid, real=real.assign(estimable=1, rate=0.01, measured=0.02))
    assert "is reversed on 0 of 4 sets" in equal["D1-1"].sensitivity
    assert "on 0 of 4 sets by the model, and on 0 as measured (" in equal["D1-4"].sensitivity


def test_d1_5_gives_the_measured_ratio_of_real_sensors_beside_the_predicted_one(grid, real, judge):
    usual = judge(grid)["D1-5"]
    by_method = experiments.summarize_real(real).pivot(index="set", columns="method")
    for name in ("rate", "measured"):
        ratio = by_method[name]["greedy"] / by_method[name][RANDOM]
        assert f"Chicago's riders {ratio['chicago_ridership']:.2f}" in usual.sensitivity
    assert usual.text.endswith(f"(real sensors, measured: {ratio.min():.2f} to {ratio.max():.2f})")
    assert "in 2,849 to 17,568 windows, against 5 random assignments" in usual.sensitivity
    far = judge(grid, real=scaled(real, RANDOM, 10, "measured"))["D1-5"]
    assert "(real sensors, measured: 0.09 to 0.10)" in far.text


def test_settings_with_a_rate_above_delta_on_real_sensors_are_counted_in_d1_3(grid, real, judge):
    assert (
        "exceeds δ in some setting on 2 of 4 sets (Chicago's riders 37 of 60, Irish wind 5 of 28)."
        in judge(grid)["D1-3"].sensitivity
    )
    fewer = real.assign(measured=0.01)
    assert "in some setting on 0 of 4 sets." in judge(grid, real=fewer)["D1-3"].sensitivity
    others = real["measured"].where(real["method"] == "greedy", 0.9)  # only greedy's rates count
    assert "on 2 of 4" in judge(grid, real=real.assign(measured=others))["D1-3"].sensitivity


def test_both_interpretations_are_compared_at_the_same_settings(grid, averaged, judge):
    same = averaged[averaged["epsilon"].isin(SETTINGS["epsilons"])]
    assert len(same) < len(averaged)
    gap = same.pivot_table(index=["workers", "epsilon"], columns="method", values="rate")
    gap = (gap["greedy"] - gap["h-best"]).mean()
    said = f"If a window is the mean of 3 rows: {gap:.4f} above."
    records = judge(grid)
    assert said in records["D1-4"].sensitivity
    largest = same[same["method"].isin(["greedy", "h-best", "h-worst"])]["largest"].max()
    assert largest < averaged["largest"].max()
    said = f"If a window is the mean of 3 rows: {largest:.6f}, at the same ε and m."
    assert said in records["D1-3"].sensitivity


def test_samples_that_disagree_in_the_other_interpretation_leave_d1_3_open(grid, averaged, judge):
    assert judge(grid, averaged=averaged.assign(z=9.0))["D1-3"].verdict == OPEN
