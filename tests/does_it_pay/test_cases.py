"""Streams of real and generated sensors: windows without gaps, and ε of the windows' means."""

import numpy as np
import pandas as pd
import pytest

from aftlib.core.datasets import read_table
from aftlib.core.paths import beijing_pm25
from aftlib.does_it_pay.cases import make_case, whole_windows
from tests.does_it_pay.in_process import CASE, small_case

REAL = CASE | {"sensors": 4, "learned": 100, "measured": 5}


def test_epsilon_is_in_standard_deviations_of_a_windows_mean():
    case = small_case(epsilon_sd=0.7)
    assert case.requirement.epsilon == pytest.approx(0.7 / np.sqrt(12))
    step = case.replay_query("proposed").model
    np.testing.assert_allclose(step.aggregate(12).covariance, case.model.covariance)


def test_real_windows_that_are_measured_have_no_gap_and_nothing_is_filled_in():
    case = make_case("beijing", **REAL)
    table = read_table(beijing_pm25()).values[:, :4]
    learned, measured = case.values[: 100 * 12], case.values[100 * 12 :]
    np.testing.assert_array_equal(learned, table[: 100 * 12])
    assert np.isnan(learned).any() and not np.isnan(measured).any()
    later = table[100 * 12 :][: 12 * 200].reshape(-1, 12, 4)
    whole = [window for window in later if np.isfinite(window).all()]
    np.testing.assert_array_equal(measured, np.concatenate(whole[:5]))


def test_a_users_file_is_a_stream_like_the_stations(tmp_path):
    table = read_table(beijing_pm25())
    frame = pd.DataFrame(table.values[:3000, :4], columns=list("abcd"))
    frame.to_csv(tmp_path / "own.csv", index=False)
    own, real = (make_case(d, **REAL) for d in (str(tmp_path / "own.csv"), "beijing"))
    assert own.model.names == ("a", "b", "c", "d")
    np.testing.assert_allclose(own.values, real.values, rtol=1e-6)


def test_the_model_of_real_sensors_is_of_the_windows_that_are_learned_from():
    case, longer = (make_case("beijing", **REAL | {"measured": n}) for n in (5, 50))
    np.testing.assert_array_equal(case.model.covariance, longer.model.covariance)
    np.testing.assert_allclose(case.model.mean, np.nanmean(case.truth[:100], axis=0))


def test_a_stream_that_is_too_short_is_refused():
    values = np.arange(40.0).reshape(20, 2)
    values[13] = np.nan
    assert len(whole_windows(values, 4, 2, 2)) == 16
    with pytest.raises(ValueError, match="data must hold 3 windows of 4 steps without a gap after"):
        whole_windows(values, 4, 2, 3)
