"""Minima and maxima in D2's stream: exact undisturbed, within their half-width after crashes."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.checkpoint_planning.operator import ReplayQuery, bare_read, prepare
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.steps import estimate_extremes
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog

MODEL = block_model(8, 2, 4.0, 3.9, mean=5.0)
WINDOW, WINDOWS = 24, 12
QUERY = ReplayQuery(MODEL, WINDOW, Requirement(1.15, 0.1), RecoveryTime(0, 1), 40, query="max")
FOLD = {"min": np.min, "max": np.max}


def streamed(query, values, place, failing):
    """Windows (rounds, n) of the stream's results; batches that begin at a step in `failing` crash.

    `failing` is a set of steps, or True for each batch.
    """
    log = SensorLog.write(place / "log", values, MODEL.names)
    operator, batch = prepare(query, log, place), 0
    read = bare_read(log, query.query)
    while (start := operator.checkpoint.position) < log.steps:
        if failing is True or start in failing:
            operator.store.begin(batch, start, "crashed")
        operator.process(batch, read)
        batch += 1
    results = {(r.start // WINDOW, MODEL.names.index(r.key)): r for r in operator.store.results()}
    cells = [[results[t, i] for i in range(8)] for t in range(log.steps // WINDOW)]
    return cells, operator.store.records()


def column(cells, name):
    return np.array([[getattr(cell, name) for cell in row] for row in cells])


@pytest.mark.parametrize("query", ["min", "max"])
def test_every_window_is_within_its_half_width_as_often_as_guaranteed(tmp_path, query):
    """The first batch of each window crashes in one series, and every batch in another."""
    variant, off, half = replace(QUERY, query=query), [], []
    for seed in range(4):
        values = draw(MODEL, WINDOWS * WINDOW, seed)
        true = FOLD[query](values.reshape(WINDOWS, WINDOW, 8), axis=1)
        failing = set(range(0, WINDOWS * WINDOW, WINDOW)) if seed % 2 else True
        cells, records = streamed(variant, values, tmp_path / str(seed), failing)
        assert [r.recovered for r in records if r.start % WINDOW == 0] == [True] * WINDOWS
        assert all(r.sensors * (r.stop - r.start) <= 40 for r in records if r.recovered)
        off.append(np.abs(column(cells, "value") - true))
        half.append(column(cells, "half_width"))
        assert column(cells, "kept").all() and (column(cells, "samples") == WINDOW).all()
    off, half = np.array(off), np.array(half)
    guessed = half > 0
    replayed = [i for i in range(8) if i in variant.first_plan.replay[0].sensors]
    assert not guessed[..., replayed].any() and guessed.mean() == 1 - len(replayed) / 8
    assert (off[~guessed] == 0).all()
    inside = (off <= half)[guessed]
    assert inside.mean() >= 0.9
    assert inside.mean() < 0.99  # the half-width is no wider than it has to be
    assert half.max() <= variant.requirement.epsilon
    assert (off <= variant.requirement.epsilon).mean() >= 0.9


def test_an_undisturbed_stream_is_exact_whatever_is_missing(tmp_path):
    values = draw(MODEL, 2 * WINDOW, 1)
    values[3:9, 0], values[:WINDOW, 1], values[30, 2] = np.nan, np.nan, np.inf
    cells, _ = streamed(QUERY, values, tmp_path, set())
    finite = np.where(np.isfinite(values), values, -np.inf).reshape(2, WINDOW, 8)
    true = finite.max(axis=1)
    np.testing.assert_array_equal(column(cells, "value"), np.where(true > -np.inf, true, np.nan))
    assert column(cells, "samples")[0, :2].tolist() == [WINDOW - 6, 0]
    assert not column(cells, "half_width").any()


@pytest.mark.parametrize("query", ["min", "max"])
def test_where_every_sensor_is_read_again_each_keeps_its_own(tmp_path, query):
    """The plan lists the sensors in the order of choice, not in the order of keys."""
    variant = replace(QUERY, query=query, requirement=Requirement(0.05, 0.1))
    chosen = variant.first_plan.replay[0].sensors
    assert sorted(chosen) == [*range(8)] != [*chosen]
    values = draw(MODEL, 3 * WINDOW, 1)
    cells, records = streamed(variant, values, tmp_path, True)
    assert all(r.recovered and r.sensors == 8 for r in records)
    true = FOLD[query](values.reshape(3, WINDOW, 8), axis=1)
    np.testing.assert_array_equal(column(cells, "value"), true)


def test_after_an_estimate_the_rest_of_the_window_is_read_whole(tmp_path):
    values = draw(MODEL, WINDOW, 1)
    cells, records = streamed(QUERY, values, tmp_path, True)
    assert [r.sensors for r in records] == [records[0].sensors] + [8] * (len(records) - 1)
    assert 0 < records[0].sensors < 8 and len(records) > 2
    first = estimate_extremes(
        MODEL,
        QUERY.first_plan.replay[0].sensors,
        values[: records[0].stop, list(QUERY.first_plan.replay[0].sensors)],
        QUERY.requirement,
        "max",
        np.full(8, -np.inf),
    )[0]
    np.testing.assert_array_equal(
        column(cells, "value")[0], np.maximum(first, values[records[0].stop :].max(axis=0))
    )


def test_estimates_from_gaps_agree_with_draws_of_what_is_lost():
    """Brute force: the posterior of every step is drawn, and its extreme taken."""
    rng, sensors, known = np.random.default_rng(3), [0, 4, 5], np.full(8, 5.5)
    values = draw(MODEL, 10, 2)[:, sensors]
    values[2:6, 0], values[7, 1] = np.nan, np.inf
    guess, variance = estimate_extremes(MODEL, sensors, values, Requirement(0.7, 0.1), "max", known)
    half = np.sqrt(variance) * Requirement(0.7, 0.1).z
    draws = np.empty((4000, 10, 8))
    for t, row in enumerate(values):
        place = [i for i, x in zip(sensors, row, strict=True) if np.isfinite(x)]
        rest = [i for i in range(8) if i not in place]
        samples = row[np.isfinite(row)]
        inverse = np.linalg.inv(MODEL.covariance[np.ix_(place, place)])
        cross = MODEL.covariance[np.ix_(rest, place)] @ inverse
        mean = MODEL.mean[rest] + cross @ (samples - MODEL.mean[place])
        explained = cross @ MODEL.covariance[np.ix_(place, rest)]
        left = MODEL.covariance[np.ix_(rest, rest)] - explained
        draws[:, t, place] = samples
        draws[:, t, rest] = rng.multivariate_normal(mean, left, 4000)
    extremes = np.maximum(draws.max(axis=1), known)
    inside = (np.abs(extremes - guess) <= half + 1e-9).mean(axis=0)
    assert half[5] == 0 and inside[5] == 1
    guessed = half > 0.01
    assert inside[guessed].min() >= 0.88  # more where a known sample is likely to be the extreme
    assert guessed.sum() >= 6 and np.median(inside[guessed]) <= 0.92
