"""What the grid says about each claim, and the mutants of the code under which it turns."""

import numpy as np
import pandas as pd
import pytest

from aftlib.approximately_once.claims import CLAIMS
from aftlib.approximately_once.experiments import grid as grid_module
from aftlib.approximately_once.experiments.grid import ASSIGN, METHODS, GridPoints
from aftlib.core.generators import block_model, draw
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from tests import judging

ROWS, PARTS = 300, 5
MODEL = block_model()
WORKERS, EPSILONS = (2, 6, 10, 24), (0.65, 0.67, 0.8, 1.0, 1.96)


def measured(folder, of=MODEL, assumed=MODEL):
    """The grid without Spark: data of one model, estimated with another."""
    log = folder / "log"
    if not log.exists():
        SensorLog.write(log, draw(of, ROWS * PARTS, 1), of.names)
    shape = {"parts": PARTS, "seed": 1, "block": 1}
    points = GridPoints(assumed, SensorLog.open(log), Windows(1, 1), EPSILONS, 0.05, **shape)
    draws = {method: 2 if method == "random" else 1 for method in METHODS}
    chosen = [(method, m, d) for m in WORKERS for method in METHODS for d in range(draws[method])]
    return pd.concat(map(points, chosen), ignore_index=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def grid(folder):
    return measured(folder)


SETTINGS = {"delta": 0.05, "replications": PARTS - 1, "dimensions": 120, "blocks": 10}


def turned(grid):
    return judging.turned(CLAIMS, SETTINGS | {"grid": grid})


def test_all_claims_come_out_as_recorded(grid):
    assert turned(grid) == set()


@pytest.mark.parametrize(
    ("other", "turns"), [("random", {"D1-1"}), ("h-best", {"D1-1"}), ("h-worst", {"D1-1", "D1-4"})]
)
def test_another_assignment_for_greedy_is_noticed(folder, monkeypatch, other, turns):
    monkeypatch.setitem(ASSIGN, "greedy", ASSIGN[other])
    assert turned(measured(folder)) >= turns


@pytest.mark.parametrize(
    ("whose", "turns"),
    [(METHODS, {"D1-3"}), (("greedy",), {"D1-3", "D1-5"})],
    ids=["of all", "of greedy"],
)
def test_halved_errors_are_noticed(grid, folder, monkeypatch, whose, turns):
    def halved(*arguments):
        return residuals(*arguments) / 2

    residuals = grid_module.residuals
    monkeypatch.setattr(grid_module, "residuals", halved)
    wrong = measured(folder)
    mixed = [wrong[wrong["method"].isin(whose)], grid[~grid["method"].isin(whose)]]
    assert turned(pd.concat(mixed, ignore_index=True)) >= turns


def test_another_covariance_is_noticed(tmp_path):
    weaker = block_model(covariance=0.85)
    assert "D1-2" in turned(measured(tmp_path / "both", of=weaker, assumed=weaker))
    assert "D1-3" in turned(measured(tmp_path / "data", of=weaker))


def test_estimable_workers_that_do_not_rise_are_noticed(grid):
    assert "D1-2" in turned(grid.assign(estimable=grid["estimable"] / grid["workers"] ** 2))


def test_a_broken_promise_is_noticed(grid):
    broken = grid.assign(pooled=0.5, pooled_low=0.49, pooled_high=0.51)
    assert "D1-3" in turned(broken)


def test_where_nothing_is_estimable_nothing_is_settled(grid):
    rates = ["error", "error_low", "error_high", "pooled", "pooled_low", "pooled_high"]
    nothing = grid.assign(estimable=0, **dict.fromkeys(rates, np.nan))
    found = judging.judged(CLAIMS, SETTINGS | {"grid": nothing})
    assert {record.verdict for record in found.values()} == {"not run"}
    one = SETTINGS | {"grid": grid[grid["workers"] == 6]}
    assert judging.verdict(CLAIMS, one, "D1-2") == "not run"
