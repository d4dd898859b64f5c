"""What the plain model could have promised, known only afterwards."""

import numpy as np
import pytest

from aftlib.core.gaussian import GaussianModel
from aftlib.your_sensors.backtest import METHODS, PLAIN_ALL, Walk
from aftlib.your_sensors.compared import HINDSIGHT, compared, hindsight

# the fourth sensor is told best by the others, then the second, the first and the third
MODEL = GaussianModel(np.zeros(4), np.eye(4) + 0.2 * np.outer([1, 1.5, 0, 2], [1, 1.5, 0, 2]))
WORKERS = [[0], [1], [2], [3]]


def walk(wrong):
    tallies = np.zeros((len(METHODS), 2, 1, 4, 3), int)
    tallies[METHODS.index(PLAIN_ALL), ..., :2] = 100
    tallies[METHODS.index(PLAIN_ALL), ..., 2] = wrong
    nothing = np.zeros((1, 4, 2), int)
    return Walk(tallies, np.arange(3), nothing, 0, np.zeros((1, 4), bool), np.zeros((1, 4)), 0.05)


@pytest.mark.parametrize(
    ("wrong", "declared", "within"),
    [
        ([50, 10, 90, 0], 0.5, 0.95),
        ([50, 11, 90, 0], 0.25, 1.0),
        ([0, 10, 0, 0], 1.0, 0.975),  # a worse sensor is made up for by later ones
        ([0, 0, 0, 90], 0.0, None),
    ],
)
def test_the_most_sensors_with_which_the_promise_is_kept(wrong, declared, within):
    found = hindsight(walk(wrong), MODEL, WORKERS)
    assert (found["declared"], found["within"]) == (declared, pytest.approx(within))


def test_every_method_has_its_line():
    lines = compared(walk([0, 0, 0, 0]), MODEL, WORKERS)
    assert [line["method"] for line in lines][-1] == HINDSIGHT
    assert len({line["method"] for line in lines}) == 7
    assert lines[0] == {"method": "guard", "declared": 0.0, "within": None, "interval": None}
