"""Window results: gaps leave windows out, rhythms are found."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from aftlib.core.windows import Windows
from aftlib.sensor_plans import survey as module
from aftlib.sensor_plans.sensor_file import pieces_of
from aftlib.sensor_plans.survey import Survey, aggregate_windows

HOUR = pd.Timedelta(hours=1)


def noise(rows, n=3, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, n))


def results_of(values, windows, step):
    names = tuple(f"s{i}" for i in range(values.shape[1]))
    results = aggregate_windows(pieces_of(values), windows)
    return Survey.of(SimpleNamespace(names=names, step=step), windows, results, values[:0], values)


@pytest.mark.parametrize(
    ("query", "missing", "known"), [("mean", 2, 1), ("mean", 3, 0), ("sum", 1, 0)]
)
def test_windows_with_too_few_samples_are_left_out(query, missing, known):
    values = noise(60)
    values[8 : 8 + missing, 1] = np.nan
    results = results_of(values, Windows(4, 4, query), None)
    assert np.isfinite(results.values).sum() == 45 - 1 + known
    assert np.isfinite(results.values[2, 1]) == known


def test_in_pieces_is_at_once(monkeypatch):
    values = noise(200)
    whole = results_of(values, Windows(6, 4), None).values
    monkeypatch.setattr(module, "CHUNK", 7)
    monkeypatch.setattr("aftlib.sensor_plans.sensor_file.PIECE", 31)
    pieces = results_of(values, Windows(6, 4), None).values
    np.testing.assert_array_equal(pieces, whole)
    np.testing.assert_allclose(whole[3], values[12:18].mean(axis=0))


def test_a_day_is_found_by_the_clock_and_any_rhythm_without_one():
    hours = np.arange(3000)
    values = 0.3 * noise(3000) + np.sin(2 * np.pi * hours / 24)[:, None]
    by_clock = results_of(values, Windows(5, 5), HOUR)
    assert by_clock.seasons[0] == pytest.approx(24 / 5)
    values = 0.3 * noise(3000) + np.sin(2 * np.pi * hours / 37)[:, None]
    assert results_of(values, Windows(5, 5), HOUR).seasons == ()
    alone = results_of(values, Windows(5, 5), None)
    assert alone.seasons[0] == pytest.approx(37 / 5, rel=0.02)


def test_noise_has_no_rhythm():
    values = noise(5000)
    assert results_of(values, Windows(5, 5), HOUR).seasons == ()
    assert results_of(values, Windows(5, 5), None).seasons == ()


def test_a_sensor_must_have_windows_in_both_halves_and_vary_in_the_first():
    values = noise(200)
    values[90:, 1] = np.nan
    with pytest.raises(ValueError, match=r"column 's1' must have windows in the second half"):
        results_of(values, Windows(5, 5), None)
    values = noise(200)
    values[:150, 2] = 7
    with pytest.raises(ValueError, match=r"column 's2' must vary in the first half.*drop=\['s2'\]"):
        results_of(values, Windows(5, 5), None)


def test_what_repeats_less_than_six_times_is_no_rhythm():
    values = 0.3 * noise(3000) + np.sin(2 * np.pi * np.arange(3000) / 375)[:, None]
    seasons = results_of(values, Windows(5, 5), None).seasons
    assert all(season < 70 for season in seasons)
