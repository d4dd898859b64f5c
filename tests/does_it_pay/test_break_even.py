"""The unlimited recoveries give the constants, and all recoveries the break-even rate."""

import numpy as np
import pandas as pd
import pytest

from aftlib.core.recovery_costs import break_even_rate
from aftlib.does_it_pay.break_even import (
    break_evens,
    measured_costs,
    median_interval,
    points_of,
)
from aftlib.does_it_pay.process_recoveries import EXACT_PROCESS, PROPOSED
from aftlib.does_it_pay.spark_recoveries import EXACT, GUARD, MODEL
from tests.does_it_pay.tables import COSTS, measurements


def test_the_constants_are_those_of_the_unlimited_recoveries():
    for (scheme, sensors), costs in measured_costs(measurements(noise=0).recoveries).items():
        assert vars(costs) == pytest.approx(vars(COSTS[scheme])) and sensors == 12


def test_the_time_of_a_sample_is_a_slope_and_no_constant_is_below_zero():
    recoveries = measurements(noise=0).recoveries
    exact = recoveries["scheme"] == EXACT_PROCESS
    recoveries.loc[exact, "read_s"] = 0.01 + 1e-5 * recoveries["again"]
    recoveries["seconds"] += 1e-5 * recoveries["again"]
    recoveries.loc[recoveries["scheme"] == MODEL, "work_s"] = 0.001
    costs = measured_costs(recoveries)
    assert costs[EXACT, 12].sample_s == pytest.approx(1e-5)
    assert costs[EXACT, 12].start_s == pytest.approx(0.5)
    assert costs[MODEL, 12].estimate_s == 0


def test_longer_windows_do_not_make_the_constants():
    recoveries = measurements(noise=0).recoveries
    longer = recoveries["window"] > 12
    recoveries.loc[longer, ["seconds", "commit_s", "start_s", "work_s"]] *= 3
    assert measured_costs(recoveries) == measured_costs(measurements(noise=0).recoveries)


def test_each_number_of_sensors_has_its_own_constants():
    few, many = measurements(noise=0).recoveries, measurements(noise=0).recoveries
    slow = (many["scheme"] == MODEL) & (many["sensors"] == 12)
    many["sensors"] = 24
    many.loc[slow, ["seconds", "work_s"]] += 0.1
    costs = measured_costs(pd.concat([few, many]))
    assert costs[MODEL, 12].estimate_s == pytest.approx(0.05)
    assert costs[MODEL, 24].estimate_s == pytest.approx(0.15)


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


def table_of(recoveries):
    return break_evens(recoveries).set_index(["scheme", "window"])


def test_a_break_even_is_measured_where_the_saved_time_is_zero():
    table = table_of(measurements(noise=0).recoveries)
    rate = break_even_rate(COSTS[EXACT_PROCESS], 576, COSTS[PROPOSED], 86)
    assert table.loc[(PROPOSED, 48), "predicted"] == pytest.approx(rate)
    for column in ("predicted_low", "predicted_high", "measured", "measured_low", "measured_high"):
        np.testing.assert_allclose(table[column], table["predicted"], rtol=1e-6)
    np.testing.assert_allclose(table[["ratio_low", "ratio_high"]], 1, rtol=1e-6)


def test_only_the_shortest_windows_give_the_constants_and_predict():
    recoveries = measurements().recoveries
    table = table_of(recoveries)
    assert (table["constants"] == (table.index.get_level_values("window") == 12)).all()
    longer = (recoveries["window"] == 48) & (recoveries["scheme"] == PROPOSED)
    recoveries.loc[longer, "work_s"] += 0.05
    slower = table_of(recoveries)
    assert slower.loc[(PROPOSED, 48), "predicted"] == table.loc[(PROPOSED, 48), "predicted"]
    assert slower.loc[(PROPOSED, 48), "measured"] == pytest.approx(
        table.loc[(PROPOSED, 48), "measured"] / 2, rel=0.1
    )
    assert slower.loc[(PROPOSED, 48), "ratio_high"] < 0.6


