from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.windows import AGGREGATES
from aftlib.documents.checkpoint_planning.experiments import FIGURE_1_QUERY
from aftlib.documents.checkpoint_planning.plan import (
    ADAPTIVE,
    DOCUMENT_RECOVERY_TIME,
    METHODS,
    RecoveryTime,
    plan_checkpoints,
)
from tests.core.test_windows import TWINS
from tests.refusals import refused

WINDOW = 10_000
GROUPS = block_model(100, 5, 60, 30)

EPSILONS = (0.05, 0.08, 0.10, 0.11, 0.12, 0.13, 0.15)
COUNTS = {  # exactly-once/no-relaxation/proposed for each ε, by T_SLA in ms
    35: "140/140/116 140/140/75 140/140/36 140/140/14 140/28/6 140/14/3 140/6/1",
    50: "43/43/36 43/43/24 43/43/12 43/43/6 43/8/3 43/4/2 43/2/1",
    75: "19/19/17 19/19/11 19/19/6 19/19/3 19/3/1 19/1/1 19/0/0",
    100: "13/13/11 13/13/8 13/13/4 13/13/2 13/2/1 13/1/1 13/0/0",
    200: "5/5/5 5/5/3 5/5/2 5/5/1 5/1/1 5/0/0 5/0/0",
}
CELLS = [
    (t_sla, epsilon, cell)
    for t_sla, row in COUNTS.items()
    for epsilon, cell in zip(EPSILONS, row.split(), strict=True)
]


def plan(epsilon=0.12, t_sla_ms=50, method="proposed", model=GROUPS, window=WINDOW, **options):
    requirement = Requirement(epsilon, 0.05)
    return plan_checkpoints(
        model, window, requirement, DOCUMENT_RECOVERY_TIME, t_sla_ms, method, **options
    )


def fig1(method="proposed"):
    return replace(FIGURE_1_QUERY, method=method).first_plan


def sizes(result):
    return [len(replay.sensors) for replay in result.replay]


@pytest.mark.parametrize(("t_sla_ms", "epsilon", "cell"), CELLS)
def test_digest_counts(t_sla_ms, epsilon, cell):
    methods = ("exactly-once", "no-relaxation", "proposed")
    counts = [len(plan(epsilon, t_sla_ms, method).checkpoints) for method in methods]
    assert "/".join(map(str, counts)) == cell


def test_digest_plan():
    result = plan()
    assert result.times == (0, 1161, 3483, 8127, 10_000)
    assert result.checkpoints == (1161, 3483, 8127)
    assert sizes(result) == [20, 10, 5, 0]
    assert result.tuples == (23_220, 23_220, 23_220, 0)
    assert result.worst_case_reliability.shape == (4, 100)
    least = result.worst_case_reliability.min(axis=1)
    assert least == pytest.approx([0.9545, 0.9564, 0.9733, 0.9997], abs=5e-5)
    assert plan(epsilon=1).times == (0, WINDOW) and sizes(plan(epsilon=1)) == [0]
    assert plan(window=1).times == (0, 1)


def test_figure_1():
    result = fig1()
    assert result.times == (0, 3, 7)
    assert [replay.sensors for replay in result.replay] == [(0, 2), (0,)]
    assert result.tuples == (6, 4)
    assert fig1("exactly-once").times == (0, 2, 4, 6, 7)
    assert fig1("no-relaxation").times == (0, 3, 6, 7)


@pytest.mark.parametrize(("start", "restored"), [(0, 0.0), (3000, np.linspace(0, 0.004, 100))])
def test_worst_case_variance_is_equation_16(start, restored):
    result = plan(start=start, checkpoint_variance=np.zeros(100) + restored)
    tau, replay = result.times[1], result.replay[1]
    rest = GROUPS.aggregate(WINDOW - tau).posterior_variance(replay.sensors)
    expected = (start**2 * restored + (WINDOW - tau) ** 2 * rest) / WINDOW**2
    np.testing.assert_allclose(result.worst_case_variance[1], expected, rtol=1e-12)


@pytest.mark.parametrize("query", AGGREGATES)
def test_restored_variance_is_that_of_the_aggregate_so_far(query):
    result = plan(0.12 * TWINS[query](np.ones(WINDOW), axis=0), query=query)
    estimated = GROUPS.aggregate(3483 - 1161, "sum").posterior_variance(result.replay[1].sensors)
    expected = estimated * (TWINS[query](np.ones(3483), axis=0) / 3483) ** 2
    np.testing.assert_allclose(result.restored_variance(1), expected, rtol=1e-12)


