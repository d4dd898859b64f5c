"""What a recovery loads: the right plan's sets, and a gain that gives the posterior mean."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.state import Preparation, PreparedReplay
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement

MODEL = block_model(8, 2, 4.0, 3.0, mean=5.0)
QUERY = ReplayQuery(MODEL, 60, Requirement(0.3, 0.05), RecoveryTime(1.0, 0.01), 1.5)


def test_completed_sums_are_the_posterior_mean():
    sensors, steps = [1, 6], 10
    gain = MODEL.gain(sensors, [0, 2, 3, 4, 5, 7])
    prepared = PreparedReplay(sensors, gain, MODEL.posterior_variance(sensors))
    sums = prepared.complete(MODEL.mean, np.array([60.0, 45.0]), steps)
    seen = MODEL.aggregate(steps, "sum").condition({"X2": 60.0, "X7": 45.0})
    np.testing.assert_allclose(sums[[0, 2, 3, 4, 5, 7]], seen.mean)
    assert sums[[1, 6]].tolist() == [60, 45]


def test_prepared_sets_of_another_history_are_not_used(tmp_path):
    """Plans made at the same step after different failures are kept apart."""
    preparation, spent = Preparation(tmp_path), QUERY.requirement.max_variance
    plans = [QUERY.plan(30, np.full(8, share * spent)) for share in (0.0, 2.0)]
    assert plans[0].replay[0].sensors != plans[1].replay[0].sensors
    for plan in plans:
        name = preparation.keep(QUERY.fingerprint, plan)
        assert preparation.load(name, 0).sensors == list(plan.replay[0].sensors)


def test_a_name_is_of_the_query_the_times_and_the_sets(tmp_path):
    preparation, plan = Preparation(tmp_path), QUERY.plan()
    other = replace(plan, times=(0, 59, 60), replay=(plan.replay[0],) * 2)
    fewer = replace(other, replay=(plan.replay[0], plan.replay[0].loosened(2.0)))
    named = [("a", plan), ("b", plan), ("a", other), ("a", fewer)]
    names = [preparation.keep(*about) for about in named]
    assert len(set(names)) == 4
    assert [preparation.keep(*about) for about in named] == names


def test_a_name_tells_where_one_set_ends_and_the_next_begins(tmp_path):
    def some_plan(*sets):
        replay = [SimpleNamespace(sensors=s, gain=lambda: [], variance=[]) for s in sets]
        return SimpleNamespace(times=(0, 2, 3), replay=replay)

    plans = some_plan((4,), (5, 6)), some_plan((4, 5), (6,))
    one, other = (Preparation(tmp_path).keep("a", plan) for plan in plans)
    assert one != other
