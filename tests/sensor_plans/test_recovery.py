"""Whether approximate recovery pays, by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aftlib.core.gaussian import GaussianModel
from aftlib.core.windows import AGGREGATES
from aftlib.sensor_plans import recovery
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.recovery import (
    EXACT,
    GUARD,
    Failure,
    find_criteria,
    plan_recovery,
    score_replay,
    weigh_costs,
)
from aftlib.sensor_plans.sensor_file import read_sensors
from aftlib.sensor_plans.window_results import Survey
from tests.core.test_windows import TWINS

EQUAL = (2, 2, 2, 2)


def about(value):
    """Processing takes a microsecond per sample, which the sums by hand leave out."""
    return pytest.approx(value, rel=1e-3)


def compare(rate, certified=0.75, t_sla="20s", failures=3.0, sizes=EQUAL):
    question = Question(
        t_sla=t_sla, fixed_ms=1000.0, read_rate=rate, failures_per_month=failures, epsilon=1.0
    )
    return weigh_costs(Failure(question, sizes, 100, 1.0, certified))


def test_the_comparison_by_hand():
    # the stream has 8 samples per second; at most 2 sensors × 100 steps are lost; 10/s are spare
    table = compare(18.0)
    exact, guard = table.schemes
    assert (exact.longest_s, guard.longest_s) == (about(1 + 200 / 10), about(1 + 50 / 10))
    assert exact.outage_minutes == about(3 * (1 + 100 / 10) / 60)
    assert guard.outage_minutes == about(3 * (1 + 25 / 10) / 60)
    assert exact.estimated_results == 0
    # during the start of a second, the windows of a hundredth of the sensors begin
    assert guard.estimated_results == pytest.approx(3 * 2 * 0.75 * 1.01)
    assert table.recommended == GUARD


@pytest.mark.parametrize(
    ("change", "rate", "recommended"),
    [
        ({}, 1e6, EXACT),
        ({"t_sla": "22s"}, 18.0, EXACT),
        ({"t_sla": "2s"}, 18.0, GUARD),
        ({"t_sla": "2s", "certified": 0.05}, 18.0, EXACT),
        ({"t_sla": "2s", "certified": 0.0}, 18.0, EXACT),
    ],
)
def test_recommendations(change, rate, recommended):
    assert compare(rate, **change).recommended == recommended


def test_nothing_is_compared_without_a_read_rate():
    assert weigh_costs(Failure(Question(), EQUAL, 100, 1.0, 0.5)) is None


def test_the_largest_machine_is_the_slowest():
    table = compare(23.0, sizes=(3, 3, 2, 2, 2), t_sla="25s")
    exact, guard = table.schemes
    assert (exact.longest_s, guard.longest_s) == (about(1 + 300 / 11), about(1 + 75 / 11))
    assert table.recommended == GUARD


@pytest.mark.parametrize(
    ("change", "below"),
    [
        ({}, 8 + 200 / 19),
        ({"t_sla": "900ms"}, 8 + 200 * 0.7 / 0.05),
        ({"certified": 0.0}, 0.0),
        ({"certified": 0.05}, 0.0),
        ({"sizes": (5, 1, 1, 1)}, 8 + 500 / 19),
    ],
)
def test_below_the_rate_the_guard_is_recommended_and_above_it_exact_recovery(change, below):
    values = {"certified": 0.75, "t_sla": "20s", "sizes": EQUAL} | change
    question = Question(t_sla=values["t_sla"], fixed_ms=1000.0)
    failure = Failure(question, values["sizes"], 100, 1.0, values["certified"])
    rate = find_criteria(failure).pays_below
    assert rate == pytest.approx(below, rel=0.02)
    for factor, recommended in ((0.999, GUARD), (1.001, EXACT)):
        if rate:
            assert compare(rate * factor, **change).recommended == recommended


def test_estimating_pays_at_any_rate_where_processing_alone_misses_the_limit():
    criteria = find_criteria(Failure(Question(), EQUAL, 10_000_000, 1.0, 0.9))
    assert criteria.keeps_t_sla is None and criteria.pays_below is None


def test_failures_are_those_of_the_whole_job():
    one, two = compare(18.0, failures=1.0), compare(18.0, failures=2.0, sizes=(1,) * 8)
    minutes = [table.schemes[0].outage_minutes for table in (one, two)]
    assert minutes == [about((1 + 10) / 60), about(2 * (1 + 5) / 60)]


def survey_of(t_sla="2s", values=None, **question):
    if values is None:
        values = np.random.default_rng(1).normal(size=(400, 3))
    times = pd.date_range("2026-01-01", periods=len(values), freq="min")
    frame = pd.DataFrame(values, times, [f"s{i}" for i in range(values.shape[1])])
    question = {"fixed_ms": 100.0, "window": 4} | question
    return Survey.of(read_sensors(frame), Question(t_sla=t_sla, **question))


@pytest.mark.parametrize("query", AGGREGATES)
def test_a_replay_set_is_scored_on_the_part_of_a_window_that_it_must_estimate(query):
    """Sensor s0 is read from step 1 of 4 on; the result of s1 errs by what was not read of it."""
    model = GaussianModel(np.zeros(3), [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])
    rng = np.random.default_rng(1)
    survey = replace(survey_of(values=rng.normal(size=(400, 3)), query=query), model=model)
    samples = survey.table.values[200:].reshape(50, 4, 3) / survey.limits
    for begin in (0, 1, 3):
        lost = np.where(np.arange(4)[:, np.newaxis] < begin, 0, samples)
        parts = TWINS[query](lost, axis=1)
        errors = [parts[:, 1] - 0.5 * parts[:, 0], parts[:, 2]]
        assert score_replay(survey, begin, (0,)) == (np.abs(errors) <= 1).mean()
        assert score_replay(survey, begin, (0, 1, 2)) is None


def plan_pair(apart, **question):
    """Plan two sensors, of which the second one repeats the other until the second half."""
    common, own = np.random.default_rng(1).normal(size=(2, 4000))
    other = common + 0.2 * own
    if apart:
        other[2000:] = 3 * own[2000:]
    given = {"fixed_ms": 0.0, "read_rate": 1.0, "window": 10}
    return plan_recovery(survey_of(values=np.column_stack([common, other]), **given | question))


def test_a_set_of_a_later_checkpoint_is_tested_too():
    """The first set reads both sensors, so that only the last one can fail."""
    calm = plan_pair(False, epsilon=0.1, t_sla="8s")
    assert [len(part.sensors) for part in calm.replay] == [2, 2, 1]
    assert calm.within >= 0.95 and not calm.read_everything
    apart = plan_pair(True, epsilon=0.1, t_sla="8s")
    assert apart.read_everything.startswith("Replay: read everything again.")
    assert {len(part.sensors) for part in apart.replay} == {2} and apart.within is None
    # nine sets hold; the last one, which reads nothing, does not
    one = plan_pair(False, epsilon=0.2, t_sla="1.5s")
    assert "With the planned sets 94.8 % of" in one.read_everything


def test_a_failed_set_without_time_for_another_is_said_with_both_reasons():
    calm = plan_pair(False, epsilon=0.16, t_sla="1.5s")
    assert [len(part.sensors) for part in calm.replay] == [1] * 10
    apart = plan_pair(True, epsilon=0.16, t_sla="1.5s")
    assert apart.read_everything.startswith("Replay: read everything again.")
    assert ". No checkpoints keep T_SLA = 1.5s: reading one step of all" in apart.read_everything
    assert [(part.until, len(part.sensors)) for part in apart.replay] == [(10, 2)]


def test_a_t_sla_that_is_too_short_for_one_step_is_the_reason_of_reading_everything():
    reason = plan_recovery(survey_of("50ms")).read_everything
    assert reason.startswith("No checkpoints keep T_SLA = 50ms")


def test_another_error_of_planning_is_not_reported_as_a_short_t_sla(monkeypatch):
    def fail(*args, **named):
        raise ValueError("checkpoint_variance leaves nothing of epsilon")

    monkeypatch.setattr(recovery, "plan_checkpoints", fail)
    with pytest.raises(ValueError, match="leaves nothing of epsilon"):
        plan_recovery(survey_of("2s"))
