"""Questions and their wording; gaps leave windows out; seasonal periods are detected."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from aftlib.core.windows import Windows
from aftlib.sensor_plans import survey as module
from aftlib.sensor_plans.sensor_file import pieces_of
from aftlib.sensor_plans.survey import Question, Survey, aggregate_windows, epsilon_of
from tests.refusals import refused

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


def test_days_are_seasonal_periods_and_any_period_without_a_clock():
    hours = np.arange(3000)
    values = 0.3 * noise(3000) + np.sin(2 * np.pi * hours / 24)[:, None]
    by_clock = results_of(values, Windows(5, 5), HOUR)
    assert by_clock.seasons[0] == pytest.approx(24 / 5)
    values = 0.3 * noise(3000) + np.sin(2 * np.pi * hours / 37)[:, None]
    assert results_of(values, Windows(5, 5), HOUR).seasons == ()
    alone = results_of(values, Windows(5, 5), None)
    assert alone.seasons[0] == pytest.approx(37 / 5, rel=0.02)


def test_noise_has_no_seasonal_period():
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


def test_what_repeats_less_than_six_times_is_no_seasonal_period():
    values = 0.3 * noise(3000) + np.sin(2 * np.pi * np.arange(3000) / 375)[:, None]
    seasons = results_of(values, Windows(5, 5), None).seasons
    assert all(season < 70 for season in seasons)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2s", 2000), ("500ms", 500), ("1.5min", 90_000), ("0.5 h", 1.8e6), ("1m", 6e4)]
    + [("2 days", 1.728e8), ("00:00:02", 2000), ("5 µs", 0.005)],
)
def test_durations(text, expected):
    question = Question.of(epsilon=1, t_sla=text, fixed_ms=0, per_tuple_ms=1)
    assert question.t_sla_ms == pytest.approx(expected)


test_no_duration_is_refused = refused(
    lambda text: Question.of(epsilon=1, t_sla=text, fixed_ms=0, per_tuple_ms=1),
    *((text, "t_sla must be a duration such as '2s'") for text in ("2", "1e3", "s", "0s", "-1s")),
    *((text, "t_sla must be a duration such as '2s'") for text in ("soon", "NaT", "", "1 month")),
)


@pytest.mark.parametrize(
    ("window", "slide", "step", "expected"),
    [
        (10, None, None, (10, 10)),
        ("10", "5", None, (10, 5)),
        ("6h", None, HOUR, (6, 6)),
        ("6h", 3, HOUR, (6, 3)),
        ("1D", "90min", pd.Timedelta(minutes=30), (48, 3)),
    ],
)
def test_windows_in_samples_or_time(window, slide, step, expected):
    assert Question(epsilon=1, window=window, slide=slide).steps(step) == expected


test_windows_that_do_not_fit_are_refused = refused(
    lambda window, slide, step: Question(epsilon=1, window=window, slide=slide).steps(step),
    ("6h", None, None, "window must be a number of samples where the file has no times"),
    ("90min", None, HOUR, "window must be a multiple of the file's step 0 days 01:00:00"),
    ("soon", None, HOUR, "window must be a duration such as '2s', .* got 'soon'"),
    ("0", None, HOUR, "window must be a whole number at least 1, got 0"),
    (10, 11, HOUR, "slide must be at most window = 10 steps, got 11"),
    (10, "11h", HOUR, "slide must be at most window = 10 steps, got 11"),
)


test_invalid_questions_are_refused = refused(
    lambda fields: Question(**fields),
    ({}, "epsilon or epsilon_sd must be given, and not both, got None and None"),
    ({"epsilon": 1, "epsilon_sd": 1}, "epsilon or epsilon_sd must be given, and not both"),
    ({"epsilon": 0}, "epsilon must be above 0, got 0"),
    ({"epsilon": {"a": 1, "b": np.nan}}, "epsilon of 'b' must be above 0, got nan"),
    ({"epsilon_sd": 0.0}, "epsilon_sd must be above 0, got 0.0"),
    ({"epsilon": 1, "delta": 1}, "delta must be above 0 and below 1, got 1"),
    ({"epsilon": 1, "t_sla_ms": 0}, "t_sla must be above 0, got 0"),
    ({"epsilon": 1, "horizons": 0}, "horizons must be a whole number at least 1"),
    ({"epsilon": 1, "workers": 0}, "workers must be a whole number at least 1, got 0"),
    ({"epsilon": 1, "query": "max"}, "query must be one of mean, sum, got 'max'"),
    ({"epsilon": 1, "window": 0}, "window must be a whole number at least 1, got 0"),
    ({"epsilon": 1, "slide": 0}, "slide must be a whole number at least 1, got 0"),
)


def test_epsilon_of_each_sensor():
    deviations = np.array([2.0, 4.0])
    assert Question(epsilon_sd=0.5).limits(("a", "b"), deviations).tolist() == [1, 2]
    assert Question(epsilon=3).limits(("a", "b"), deviations).tolist() == [3, 3]
    assert Question(epsilon={"b": 1, "a": 2}).limits(("a", "b"), deviations).tolist() == [2, 1]
    with pytest.raises(ValueError, match=r"got none for \['b'\] and one for \['c'\]"):
        Question(epsilon={"c": 1, "a": 2}).limits(("a", "b"), deviations)


def test_epsilon_from_a_file(tmp_path):
    (tmp_path / "e.json").write_text(json.dumps({"a": 1, "b": 0.5}))
    (tmp_path / "e.csv").write_text("sensor,epsilon\na,1\nb,0.5\n")
    (tmp_path / "bare.csv").write_text("a,1\nb,0.5\n")
    for name in ("e.json", "e.csv", "bare.csv"):
        assert epsilon_of(str(tmp_path / name)) == {"a": 1, "b": 0.5}
    assert epsilon_of("0.25") == 0.25


TWICE = r"\('a' is there twice\)"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("e.csv", "a,1\nb,2\na,3\n", TWICE),
        ("e.json", '{"a": 1, "b": 2, "a": 3}', TWICE),
        *((name, text, "") for name in ("e.csv", "e.json") for text in ("a,b\n", "a\n", "[1, 2]")),
    ],
)
def test_another_file_is_refused(tmp_path, name, text, reason):
    (tmp_path / name).write_text(text)
    message = r"epsilon must be a JSON file \{sensor: ε\} or a CSV file .*" + reason
    with pytest.raises(ValueError, match=message):
        epsilon_of(str(tmp_path / name))
    with pytest.raises(ValueError, match="epsilon must be a number or a file of one per sensor"):
        epsilon_of(str(tmp_path / "none"))
