"""Constants, predictions and break-even rates of known recoveries."""

import numpy as np
import pytest

from aftlib.recovery_comparison.break_even import expected_again
from aftlib.recovery_comparison.schemes import EXACT, GUARD, MODEL, exact_of
from tests.recovery_comparison.tables import COSTS, RATES, SENSORS, SHARES, WINDOWS, measurements


def test_constants_are_found_again():
    costs = measurements().costs
    for scheme, expected in COSTS.items():
        assert vars(costs[scheme]) == pytest.approx(vars(expected), rel=0.05, abs=5e-4)


def test_longer_windows_and_limited_rates_are_predicted():
    points = measurements().points
    assert len(points) == len(COSTS) * len(WINDOWS) * len(RATES)
    assert np.allclose(points["predicted_s"], points["seconds"], rtol=0.1)
    assert (points["min"] <= points["seconds"]).all()
    assert (points["seconds"] <= points["max"]).all()


def test_break_even_is_where_both_recoveries_take_equally_long():
    for row in measurements().break_even.to_dict("records"):
        scheme = row["scheme"]
        exact = exact_of(scheme)
        samples = [SHARES[name] * SENSORS * row["width"] for name in (exact, scheme)]
        fixed = [COSTS[exact].fixed_s(samples[0], False), COSTS[scheme].fixed_s(samples[1], True)]
        expected = (samples[0] - samples[1]) / (fixed[1] - fixed[0])
        assert row["measured"] == pytest.approx(expected, rel=0.05)
        assert row["predicted"] == pytest.approx(expected, rel=0.05)


def test_a_scheme_with_less_work_is_faster_at_every_rate():
    measured = measurements()
    rows = measured.recoveries
    rows.loc[rows["scheme"] == MODEL, "estimate_s"] = 0.0
    rows.loc[rows["scheme"] == EXACT, "read_s"] += 0.01
    row = measured.break_even.set_index("scheme").loc[MODEL]
    assert np.isinf(row["measured"]).all() and (row["extra_ms"] < 0).all()


def test_a_guard_that_reads_everything_again_never_pays():
    measured = measurements()
    rows = measured.recoveries
    again = rows.loc[rows["scheme"] == EXACT, "again"].to_numpy()
    rows.loc[rows["scheme"] == GUARD, "again"] = again
    assert expected_again(rows, GUARD, WINDOWS[-1]) == expected_again(rows, EXACT, WINDOWS[-1])
    even = measured.break_even.set_index("scheme")
    assert (even.loc[GUARD, "measured"] == 0).all()


def test_ratios_compare_with_the_exact_scheme_that_loses_the_same_memory():
    measured = measurements()
    ratios = measured.ratios.set_index(["scheme", "width", "rate"])
    means = measured.recoveries.groupby(["scheme", "width", "rate"])["seconds"].mean()
    for (scheme, width, rate), row in ratios.iterrows():
        expected = means[scheme, width, rate] / means[exact_of(scheme), width, rate]
        assert row["ratio"] == pytest.approx(expected)
        assert row["low"] < row["ratio"] < row["high"]
        assert row["predicted"] == pytest.approx(expected, rel=0.1)
    assert measurements(kills=3).ratios[["low", "high"]].isna().all(axis=None)


def test_the_guard_is_expected_to_read_the_share_that_it_reads_of_the_shortest_windows():
    rows = measurements().recoveries
    mine = rows["scheme"] == GUARD
    short = rows["width"] == WINDOWS[0]
    exact = rows.loc[(rows["scheme"] == EXACT) & short, "again"].iloc[0]
    rows.loc[mine & short, "again"] = exact / 4
    rows.loc[mine & ~short, "again"] = exact * 3
    expected = expected_again(rows, EXACT, WINDOWS[1]) / 4
    assert expected_again(rows, GUARD, WINDOWS[1]) == pytest.approx(expected)
