"""Models learned from few rows: their true error rates, by formula and by counting."""

import numpy as np
import pytest

from aftlib import GaussianModel
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once import captions, learning
from aftlib.documents.approximately_once.assignment import residual_variance
from aftlib.documents.approximately_once.experiments import NotebookParameters

SMALL = NotebookParameters(dimensions=12, blocks=2, workers=[3], epsilons=[0.5, 0.75, 0.9])


@pytest.fixture(scope="module")
def curve():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "sweep", lambda _, work, points: [work(each) for each in points])
        return learning.learning_curve(None, SMALL, 3)


def test_true_rates_are_those_that_are_counted():
    model = block_model(6, 2, mean=1.0)
    learned = GaussianModel.fit(draw(model, 25, 3))
    workers = [(0, 1, 3), (2, 4, 5)]
    rates = learning.true_rates(model, learned, workers, 0.7)
    sample = draw(model, 200_000, 4)
    for keys in map(list, workers):
        others = [key for key in range(6) if key not in keys]
        gain, offset = learned.gain(others, keys), learned.mean[keys]
        estimates = offset + (sample[:, others] - learned.mean[others]) @ gain.T
        counted = (np.abs(sample[:, keys] - estimates) > 0.7).mean(axis=0)
        np.testing.assert_allclose(rates[keys], counted, atol=0.005)


def test_the_true_model_predicts_its_true_rates():
    model = block_model(6, 2)
    workers = [(0, 1, 3), (2, 4, 5)]
    predicted = 1 - Requirement(0.7, 0.05).reliability(residual_variance(model, workers))
    np.testing.assert_allclose(learning.true_rates(model, model, workers, 0.7), predicted)


def test_few_rows_promise_too_much_and_many_rows_the_truth(curve):
    at = curve[(curve["epsilon"] == 0.9) & (curve["covariance"] == learning.COUNTED)]
    means = at.groupby("rows")[["rate", "true"]].mean()
    assert means.loc[100, "true"] > 1.2 * means.loc[100, "rate"]
    assert means.loc[10_000, "true"] == pytest.approx(means.loc[10_000, "rate"], rel=0.05)


def test_the_caption_says_what_the_rows_give(curve):
    text = captions.learned(curve, 0.75, 3, 0.05).markdown
    assert "m = 3" in text and "nan" not in text
    nothing = captions.learned(curve.assign(rate=np.nan), 0.75, 3, 0.05).markdown
    assert "no learned model has an estimable worker" in nothing


def test_without_more_rows_than_sensors_there_is_only_the_shrunk_one():
    work = learning.LearningCurve(block_model(120, 10), [1.0], 0.05, 1, 12)
    assert set(work((100, 0))["covariance"]) == {learning.SHRUNK}
    assert set(work((200, 0))["covariance"]) == {learning.SHRUNK, learning.COUNTED}
