"""Results as frames with the names of their keys, and as short texts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from aftlib import (
    ExponentialHistogram,
    GaussianModel,
    RecoveryTime,
    Requirement,
    assign_best,
    assign_spread,
    plan_checkpoints,
    select_replay,
)
from aftlib.core.generators import block_model

NAMES = ["kitchen", "<hall>", "cellar", "attic"]
MODEL = GaussianModel(np.zeros(4), np.kron(np.eye(2), [[1, 0.9], [0.9, 1]]), NAMES)
REQUIREMENT = Requirement(epsilon=0.9, delta=0.05)
PLAN = plan_checkpoints(MODEL, 12, Requirement(0.3, 0.05), RecoveryTime(0, 1), t_sla_ms=7)


@pytest.fixture(scope="module")
def large():
    """Results with many values."""
    model = block_model(240, 20, 1.0, 0.9)
    steps = block_model(240, 20, 10_000.0, 9_000.0)
    plan = plan_checkpoints(steps, 10_000, REQUIREMENT, RecoveryTime(28, 1e-3), t_sla_ms=28.25)
    histogram = ExponentialHistogram(10**6, 0.001)
    histogram.update(np.ones(10**6, bool))
    assert len(plan.times) > 600
    return [
        *(model, assign_spread(model, 120, REQUIREMENT), plan, histogram),
        *(select_replay(model, 0.5), model.condition({"X1": 1.0})),
    ]


def test_an_assignment_is_a_frame_of_keys_in_the_models_order():
    assignment = assign_spread(MODEL, 2, REQUIREMENT)
    frame = assignment.to_frame()
    assert frame.index.tolist() == NAMES and frame.index.name == "key"
    assert frame["worker"].tolist() == assignment.worker_of.tolist()
    assert frame["reliability"].tolist() == assignment.reliability[frame["worker"]].tolist()
    assert frame["estimable"].all()
    assert assign_best(MODEL, 2, REQUIREMENT).to_frame().index.tolist() == NAMES


def test_a_posterior_and_a_replay_set_are_frames_of_keys():
    posterior = MODEL.condition({"attic": 1.0}).to_frame()
    assert posterior.index.tolist() == NAMES[:3]
    row = posterior.loc["cellar"].round(3).to_dict()
    assert row == {"mean": 0.9, "variance": 0.19, "sd": 0.436}
    replay = select_replay(MODEL, 0.5).to_frame()
    assert replay["turn"].dropna().to_dict() == {"kitchen": 1, "cellar": 2}
    assert replay.loc["attic", "variance"] == pytest.approx(0.19)
    loosened = PLAN.replay[-1].to_frame()
    assert loosened.index.tolist() == NAMES


def test_a_plan_is_a_frame_of_intervals_in_steps_or_in_time():
    frame = PLAN.to_frame()
    assert (0, *frame["end"]) == PLAN.times and (*frame["begin"], 12) == PLAN.times
    assert frame["tuples"].tolist() == list(PLAN.tuples)
    assert (frame["reliability"] >= 0.95).all()
    spans = PLAN.to_frame(step="10min")
    assert spans["end"].iloc[-1] == pd.Timedelta("2h")
    times = PLAN.to_frame(step="10min", start="2024-01-01 06:00")
    assert times["begin"].iloc[0] == pd.Timestamp("2024-01-01 06:00")
    assert times["end"].iloc[-1] == pd.Timestamp("2024-01-01 08:00")
    with pytest.raises(ValueError, match="start must be given with step, got '2024-01-01'"):
        PLAN.to_frame(start="2024-01-01")


def test_texts_stay_short_whatever_they_hold(large):
    for result in large:
        assert len(repr(result)) < 1_200, result
        assert "\n" not in repr(result)
    assert "…" in repr(assign_spread(block_model(240, 20), 120, REQUIREMENT))
    assert repr(MODEL.condition({name: 0.0 for name in NAMES[1:]})).startswith(
        "Posterior(names=('kitchen',), mean=array([0.]), variance=array([0.19"
    )


def test_results_are_equal_where_all_their_values_are():
    def results():
        model = GaussianModel(np.zeros(4), MODEL.covariance.copy(), NAMES)
        plan = plan_checkpoints(model, 12, Requirement(0.3, 0.05), RecoveryTime(0, 1), t_sla_ms=7)
        assignments = [assign_spread(model, 2, REQUIREMENT), assign_best(model, 2, REQUIREMENT)]
        return [model, plan, *plan.replay, *assignments, model.condition({"attic": 1.0})]

    for one, same in zip(results(), results(), strict=True):
        assert one is not same and one == same and hash(one) == hash(same)
    model, plan, *_, spread, best, posterior = results()
    assert posterior != model.condition({"attic": 1.5}) and posterior != spread
    assert spread != best and spread != assign_spread(model, 2, Requirement(0.8, 0.05))
    assert model != GaussianModel(np.ones(4), MODEL.covariance, NAMES)
    later = (Requirement(0.3, 0.05), RecoveryTime(0, 1))
    assert plan != plan_checkpoints(model, 12, *later, t_sla_ms=4)


def test_a_histogram_is_a_frame_of_its_buckets():
    histogram = ExponentialHistogram(window=7, epsilon=0.5)
    histogram.update([0, 1, 1, 0, 1, 1, 1, 1, 1])
    assert histogram.to_frame()["size"].tolist() == [1, 2, 4]
