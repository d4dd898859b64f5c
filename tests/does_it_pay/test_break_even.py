"""The constants are found in the unlimited recoveries, and the break-even rate in all."""

import numpy as np
import pandas as pd
import pytest

from aftlib.core.recovery_costs import break_even_rate
from aftlib.does_it_pay.break_even import (
    RESOLUTION_S,
    break_evens,
    measured_break_even,
    measured_costs,
    median_interval,
    points_of,
)
from aftlib.does_it_pay.process_recoveries import EXACT_PROCESS, PROPOSED
from aftlib.does_it_pay.spark_recoveries import EXACT, MODEL
from tests.does_it_pay.tables import COSTS, measurements


def test_the_constants_are_those_of_the_unlimited_recoveries():
    for scheme, costs in measured_costs(measurements(noise=0).recoveries).items():
        assert vars(costs) == pytest.approx(vars(COSTS[scheme]))


def test_the_time_of_a_sample_is_a_slope_and_no_constant_is_below_zero():
    recoveries = measurements(noise=0).recoveries
    exact = recoveries["scheme"] == EXACT_PROCESS
    recoveries.loc[exact, "read_s"] = 0.01 + 1e-5 * recoveries["again"]
    recoveries["seconds"] += 1e-5 * recoveries["again"]
    recoveries.loc[recoveries["scheme"] == MODEL, "commit_s"] = 0.001
    costs = measured_costs(recoveries)
    assert costs[EXACT].sample_s == pytest.approx(1e-5)
    assert costs[EXACT].start_s == pytest.approx(0.5)
    assert costs[MODEL].estimate_s == 0


def test_limited_recoveries_and_larger_cases_do_not_make_the_constants():
    recoveries = measurements(noise=0).recoveries
    others = np.isfinite(recoveries["rate"]) | (recoveries["window"] > 12)
    recoveries.loc[others, ["seconds", "commit_s", "start_s"]] *= 3
    measured = measured_costs(recoveries)
    assert measured[MODEL] == measured_costs(measurements(noise=0).recoveries)[MODEL]
    assert measured_costs(recoveries)[EXACT].start_s == pytest.approx(0.5)


def test_each_point_has_its_median_interval_and_prediction():
    measured = measurements()
    points = points_of(measured.recoveries, measured.costs)
    assert len(points) == 6 * 2 * 4 and (points["kills"] == 9).all()
    assert (points["seconds_low"] <= points["seconds"]).all()
    assert (points["seconds"] <= points["seconds_high"]).all()
    np.testing.assert_allclose(points["predicted_s"], points["seconds"], rtol=0.02)


def test_the_interval_of_a_median_covers_it_about_as_often_as_it_should():
    rng = np.random.default_rng(0)
    ends = [median_interval(rng.exponential(size=15)) for _ in range(200)]
    assert 0.9 < np.mean([low <= np.log(2) <= high for low, high in ends]) <= 1


def test_a_break_even_is_measured_where_the_saved_time_is_zero():
    recoveries = measurements(noise=0).recoveries
    table = break_evens(recoveries, COSTS).set_index(["scheme", "window"])
    rate = break_even_rate(COSTS[EXACT_PROCESS], 576, COSTS[PROPOSED], 86)
    assert table.loc[(PROPOSED, 48), "predicted"] == pytest.approx(rate)
    for column in ("measured", "measured_low", "measured_high"):
        np.testing.assert_allclose(table[column], table["predicted"], rtol=1e-6)


def test_differences_shorter_than_a_slice_of_the_limit_are_not_resolved():
    table = break_evens(measurements(noise=0).recoveries, COSTS).set_index(["scheme", "window"])
    assert table.loc[(PROPOSED, 48), "resolved"] == pytest.approx((576 - 86) / RESOLUTION_S)


def times(rates, seconds):
    return pd.DataFrame({"rate": np.repeat(rates, 5), "work_s": np.repeat(seconds, 5)})


def test_a_start_that_takes_longer_moves_no_break_even():
    recoveries = measurements(noise=0).recoveries
    expected = break_evens(recoveries, COSTS)["measured"]
    late = np.random.default_rng(1).exponential(size=len(recoveries))
    recoveries["seconds"] += late
    recoveries["start_s"] += late
    np.testing.assert_allclose(break_evens(recoveries, COSTS)["measured"], expected, rtol=1e-6)


def test_a_scheme_may_pay_at_every_rate_or_at_none():
    rates = [100.0, 400.0, np.inf]
    exact, flat = times(rates, [2.0, 1.0, 0.6]), times(rates, [2.0, 2.0, 2.0])
    at_every, at_none = times(rates, [0.5, 0.5, 0.5]), times(rates, [2.5, 2.0, 2.0])
    assert measured_break_even(exact, at_every) == (np.inf, np.inf, np.inf)
    assert measured_break_even(flat, at_none) == (0, 0, 0)


def test_the_interval_of_a_break_even_narrows_with_less_noise():
    widths = []
    for noise in (0.002, 0.05):
        table = break_evens(measurements(noise=noise).recoveries, COSTS)
        widths.append((table["measured_high"] / table["measured_low"]).median())
    assert 1 < widths[0] < widths[1]