def test_targets_differ_after_a_restoration():
    restored = plan().restored_variance(0)
    assert restored.max() > restored.min() == 0
    again = plan(start=1161, checkpoint_variance=restored)
    assert again.checkpoint_variance is not restored
    assert again.times[0] == 1161
    assert again.times[-1] == WINDOW
    assert again.times == (1161, 2709, 7353, WINDOW)
    assert sizes(again) == [15, 5, 0]
    assert not set(again.replay[0].sensors) & set(plan().replay[0].sensors)


def test_no_relaxation_keeps_the_set_of_the_windows_beginning():
    first = plan(method="no-relaxation")
    later = plan(method="no-relaxation", start=5000)
    assert {replay.sensors for replay in first.replay} == {first.replay[0].sensors}
    assert later.replay[0].sensors == first.replay[0].sensors


def test_no_relaxation_replays_more_if_the_restored_checkpoint_needs_it():
    restored = np.full(100, 0.01)
    later = plan(method="no-relaxation", start=5000, checkpoint_variance=restored)
    assert len(later.replay[0].sensors) > 20
    assert np.all(Requirement(0.12, 0.05).is_met_by(later.worst_case_reliability))


def test_numpy_numbers_give_plain_times():
    result = plan(window=np.int64(WINDOW), start=np.int32(5))
    assert {type(t) for t in result.times} == {int}


