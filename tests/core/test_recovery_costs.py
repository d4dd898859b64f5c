"""The cost model of a recovery: its time, the break-even read rate, and the monthly cost."""

import math
from dataclasses import replace

import numpy as np
import pytest

from aftlib.core.recovery_costs import (
    MONTH_S,
    Alternatives,
    Operation,
    RecoveryCosts,
    Scheme,
    monthly_costs,
)
from tests.refusals import refused

EXACT = RecoveryCosts(start_s=0.5, sample_s=1e-6, estimate_s=0.3, checkpoint_s=0.05)
APPROXIMATE = RecoveryCosts(start_s=0.5, sample_s=1e-6, estimate_s=0.2, checkpoint_s=0.05)
OPERATION = Operation(
    sensors=10, samples_per_s=1000, window_s=60, read_rate=1500, failures_per_month=30
)


def test_a_recovery_starts_reads_estimates_and_commits():
    assert APPROXIMATE.recovery_s(1000, True, 500) == pytest.approx(0.5 + 0.001 + 2 + 0.2 + 0.05)
    assert APPROXIMATE.recovery_s(1000, False, 500) == pytest.approx(0.5 + 0.001 + 2 + 0.05)
    assert APPROXIMATE.recovery_s(0, True, 0) == pytest.approx(0.75)
    assert APPROXIMATE.recovery_s(1, True, 0) == math.inf


CHOICE = Alternatives(
    RecoveryCosts(0.5, 1e-3, 0.3, 0.05), RecoveryCosts(0.6, 1e-3, 0.2, 0.05), lost=1000, again=250
)


def times(choice, rate):
    exact = choice.exact.recovery_s(choice.lost, False, rate)
    return exact, choice.approximate.recovery_s(choice.again, True, rate)


def test_an_exact_recovery_takes_t_sla_at_the_rate_from_which_on_it_keeps_it():
    exact_s, _ = times(CHOICE, CHOICE.keeps_from(t_sla_s=4.0))
    assert exact_s == pytest.approx(4.0)
    assert CHOICE.keeps_from(t_sla_s=1.55) == math.inf  # as long as its fixed part
    nothing_lost = replace(CHOICE, lost=0, again=0)
    assert nothing_lost.keeps_from(0.55) == 0 and nothing_lost.keeps_from(0.5) == math.inf


@pytest.mark.parametrize("saving", [0.0, 0.05, 0.5])
def test_an_approximate_recovery_saves_its_share_at_the_rate_below_which_it_is_faster(saving):
    exact = RecoveryCosts(0.5, 0, 0, 0.05)
    choice = replace(CHOICE, exact=exact, approximate=replace(exact, estimate_s=0.4))
    exact_s, approximate_s = times(choice, choice.faster_below(saving))
    assert approximate_s == pytest.approx((1 - saving) * exact_s)


def test_a_recovery_that_saves_nothing_is_never_faster_and_one_without_extra_always_is():
    assert replace(CHOICE, again=1000).faster_below() == 0
    assert replace(CHOICE, again=960).faster_below(least_saving=0.05) == 0
    assert CHOICE.faster_below() == math.inf  # it processes 750 samples fewer, in .75 s


def month_by_month(operation, scheme, failures, rng):
    """Mean time and samples of drawn failures, one after the other."""
    times, samples = [], []
    for _ in range(failures):
        since_checkpoint = rng.uniform(0, operation.window_s / scheme.checkpoints)
        lost = since_checkpoint * operation.samples_per_s * scheme.lost
        again = scheme.replayed * lost
        spare = operation.read_rate - operation.samples_per_s
        time = scheme.costs.start_s + scheme.costs.checkpoint_s + again * scheme.costs.sample_s
        time += again / spare + (scheme.costs.estimate_s if scheme.replayed < 1 else 0)
        times.append(time)
        samples.append(again)
    return np.mean(times), np.mean(samples)


SCHEMES = [
    Scheme("exact", EXACT, 0.5, 1),
    Scheme("D1", APPROXIMATE, 0.5, 0),
    Scheme("D2", APPROXIMATE, 1, 0.25, checkpoints=3),
]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_month_is_the_mean_of_failures_at_random_moments(scheme):
    cost = monthly_costs(OPERATION, [scheme]).loc[scheme.name]
    seconds, samples = month_by_month(OPERATION, scheme, 20_000, np.random.default_rng(1))
    assert cost.recovery_s == pytest.approx(seconds, rel=0.02)
    assert cost.outage_minutes == pytest.approx(30 * cost.recovery_s / 60)
    assert cost.gb_read_again == pytest.approx(30 * samples * 8 / 1e9, rel=0.02)


def test_checkpoints_and_estimates_of_a_month_are_counted():
    exact, d1, d2 = monthly_costs(OPERATION, SCHEMES).itertuples()
    assert d2.checkpoint_minutes == pytest.approx(MONTH_S / 60 * 3 * 0.05 / 60)
    assert exact.recovery_s == pytest.approx(EXACT.recovery_s(15_000, False, 500))
    assert exact.estimated_results == 0
    assert d1.estimated_results == pytest.approx(30 * 5 * (1 + 0.5 / 60))
    assert d2.estimated_results == pytest.approx(30 * 7.5)


def test_input_that_live_reads_use_up_is_never_read_again():
    full = replace(OPERATION, read_rate=1000)
    exact, d1, _ = monthly_costs(full, SCHEMES).itertuples()
    assert exact.outage_minutes == math.inf
    assert exact.gb_read_again == 0
    assert d1.outage_minutes == pytest.approx(30 * 0.75 / 60)
    idle = replace(OPERATION, read_rate=1, failures_per_month=0)
    (calm,) = monthly_costs(idle, SCHEMES[:1]).itertuples()
    assert calm.outage_minutes == 0


def test_no_recovery_ends_where_the_source_is_slower_than_the_stream():
    for cost in monthly_costs(replace(OPERATION, read_rate=999), SCHEMES).itertuples():
        assert cost.recovery_s == cost.outage_minutes == math.inf
        assert cost.gb_read_again == 0


def test_estimates_of_a_partial_replay_that_skips_its_input_have_no_jump():
    guards = [Scheme("guard", APPROXIMATE, 0.5, again, skips_input=True) for again in (0, 1e-9)]
    all_estimated, nearly_all = monthly_costs(OPERATION, guards).itertuples()
    assert nearly_all.estimated_results == pytest.approx(all_estimated.estimated_results)


test_numbers_outside_their_range_are_refused = refused(
    lambda given, change: replace(given, **change),
    (OPERATION, {"sensors": 0}, "sensors must be a whole number at least 1, got 0"),
    (OPERATION, {"samples_per_s": 0}, "samples_per_s must be above 0, got 0"),
    (OPERATION, {"failures_per_month": -1}, "failures_per_month must be at least 0, got -1"),
    (OPERATION, {"read_rate": math.nan}, "read_rate must be above 0, got nan"),
    (SCHEMES[0], {"lost": 0}, "lost must be above 0 and at most 1, got 0"),
    (SCHEMES[0], {"replayed": 1.1}, "replayed must be at least 0 and at most 1, got 1.1"),
    (SCHEMES[0], {"checkpoints": 0}, "checkpoints must be at least 1, got 0"),
    (CHOICE, {"lost": -1}, "lost must be at least 0, got -1"),
    (CHOICE, {"again": 1001}, "again must be at least 0 and at most 1000, got 1001"),
    (EXACT, {"estimate_s": -1}, "estimate_s must be at least 0, got -1"),
)
