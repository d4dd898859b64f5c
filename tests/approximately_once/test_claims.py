"""What the grid says about each claim, and changes of it under which its verdict turns."""

import numpy as np
import pytest

from aftlib.approximately_once import experiments
from aftlib.approximately_once.claims import CLAIMS
from aftlib.approximately_once.experiments import CHANCE, RANDOM, NotebookParameters
from aftlib.core.generators import block_model
from aftlib.workbench.claims import DOES_NOT_HOLD, HOLDS, NOT_RUN, OPEN
from tests import judging

SETTINGS = {
    "workers": [2, 3, 4, 6, 8, 12, 24, 60],
    "epsilons": [0.65, 0.7, 0.8, 1.0, 1.96],
    "rows": 2000,
    "draws": 3,
}


def in_one_process(spark, work, points):
    return [work(point) for point in points]


@pytest.fixture(scope="module")
def grid():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "sweep", in_one_process)
        return experiments.grid(None, NotebookParameters(**SETTINGS))


def verdicts(grid, **other):
    settings = {"delta": 0.05, "dimensions": 120, "blocks": 10}
    records = judging.judge(CLAIMS, {"grid": grid} | settings | other)
    return {id: record.verdict for id, record in records.items()}


def replaced(grid, other):
    """The grid if greedy gave the same assignments as another method."""
    rows = grid[(grid["method"] == other) & (grid["draw"] == 0)]
    columns = ["estimable", "rate", "largest", "everyone", "sampled", "error", "z"]
    values = rows.set_index(["workers", "epsilon"])[columns]
    changed = grid.copy()
    greedy = changed["method"] == "greedy"
    at = list(zip(changed.loc[greedy, "workers"], changed.loc[greedy, "epsilon"], strict=True))
    changed.loc[greedy, columns] = values.loc[at].to_numpy()
    return changed


def test_all_claims_come_out_as_recorded(grid):
    assert verdicts(grid) == {claim.id: claim.recorded for claim in CLAIMS}


@pytest.mark.parametrize(
    ("other", "turns"),
    [
        ("h-best", {"D1-1": DOES_NOT_HOLD, "D1-4": DOES_NOT_HOLD}),
        ("h-worst", {"D1-1": DOES_NOT_HOLD}),
        (RANDOM, {"D1-1": HOLDS, "D1-4": HOLDS}),
    ],
)
def test_another_assignment_for_greedy_is_noticed(grid, other, turns):
    changed = verdicts(replaced(grid, other))
    assert {id: changed[id] for id in turns} == turns


def test_the_share_of_the_lead_is_the_one_of_the_sums(grid):
    sums = grid[grid["draw"] == 0].groupby("method")["estimable"].sum()
    record = judging.judge(CLAIMS, {"grid": grid}, "D1-1")["D1-1"]
    lead = (sums["greedy"] - sums["h-worst"]) / (sums["h-best"] - sums["h-worst"])
    assert record.measured == pytest.approx(lead)


def test_estimable_workers_that_do_not_grow_are_noticed(grid):
    greedy = grid["method"] == "greedy"
    fixed = grid["estimable"].where(~greedy, np.minimum(grid["estimable"], 2))
    assert verdicts(grid.assign(estimable=fixed))["D1-2"] == DOES_NOT_HOLD


def test_an_h_best_that_differs_from_the_closed_form_leaves_d1_2_open(grid):
    assert verdicts(grid, blocks=20)["D1-2"] == OPEN


def test_an_estimable_sensor_with_a_rate_above_delta_is_noticed(grid):
    broken = verdicts(grid.assign(largest=grid["largest"] * 1.01, rate=grid["rate"] * 1.01))
    assert broken["D1-3"] == broken["D1-4"] == DOES_NOT_HOLD


def test_samples_of_another_covariance_leave_the_rates_open(grid, monkeypatch):
    monkeypatch.setattr(experiments, "sweep", in_one_process)
    true = experiments.draw

    def other_data(model, rows, seed):
        return true(block_model(covariance=0.85), rows, seed)

    monkeypatch.setattr(experiments, "draw", other_data)
    other = experiments.grid(None, NotebookParameters(**SETTINGS))
    changed = verdicts(other)
    assert changed["D1-3"] == changed["D1-4"] == OPEN
    np.testing.assert_array_equal(other["rate"], grid["rate"])


def test_greedy_that_errs_less_than_h_best_is_noticed(grid):
    lower = grid["rate"].where(grid["method"] != "greedy", grid["rate"] * 0.5)
    assert verdicts(grid.assign(rate=lower))["D1-4"] == DOES_NOT_HOLD


def test_a_random_assignment_that_errs_more_than_twice_as_often_is_noticed(grid):
    higher = grid["rate"].where(grid["method"] != RANDOM, grid["rate"] * 3)
    assert verdicts(grid.assign(rate=higher))["D1-5"] == HOLDS


def test_where_nothing_is_estimable_nothing_is_judged(grid):
    columns = ["rate", "largest", "sampled", "error", "z"]
    empty = grid.assign(estimable=0, **dict.fromkeys(columns, np.nan))
    assert set(verdicts(empty).values()) == {NOT_RUN}
    assert verdicts(grid[grid["workers"] == 6])["D1-2"] == NOT_RUN


def test_ties_by_chance_is_drawn_and_random_too(grid):
    draws = grid.groupby("method")["draw"].nunique()
    assert draws.to_dict() == {"greedy": 1, "h-best": 1, "h-worst": 1, RANDOM: 3, CHANCE: 5}