def test_a_plan_is_read_only_and_copies_its_argument():
    restored = np.zeros(100)
    result = plan(checkpoint_variance=restored)
    restored[0] = 1
    assert result.checkpoint_variance[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        result.checkpoint_variance[0] = 1


@pytest.mark.parametrize(("epsilon", "most"), [(0.05, 6), (0.08, 2), (0.1, 2), (0.11, 1)])
def test_an_adaptive_plan_needs_a_sixth_of_the_checkpoints(epsilon, most):
    result = plan(epsilon, 50, ADAPTIVE)
    assert len(result.checkpoints) == most <= len(plan(epsilon, 50).checkpoints) / 6
    alone = max(
        (end - begin) * replay.variance.max() / WINDOW**2
        for begin, end, replay in zip(result.times, result.times[1:], result.replay, strict=False)
    )
    assert result.requirement.reliability(alone) >= 0.95 - 1e-9
    assert result.worst_case_reliability.min() < 0.95  # it relies on a new plan after a failure


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", [0.05, 0.12, 0.13, 1])
def test_too_short_t_sla_names_the_shortest_that_works(method, epsilon):
    with pytest.raises(ValueError, match=r"t_sla_ms must be at least .* got 1;") as caught:
        plan(epsilon, 1, method)
    shortest = float(re.search(r"at least ([0-9.e-]+) ", str(caught.value))[1])
    if method == ADAPTIVE:  # once failures have spent ε, all sensors are replayed
        assert shortest == DOCUMENT_RECOVERY_TIME(100)
    assert plan(epsilon, shortest, method).times[-1] == WINDOW
    with pytest.raises(ValueError, match=f"at least {shortest!r} to replay"):
        plan(epsilon, np.nextafter(shortest, 0), method)


@pytest.mark.parametrize("method", ["proposed", "no-relaxation"])
def test_spent_tolerance_names_the_smallest_epsilon_that_works(method):
    restored = np.zeros(100)
    restored[7] = 0.02
    options = {"start": 9000, "checkpoint_variance": restored}
    with pytest.raises(ValueError, match=r"nothing of epsilon = 0\.12 for sensor 'X8'") as caught:
        plan(method=method, **options)
    smallest = float(re.search(r"at least ([0-9.e-]+),", str(caught.value))[1])
    assert plan(smallest, method=method, **options).times[-1] == WINDOW
    for less in (smallest * (1 - 1e-9), 1e-200):
        with pytest.raises(ValueError, match=f"nothing of .* of at least {repr(smallest)[:12]}"):
            plan(less, method=method, **options)
    assert plan(method="exactly-once", **options).worst_case_reliability[0, 7] < 0.95


def test_tolerance_spent_to_the_last_replays_every_sensor():
    requirement = Requirement(0.12, 0.05)
    restored = np.full(100, WINDOW**2 * requirement.max_variance / 5000**2 * (1 + 1e-14))
    assert sizes(plan(start=5000, checkpoint_variance=restored))[0] == 100


@pytest.mark.parametrize("interval", [-1, 4])
def test_interval_outside_the_plan_is_refused(interval):
    with pytest.raises(
        ValueError, match=rf"interval must be .* below 4 .* least 0, got {interval}"
    ):
        plan().restored_variance(interval)


def some(value):
    return np.where(np.arange(100) == 3, value, 0.0)


@pytest.mark.parametrize("changed", ["requirement", "recovery_time"])
def test_what_is_no_requirement_or_recovery_time_is_refused(changed):
    with pytest.raises(ValueError, match=f"{changed} must be a Re.*, got int 28: give"):
        replace(FIGURE_1_QUERY, **{changed: 28}).plan()


test_impossible_arguments_are_refused = refused(
    lambda options: plan(**options),
    *[({"window": w}, f"window must be a whole number .* got {w!r}") for w in (0, 2.5, "10")],
    *[({"start": s}, f"start must be .* below 10000 .* got {s!r}") for s in (-1, WINDOW, 0.5)],
    (
        {"start": 5, "checkpoint_variance": [0] * 3},
        r"variance must be 100 finite numbers, .* got shape \(3,\)",
    ),
    *[
        (
            {"start": 5, "checkpoint_variance": some(bad)},
            rf"must be .* with \[{bad}\] out of bounds",
        )
        for bad in (-1.0, np.nan, np.inf)
    ],
    (
        {"checkpoint_variance": some(0.5)},
        r"and 0 if start is 0, got .* with \[0\.5\] out of bounds and start = 0;",
    ),
    ({"method": "best"}, "method must be one of proposed, .* got 'best'"),
    ({"query": "mode"}, "query must be one of mean, sum.* got 'mode'"),
    ({"query": ["sum"]}, "query must be one of mean, sum.* got"),
    ({"t_sla_ms": "50ms"}, "t_sla_ms must be at least .* 20 tuples, got '50ms'"),
    ({"model": np.eye(2)}, "model must be a GaussianModel, got ndarray .*: give GaussianModel"),
    (
        {"t_sla_ms": pd.Timedelta("50ms")},
        r"t_sla_ms must be of type float, got Timedelta.*; give a number .* t_sla_ms / pd",
    ),
    ({"window": Fraction(10)}, r"window must be of type int, got .*; give int\(window\)"),
    ({"t_sla_ms": np.nan}, "t_sla_ms must be at least .* 20 tuples, got nan"),
)


def test_document_constants():
    assert RecoveryTime(28.33, 9.332e-4) == DOCUMENT_RECOVERY_TIME
    assert DOCUMENT_RECOVERY_TIME(0) == 28.33
    assert DOCUMENT_RECOVERY_TIME(100_000) == pytest.approx(121.65)


@given(
    st.floats(0, 1e4),
    st.floats(1e-6, 1e3),
    st.one_of(st.integers(0, 10**6).map(float), st.floats(0, 1e6)),
)
def test_most_tuples_meet_t_sla_and_one_more_does_not(fixed, per_tuple, extra):
    recovery_time = RecoveryTime(fixed, per_tuple)
    t_sla_ms = fixed + extra
    most = recovery_time.max_tuples(t_sla_ms)
    assert recovery_time(most) <= t_sla_ms < recovery_time(most + 1)


def test_endless_t_sla_is_bounded():
    assert RecoveryTime(1, 1e-300).max_tuples(math.inf) == 2**53


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_impossible_numbers_are_refused(bad):
    for call, message in (
        (lambda: DOCUMENT_RECOVERY_TIME.max_tuples(bad), r"t_sla_ms must be at least .*28\.33"),
        (lambda: DOCUMENT_RECOVERY_TIME(bad), "tuples must be at least 0"),
        (lambda: RecoveryTime(bad, 1), "fixed_ms must be at least 0"),
        (lambda: RecoveryTime(1, bad), "per_tuple_ms must be above 0"),
        (lambda: RecoveryTime(math.inf, bad), "fixed_ms must be at least 0, got inf"),
        (lambda: RecoveryTime(1, 0.0), "per_tuple_ms must be above 0, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
