"""What the grid says about each claim, and that it can say otherwise."""

import pandas as pd
import pytest

from aftlib.approximately_once import experiments
from aftlib.approximately_once.verdicts import verdicts
from aftlib.core.windows import Windows


@pytest.fixture(scope="module")
def grid(spark, tmp_path_factory):
    sizes = {"dimensions": 12, "blocks": 2, "rows": 300, "replications": 3, "seed": 1}
    lists = {"windows": Windows(3, 1), "workers": [3, 6], "epsilons": [0.5, 0.75]}
    case = experiments.block_case(spark, tmp_path_factory.mktemp("data"), **sizes, **lists)
    return experiments.grid(spark, case, experiments.ROWS, 0.05, seed=1)


def test_all_five_claims_are_settled(grid):
    settled = verdicts(grid, 0.05, replications=3)
    assert [s.id for s in settled] == [f"D1-{i}" for i in range(1, 6)]
    assert settled[2].verdict == "holds"
    broken = grid.assign(pooled=0.5, pooled_low=0.49, pooled_high=0.51)
    assert verdicts(broken, 0.05, replications=3)[2].verdict == "deviates"


def test_where_nothing_is_estimable_nothing_is_settled(grid):
    rates = ["error", "error_low", "error_high", "pooled", "pooled_low", "pooled_high"]
    nothing = grid.assign(estimable=0, **dict.fromkeys(rates, float("nan")))
    assert {s.verdict for s in verdicts(nothing, 0.05, replications=3)} == {"not run"}
    one = grid[grid["workers"] == 3]
    assert verdicts(one, 0.05, replications=3)[1].verdict == "not run"
    assert isinstance(one, pd.DataFrame)
