"""The question: its options and limits, its recovery time, and the groupings that users give."""

import json
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest

from aftlib.sensor_plans.question import Question, group_sensors, read_by_sensor
from tests.refusals import refused

HOUR = pd.Timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2s", 2000), ("500ms", 500), ("1.5min", 90_000), ("0.5 h", 1.8e6), ("00:00:02", 2000)],
)
def test_durations(text, expected):
    assert Question(t_sla=text).t_sla_ms == pytest.approx(expected)


@pytest.mark.parametrize(
    ("window", "step", "expected"),
    [(10, None, 10), ("10", None, 10), ("6h", HOUR, 6), ("1D", pd.Timedelta(minutes=30), 48)],
)
def test_windows_in_samples_or_time(window, step, expected):
    assert Question(window=window).width(1000, step) == expected


test_windows_that_do_not_fit_are_refused = refused(
    lambda window, step: Question(window=window).width(1000, step),
    ("6h", None, "window must be samples where FILE has no times, got '6h'"),
    ("90min", HOUR, "window must be a multiple of the step 0 days 01:00:00, got '90min'"),
    ("soon", HOUR, "window must be a duration such as '2s', .* got 'soon'"),
    ("0", HOUR, "window must be at least 1, got 0"),
    (200, HOUR, "window must leave at least 8 windows, got 5 of 200 steps in 1000 steps"),
)


test_invalid_questions_are_refused = refused(
    lambda fields: Question(**fields),
    ({"epsilon_sd": None}, "epsilon or epsilon_sd must be given, got none"),
    ({"epsilon_sd": 0.0}, "epsilon_sd must be above 0, got 0.0"),
    ({"delta": 1}, "delta must be above 0 and below 1, got 1"),
    ({"query": "max"}, "query must be one of mean, sum.*, got 'max'"),
    ({"workers": 0}, "workers must be .*at least 1, got 0"),
    ({"slide": 5}, "slide is no parameter"),
    *(({"t_sla": t}, "t_sla must be a duration such as '2s'") for t in ("2", "s", "0s", "-1s")),
)


def test_epsilon_of_each_sensor(tmp_path):
    spread = np.array([2.0, 4.0])
    assert Question(epsilon_sd=0.5).limits(("a", "b"), spread).tolist() == [1, 2]
    assert Question(epsilon=3).limits(("a", "b"), spread).tolist() == [3, 3]
    (tmp_path / "e.json").write_text(json.dumps({"a": 1, "b": 0.5}))
    (tmp_path / "e.csv").write_text("sensor,epsilon\nb,0.5\na,1\n")
    for name in ("e.json", "e.csv"):
        limits = read_by_sensor("epsilon", str(tmp_path / name), float)
        assert Question(epsilon=limits).limits(("a", "b"), spread).tolist() == [1, 0.5]


test_limits_that_do_not_fit_are_refused = refused(
    lambda epsilon: Question(epsilon=epsilon).limits(("a", "b"), np.ones(2)),
    (0.0, "epsilon must be above 0 and finite, .* got 0.0"),
    ({"a": 1.0, "b": -1.0}, "epsilon must be above 0 and finite, .* got .*-1"),
    ({"c": 1.0, "a": 2.0}, "epsilon must have each of the 2 sensors once .* missing 'b'"),
)


def read_epsilon(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    return read_by_sensor("epsilon", str(tmp_path / name), float)


test_another_file_of_epsilon_is_refused = refused(
    read_epsilon,
    ("e.csv", "a,1\nb,2\na,3\n", "each sensor once, got 'a' twice"),
    ("e.json", '{"a": 1, "a": 3}', "each sensor once, got 'a' twice"),
    ("e.csv", "a\n", "must be a file with a JSON object by sensor or CSV"),
    ("e.json", "[1, 2]", "must be a file with a JSON object by sensor or CSV"),
    ("e.csv", "a,x\n", "epsilon must be a file .*could not convert string to float: 'x'"),
)


def test_a_grouping_is_read_as_texts(tmp_path):
    (tmp_path / "g.csv").write_text("sensor,worker\n0071,01\n0072,02\n0073,01\n")
    (tmp_path / "g.json").write_text('{"0071": "01", "0072": "02", "0073": "01"}')
    for name in ("g.csv", "g.json"):
        given = read_by_sensor("assignment", str(tmp_path / name), str)
        assert group_sensors(given, ["0071", "0072", "0073"]) == (["01", "02"], [[0, 2], [1]])
    assert group_sensors([["b"], ["a", "c"]], ["a", "b", "c"]) == (["1", "0"], [[0, 2], [1]])
    given = pd.Series({"a": "A", "b": "B", "c": "A"})
    for each in (given, MappingProxyType(given.to_dict())):
        assert group_sensors(each, ["a", "b", "c"]) == (["A", "B"], [[0, 2], [1]])
    with pytest.raises(ValueError, match="got no worker for 'c'; not in FILE: 'x'"):
        group_sensors({"a": 1, "b": 2, "x": 1}, ["a", "b", "c"])
    with pytest.raises(ValueError, match="got no worker for 'c'; not in FILE: none"):
        group_sensors([["a"], ["b"]], ["a", "b", "c"])
    with pytest.raises(ValueError, match="assignment must name each sensor once, got some twice"):
        group_sensors([["a", "b"], ["b", "c"]], ["a", "b", "c"])


def test_one_recovery_time_waits_for_the_read_rate():
    plain = Question().recovery_time(5.0)
    assert (plain.fixed_ms, plain.per_tuple_ms) == (28.33, 9.332e-4)
    slow = Question(read_rate=15.0, fixed_ms=100.0).recovery_time(5.0)
    assert slow(30) == pytest.approx(100 + 30 * (9.332e-4 + 1000 / 10))
    with pytest.raises(
        ValueError, match="read_rate must be above 5, got 5.0; recovery needs the rest"
    ):
        Question(read_rate=5.0).recovery_time(5.0)
