"""What results say of themselves: frames with names, short texts, HTML, figures."""

from __future__ import annotations

import re
import sys

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
from aftlib.core.showing import MOST_INTERVALS

NAMES = ["kitchen", "<hall>", "cellar", "attic"]
MODEL = GaussianModel(np.zeros(4), np.kron(np.eye(2), [[1, 0.9], [0.9, 1]]), NAMES)
ASKED = Requirement(epsilon=0.9, delta=0.05)
PLAN = plan_checkpoints(MODEL, 12, Requirement(0.3, 0.05), RecoveryTime(0, 1), t_sla_ms=7)


@pytest.fixture(scope="module")
def large():
    """Results that hold a great deal."""
    model = block_model(240, 20, 1.0, 0.9)
    steps = block_model(240, 20, 10_000.0, 9_000.0)
    plan = plan_checkpoints(steps, 10_000, ASKED, RecoveryTime(28, 1e-3), t_sla_ms=28.25)
    histogram = ExponentialHistogram(10**6, 0.001)
    histogram.update(np.ones(10**6, bool))
    assert len(plan.times) > 600
    return [
        *(model, assign_spread(model, 120, ASKED), plan, histogram),
        *(select_replay(model, 0.5), model.condition({"X1": 1.0})),
    ]


def test_an_assignment_is_a_frame_of_keys_in_the_models_order():
    assignment = assign_spread(MODEL, 2, ASKED)
    frame = assignment.to_frame()
    assert frame.index.tolist() == NAMES and frame.index.name == "key"
    assert frame["worker"].tolist() == assignment.worker_of.tolist()
    assert frame["reliability"].tolist() == assignment.reliability[frame["worker"]].tolist()
    assert frame["estimable"].all()
    assert assign_best(MODEL, 2, ASKED).to_frame().index.tolist() == NAMES


def test_a_posterior_and_a_replay_set_are_frames_of_keys():
    posterior = MODEL.condition({"attic": 1.0}).to_frame()
    assert posterior.index.tolist() == NAMES[:3]
    assert posterior.loc["cellar"].round(3).to_dict() == {
        "mean": 0.9,
        "variance": 0.19,
        "sd": 0.436,
    }
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
    with pytest.raises(ValueError, match="start must go with a step, got '2024-01-01'"):
        PLAN.to_frame(start="2024-01-01")


def test_texts_and_pages_stay_short_whatever_they_hold(large):
    for result in large:
        assert len(repr(result)) < 1_200, result
        assert "\n" not in repr(result)
        assert len(result._repr_html_()) < 90_000
    assert large[2]._repr_html_().count("M") == MOST_INTERVALS
    assert "…" in repr(assign_spread(block_model(240, 20), 120, ASKED))
    assert repr(MODEL.condition({name: 0.0 for name in NAMES[1:]})).startswith(
        "Posterior(names=('kitchen',), mean=array([0.]), variance=array([0.19"
    )


def test_pages_say_what_matters_and_escape_names():
    assignment = assign_spread(MODEL, 2, ASKED)
    assert "2 of 2 workers are estimable" in assignment._repr_html_()
    assert "&lt;hall&gt;" in assignment._repr_html_() and "<hall>" not in assignment._repr_html_()
    model = MODEL._repr_html_()
    assert model.count("<rect") == 16 and "kitchen, &lt;hall&gt;: 0.90" in model
    assert "the first 24 shown" in block_model(48, 4)._repr_html_()
    plan = PLAN._repr_html_()
    path = re.search(r'd="([^"]*)"', plan)[1]
    assert path.count("M") == len(PLAN.replay)
    assert f"{len(PLAN.checkpoints)} checkpoints; a failure replays" in plan
    histogram = ExponentialHistogram(window=7, epsilon=0.5)
    histogram.update([0, 1, 1, 0, 1, 1, 1, 1, 1])
    assert "estimate 5.5, at most 0.5 of the true one off; 3 buckets" in histogram._repr_html_()
    assert histogram.to_frame()["size"].tolist() == [1, 2, 4]
    assert (
        "1 of 2 sensors"
        in select_replay(GaussianModel([0, 0], [[1, 0.9], [0.9, 1]]), 0.5)._repr_html_()
    )
    assert "3 keys, estimated" in MODEL.condition({"attic": 1.0})._repr_html_()


def test_figures_draw_what_the_frames_hold():
    histogram = ExponentialHistogram(window=7, epsilon=0.5)
    histogram.update([0, 1, 1, 0, 1, 1, 1, 1, 1])
    assert histogram.plot().data[0].y.tolist() == [1, 2, 4]
    assert np.asarray(MODEL.plot().data[0].z)[0].round(3).tolist() == [1, 0.9, 0, 0]
    assert (
        PLAN.plot().data[0].x[-1] == 12
        and PLAN.plot().data[0].y[0] == PLAN.to_frame()["replayed"][0]
    )
    tight = assign_spread(MODEL, 2, Requirement(0.5, 0.05))
    (bars,) = tight.plot().data
    assert bars.name == "not estimable" and bars.hovertext[0] == "kitchen, cellar"


def test_without_plotly_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    monkeypatch.delitem(sys.modules, "aftlib.reports.style", raising=False)
    with pytest.raises(ImportError, match=r"plot\(\) needs plotly.*aftlib\[notebooks\]"):
        MODEL.plot()
