"""What may be asked, and in which words."""

import json

import numpy as np
import pandas as pd
import pytest

from aftlib.sensor_plans.survey import Question, epsilon_of
from tests.refusals import refused

HOUR = pd.Timedelta(hours=1)


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


test_what_cannot_be_kept_is_refused = refused(
    lambda asked: Question(**asked),
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
