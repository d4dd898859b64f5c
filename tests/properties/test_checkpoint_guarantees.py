"""(ε, δ, T_SLA) are met by construction, for random models and failures."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aftlib.core.requirement import Requirement
from aftlib.core.windows import AGGREGATES
from aftlib.documents.checkpoint_planning.plan import (
    ADAPTIVE,
    METHODS,
    CheckpointPlan,
    RecoveryTime,
    plan_checkpoints,
)
from aftlib.documents.checkpoint_planning.replay import select_replay
from tests.core.test_windows import TWINS
from tests.properties.test_replay_rule import models

QUERIES = st.sampled_from([*AGGREGATES])
ROUNDING = 1 + 1e-9


@st.composite
def tasks(draw):
    """Model, window, ε of a mean, δ and a T_SLA that permits at least one step of all sensors."""
    model, window = draw(models(largest=8)), draw(st.integers(1, 80))
    delta = draw(st.floats(0.01, 0.5))
    share = draw(st.floats(0.02, 1.2))
    z = Requirement(1, delta).z
    epsilon = z * float(np.sqrt(share * model.covariance.max() / window))
    recovery_time = RecoveryTime(draw(st.floats(0, 5)), draw(st.floats(0.1, 2)))
    t_sla_ms = recovery_time(draw(st.integers(model.size, 30 * model.size)))
    return model, window, epsilon, delta, recovery_time, t_sla_ms


def planned(task, method="proposed", **options) -> CheckpointPlan:
    model, window, epsilon, delta, recovery_time, t_sla_ms = task
    requirement = Requirement(options.pop("epsilon", epsilon), delta)
    return plan_checkpoints(model, window, requirement, recovery_time, t_sla_ms, method, **options)


def count(task, method="proposed", **options) -> int:
    return len(planned(task, method, **options).checkpoints)


@settings(deadline=None)
@given(tasks(), st.sampled_from(METHODS[:3]))
def test_epsilon_is_met_in_the_worst_case_after_every_checkpoint(task, method):
    model, window, *_ = task
    plan = planned(task, method)
    for tau, replay, least in zip(
        plan.times, plan.replay, plan.worst_case_reliability.min(axis=1), strict=False
    ):
        rest = model.aggregate(window - tau).posterior_variance(replay.sensors)
        variance = ((window - tau) / window) ** 2 * rest
        assert variance.max() <= plan.requirement.max_variance * ROUNDING
        assert least >= 1 - plan.requirement.delta - 1e-9


@settings(deadline=None)
@given(tasks(), st.sampled_from([*METHODS[:2], ADAPTIVE]), QUERIES, st.data())
def test_epsilon_is_met_whatever_fails_when_planned_again(task, method, query, data):
    model, window, epsilon, *_ = task
    scale = TWINS[query](np.ones(window), axis=0)
    spent, start, restored = np.zeros(model.size), 0, None
    while start < window:
        plan = planned(
            task,
            method,
            query=query,
            start=start,
            checkpoint_variance=restored,
            epsilon=epsilon * scale,
        )
        failing = data.draw(st.integers(0, len(plan.replay)), label="failing interval")
        if failing == len(plan.replay):
            break
        begin, start = plan.times[failing : failing + 2]
        sensors = plan.replay[failing].sensors
        spent = spent + model.aggregate(start - begin, "sum").posterior_variance(sensors)
        restored = plan.restored_variance(failing)
    variance = spent / window**2 * scale**2
    assert variance.max() <= plan.requirement.max_variance * ROUNDING


def patterns(task, start=0, spent=0.0, failed=()):
    """Yield each pattern of failures of an adaptive window, and the variance of its error."""
    model, window, *_ = task
    restored = np.full(model.size, 0.0) + spent / max(start, 1) ** 2
    plan = planned(task, ADAPTIVE, start=start, checkpoint_variance=restored)
    recovery_time, t_sla_ms = task[-2:]
    assert all(recovery_time(tuples) <= t_sla_ms for tuples in plan.tuples)
    yield failed, spent
    for k, (begin, end) in enumerate(zip(plan.times, plan.times[1:], strict=False)):
        more = model.aggregate(end - begin, "sum").posterior_variance(plan.replay[k].sensors)
        np.testing.assert_allclose(plan.restored_variance(k), (spent + more) / end**2, atol=1e-9)
        if end < window:
            yield from patterns(task, end, spent + more, (*failed, begin))
        else:
            yield (*failed, begin), spent + more


@settings(deadline=None, max_examples=40)
@given(tasks())
def test_an_adaptive_plan_keeps_its_guarantee_for_every_pattern_of_failures(task):
    model, window, epsilon, delta, recovery_time, t_sla_ms = task
    window = min(window, 8)  # patterns double with each interval
    epsilon *= np.sqrt(task[1] / window)
    task = model, window, epsilon, delta, recovery_time, t_sla_ms
    allowed = window**2 * Requirement(epsilon, delta).max_variance
    outcomes = list(patterns(task))
    assert len({failed for failed, _ in outcomes}) == len(outcomes)
    assert max(np.max(spent) for _, spent in outcomes) <= allowed * ROUNDING


@settings(deadline=None)
@given(tasks(), QUERIES)
def test_an_adaptive_plan_has_the_fewest_equal_intervals(task, query):
    model, window, epsilon, *_ = task
    scale = TWINS[query](np.ones(window), axis=0)
    plan = planned(task, ADAPTIVE, query=query, epsilon=epsilon * scale)
    lengths = np.diff(plan.times)
    assert lengths.max() - lengths.min() <= 1
    assert count(task, ADAPTIVE) == len(plan.checkpoints) <= count(task)
    recovery_time, t_sla_ms = task[-2:]
    if plan.checkpoints:  # with one fewer an interval would break ε or T_SLA
        longer = -(-window // len(plan.checkpoints))
        allowed = window**2 * plan.requirement.max_variance / scale**2
        sensors = select_replay(model, allowed / longer).sensors
        assert recovery_time(len(sensors) * longer) > t_sla_ms


@settings(deadline=None)
@given(tasks(), st.sampled_from(METHODS[:3]))
def test_every_recovery_meets_t_sla_and_no_interval_could_be_longer(task, method):
    *_, recovery_time, t_sla_ms = task
    plan = planned(task, method)
    assert all(recovery_time(tuples) <= t_sla_ms for tuples in plan.tuples)
    for tuples, replay in zip(plan.tuples[:-1], plan.replay, strict=False):
        assert recovery_time(tuples + len(replay.sensors)) > t_sla_ms


@settings(deadline=None)
@given(tasks(), st.sampled_from(METHODS[:3]))
def test_intervals_cut_the_window(task, method):
    plan = planned(task, method)
    assert (plan.times[0], plan.times[-1]) == (0, task[1])
    assert np.all(np.diff(plan.times) > 0)
    assert len(plan.replay) == len(plan.times) - 1
    sizes = [len(replay.sensors) for replay in plan.replay]
    assert sizes == sorted(sizes, reverse=True)


@settings(deadline=None)
@given(tasks(), st.floats(0.05, 0.95), st.floats(0, 1))
def test_proposed_at_most_exactly_once_after_any_restoration(task, part, spent):
    model, window, epsilon, delta, *_ = task
    start = max(1, int(part * window)) if window > 1 else 0
    left = window**2 * Requirement(epsilon, delta).max_variance / max(start, 1) ** 2
    restored = np.linspace(0, spent * left, model.size) * (start > 0)
    options = {"start": start, "checkpoint_variance": restored}
    assert count(task, **options) <= count(task, "exactly-once", **options)


@settings(deadline=None)
@given(tasks(), st.sampled_from(METHODS[:3]), st.floats(0.05, 0.95), st.floats(0, 1))
def test_a_sum_tolerates_window_times_what_its_mean_does(task, method, part, spent):
    model, window, epsilon, delta, *_ = task
    start = int(part * window)
    left = window**2 * Requirement(epsilon, delta).max_variance
    debt = np.linspace(0, spent * left / 2, model.size) * (start > 0)
    mean = planned(task, method, start=start, checkpoint_variance=debt / max(start, 1) ** 2)
    total = planned(
        task, method, start=start, checkpoint_variance=debt, query="sum", epsilon=epsilon * window
    )
    assert total.times == mean.times
    assert [r.sensors for r in total.replay] == [r.sensors for r in mean.replay]
    np.testing.assert_allclose(
        total.worst_case_variance, mean.worst_case_variance * window**2, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(total.worst_case_reliability, mean.worst_case_reliability, atol=1e-9)


@settings(deadline=None)
@given(tasks())
def test_each_set_is_that_of_a_fresh_plan_from_its_checkpoint(task):
    plan = planned(task)
    for tau, replay in zip(plan.times, plan.replay, strict=False):
        assert planned(task, start=tau).replay[0].sensors == replay.sensors
