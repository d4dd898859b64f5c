"""What the grid says about each claim, and the mutants of the code under which it turns."""

import numpy as np
import pandas as pd
import pytest

from aftlib.approximately_once.claims import CLAIMS
from aftlib.approximately_once.experiments import grid as grid_module
from aftlib.approximately_once.experiments.grid import (
    CHANCE,
    DRAWN,
    METHODS,
    GridPoints,
)
from aftlib.core.generators import block_model, draw
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from tests import judging

ROWS, PARTS = 1000, 11
MODEL = block_model()
WORKERS, EPSILONS = (2, 3, 4, 5, 6, 8, 10, 12, 24, 60), (0.65, 0.7, 0.8, 1.0, 1.96)
FEW = (2, 6, 12)
GREEDY = ("greedy", CHANCE)
OF_THE_GRID = ["D1-1", "D1-2", "D1-3", "D1-4", "D1-5"]


def measured(folder, of=MODEL, assumed=MODEL, methods=METHODS, workers=WORKERS):
    """The grid without Spark: data of one model, estimated with another."""
    log = folder / "log"
    if not log.exists():
        SensorLog.write(log, draw(of, ROWS * PARTS, 1), of.names)
    shape = {"parts": PARTS, "seed": 1}
    points = GridPoints(assumed, SensorLog.open(log), Windows(1, 1), EPSILONS, 0.05, **shape)
    draws = {method: 3 if method in DRAWN else 1 for method in methods}
    chosen = [(method, m, d) for m in workers for method in methods for d in range(draws[method])]
    return pd.concat(map(points, chosen), ignore_index=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def grid(folder):
    return measured(folder)


@pytest.fixture
def verdicts(grid):
    """The verdict on each claim of a grid, which all readings of the rows share by default."""

    def of(changed=grid, **other):
        frames = {"grid": changed, "samples_grid": changed, "unscaled_grid": changed}
        settings = {"delta": 0.05, "dimensions": 120, "blocks": 10, "covariance": "block"}
        given = frames | settings | other
        records = judging.judge(CLAIMS, given, *OF_THE_GRID)
        return {id: record.verdict for id, record in records.items()}

    return of


RECORDED = {claim.id: claim.recorded for claim in CLAIMS if claim.id in OF_THE_GRID}


def test_all_claims_come_out_as_recorded(verdicts):
    assert verdicts() == RECORDED


def shown_as(grid, other, names=GREEDY):
    """The grid that another assignment for greedy would give."""
    rows = grid[(grid["method"] == other) & (grid["draw"] == 0)]
    parts = [grid[~grid["method"].isin(names)], *(rows.assign(method=name) for name in names)]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(
    ("other", "turns"),
    [
        (CHANCE, {"D1-1": "holds", "D1-4": "holds"}),  # which of alike keys is first decides
        ("random", {"D1-1": "undecided"}),
        ("h-best", {"D1-1": "deviates", "D1-4": "deviates"}),
        ("h-worst", {"D1-1": "deviates"}),
    ],
)
def test_another_assignment_for_greedy_is_noticed(grid, verdicts, other, turns):
    changed = verdicts(shown_as(grid, other))
    assert {id: changed[id] for id in turns} == turns


def test_notes_give_the_number_of_points_and_the_largest_difference(grid):
    frames = {"grid": grid, "delta": 0.05}
    records = judging.judge(CLAIMS, frames, "D1-1", "D1-4")
    points = [rows.set_index("method") for _, rows in grid.groupby(["workers", "epsilon"])]
    below = sum(at.loc["greedy", "estimable"] < at.loc["h-best", "estimable"] for at in points)
    assert 0 < below < len(points)
    assert f"below h-best at {below} points" in records["D1-1"].note
    gaps = [np.mean(at.loc["greedy", "by_part"] - at.loc["h-best", "by_part"]) for at in points]
    assert f"at a point is {np.nanmax(gaps):.4f}." in records["D1-4"].note


def test_estimable_workers_that_do_not_rise_are_noticed(grid, verdicts):
    m, others = grid["workers"], ~grid["method"].isin(GREEDY)
    for factor, verdict in ((1 / m**2, "deviates"), (0.6, "holds")):
        changed = (grid["estimable"] * factor).where(~others, grid["estimable"])
        assert verdicts(grid.assign(estimable=changed))["D1-2"] == verdict


def test_another_covariance_is_noticed(tmp_path, verdicts):
    weaker = block_model(covariance=0.85)
    both = measured(tmp_path / "both", of=weaker, assumed=weaker, workers=FEW)
    assert verdicts(both)["D1-2"] == "undecided"
    data = measured(tmp_path / "data", of=weaker, workers=FEW)
    assert verdicts(data)["D1-3"] == "deviates"
    assert verdicts(samples_grid=data)["D1-3"] == "undecided"  # as the readings disagree


def shifted(grid, by, methods=METHODS):
    """The grid with other rates: `by` of the rate of each part."""
    chosen = grid["method"].isin(methods)
    changed = {}
    for column in ("by_part", "all_by_part"):
        rates = [by(r) if c else r for r, c in zip(grid[column], chosen, strict=True)]
        changed[column] = pd.Series(rates, grid.index)
    pooled = changed["by_part"].map(np.mean)
    return grid.assign(**changed, pooled=pooled, expected=pooled)


def test_a_broken_guarantee_is_noticed(grid, verdicts):
    broken = shifted(grid, lambda rates: rates + 0.01)
    assert verdicts(broken)["D1-3"] == verdicts(broken)["D1-4"] == "deviates"
    assert verdicts(unscaled_grid=broken)["D1-3"] == "undecided"  # as the readings disagree
    noise = np.resize([0.03, -0.03], PARTS)
    noisy = verdicts(shifted(grid, lambda rates: rates + noise))
    assert noisy["D1-3"] == noisy["D1-4"] == "undecided"


def test_rates_that_the_model_does_not_foresee_are_noticed(folder, verdicts, monkeypatch):
    def halved(*arguments):
        return residuals(*arguments) / 2

    residuals = grid_module.residuals
    monkeypatch.setattr(grid_module, "residuals", halved)
    assert verdicts(measured(folder, workers=FEW))["D1-3"] == "undecided"


def test_greedy_that_errs_less_than_h_best_is_noticed(grid, verdicts):
    assert verdicts(shifted(grid, lambda rates: rates * 0.5, GREEDY))["D1-4"] == "deviates"
    noise = np.resize([0.03, -0.03], PARTS)
    noisy = shifted(grid, lambda rates: rates * 0.99 + noise, GREEDY)
    assert verdicts(noisy)["D1-4"] == "undecided"


def test_a_random_assignment_that_can_lose_decides(grid, verdicts):
    def against(factor):
        return verdicts(shifted(grid, lambda rates: rates * factor, ["random"]))["D1-5"]

    assert against(10) == "holds"
    assert against(2.6) == "undecided"  # as greedy's readings lie on both sides of half
    better = shifted(grid, lambda rates: rates * 0.1, GREEDY)
    assert verdicts(better)["D1-5"] == "undecided"  # as not even h-best could show it


def test_where_nothing_is_estimable_nothing_is_settled(grid, verdicts):
    rates = dict.fromkeys(["error", "pooled", "pooled_low", "pooled_high"], np.nan)
    nothing = shifted(grid, lambda rates: rates * np.nan).assign(estimable=0, **rates)
    assert set(verdicts(nothing).values()) == {"not run"}
    assert verdicts(grid[grid["workers"] == 6])["D1-2"] == "not run"