def test_a_guard_is_predicted_by_the_share_that_it_reads_again_in_the_shortest_windows():
    recoveries = measurements(noise=0).recoveries
    some = (recoveries["scheme"] == GUARD) & (recoveries.index % 9 == 0)
    again = 0.5 * recoveries["sensors"] * recoveries["window"]
    limited = np.isfinite(recoveries["rate"])
    recoveries.loc[some, "again"] = again[some].astype(int)
    recoveries.loc[some & limited, "work_s"] += (again / recoveries["rate"])[some & limited]
    table = table_of(recoveries)
    share = recoveries[(recoveries["scheme"] == GUARD) & (recoveries["window"] == 12)]["again"]
    rate = break_even_rate(COSTS[EXACT], 288, COSTS[GUARD], 288 * share.mean() / 72)
    assert table.loc[(GUARD, 48), "predicted"] == pytest.approx(rate)
    assert table.loc[(GUARD, 48), "measured"] == pytest.approx(rate)
    assert table.loc[(GUARD, 48), "predicted_low"] < 0.99 * rate


def test_a_longer_start_moves_no_break_even():
    recoveries = measurements(noise=0).recoveries
    expected = break_evens(recoveries)["measured"]
    late = np.random.default_rng(1).exponential(size=len(recoveries))
    recoveries["seconds"] += late
    recoveries["start_s"] += late
    np.testing.assert_allclose(break_evens(recoveries)["measured"], expected, rtol=1e-6)


@pytest.mark.parametrize(("changed", "rate"), [(-0.06, np.inf), (2.0, 0.0), (np.nan, np.nan)])
def test_a_scheme_may_pay_at_every_rate_or_hardly_at_any_or_be_unknown(changed, rate):
    recoveries = measurements(noise=0).recoveries
    model = (recoveries["scheme"] == MODEL) & (recoveries["window"] == 48)
    recoveries.loc[model, "work_s"] += changed
    row = table_of(recoveries).loc[(MODEL, 48)]
    rates = row[["measured", "measured_low", "measured_high"]].astype(float)
    np.testing.assert_allclose(rates, rate, atol=200)


def test_a_scheme_that_saves_no_samples_pays_at_every_rate_or_at_none():
    recoveries = measurements(noise=0).recoveries
    model, exact = (recoveries["scheme"] == name for name in (MODEL, EXACT))
    for column in ("again", "planned"):
        recoveries.loc[model, column] = recoveries.loc[exact, column].to_numpy()
    limited = np.isfinite(recoveries["rate"]) & model
    recoveries.loc[limited, "work_s"] += (recoveries["again"] / recoveries["rate"])[limited]
    assert table_of(recoveries).loc[(MODEL, 48), "measured"] == 0
    recoveries.loc[model, "work_s"] -= 0.1
    assert table_of(recoveries).loc[(MODEL, 48), "measured"] == np.inf


def test_nothing_is_measured_at_a_single_common_rate():
    recoveries = measurements().recoveries
    other = (recoveries["scheme"] == EXACT) & np.isfinite(recoveries["rate"])
    recoveries.loc[other, "rate"] += 1
    table = table_of(recoveries)
    assert table.loc[MODEL, ["predicted", "measured"]].isna().all(axis=None)
    assert table.loc[PROPOSED, ["predicted", "measured"]].notna().all(axis=None)


def test_the_interval_covers_the_rate_about_as_often_as_it_should():
    rate = break_even_rate(COSTS[EXACT], 288, COSTS[GUARD], 0)
    inside = []
    for seed in range(40):
        recoveries = measurements(noise=0.02, kills=6, seed=seed).recoveries
        rows = recoveries[recoveries["scheme"].isin([EXACT, GUARD])]
        low, high = table_of(rows).loc[(GUARD, 48), ["measured_low", "measured_high"]]
        inside.append(low <= rate <= high)
    assert sum(inside) >= 33


def test_the_interval_of_a_break_even_narrows_with_less_noise():
    widths = []
    for noise in (0.002, 0.05):
        table = break_evens(measurements(noise=noise).recoveries)
        widths.append((table["measured_high"] / table["measured_low"]).median())
    assert 1 < widths[0] < widths[1]
