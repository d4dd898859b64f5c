"""The drill's stream, and the judge of what came out of a scheme."""

import numpy as np
import pandas as pd
import pytest

from aftlib.failure_drill.drill import DIGITS, drill, folder_bytes, tallied
from tests.failure_drill.conftest import SMALL


def whole(small):
    """Everything, right and once."""
    window, sensor = (places.ravel() for places in np.indices(small.truth.shape))
    value = small.truth.ravel().copy()
    return pd.DataFrame({"window": window, "sensor": sensor, "value": value, "estimated": False})


def counted(small, came):
    return tallied(small, came, np.random.default_rng(1))


def test_the_stream_is_kept_and_shows_thousandths(small):
    again = drill(small.log.path.parent, **SMALL)
    assert again.strikes == small.strikes
    np.testing.assert_array_equal(again.samples, small.samples)
    np.testing.assert_allclose(small.samples * DIGITS, np.rint(small.samples * DIGITS), atol=1e-9)
    np.testing.assert_allclose(small.truth[3], small.samples[30:40].mean(axis=0))


def test_epsilon_is_in_standard_deviations_of_a_windows_mean(small):
    assert small.requirement.epsilon == pytest.approx(0.8 / np.sqrt(10))


def test_what_is_right_is_nothing_but_right(small):
    found = counted(small, whole(small))
    assert (found.due, found.lost, found.doubled, found.estimated) == (720, 0, 0, 0)
    assert found.wrong == 0 and np.isnan(found.within) and found.largest_error == 0


def test_each_kind_of_harm_is_counted_as_such(small):
    came, epsilon = whole(small), small.requirement.epsilon
    came.loc[3, "value"] += 0.01  # wrong, and not called an estimate
    came.loc[[20, 40], "estimated"] = True
    came.loc[20, "value"] += 0.5 * epsilon
    came.loc[40, "value"] -= 2 * epsilon
    came = pd.concat([came.drop(index=[5, 6, 7]), came.loc[[9, 9]]])
    found = counted(small, came)
    assert (found.lost, found.doubled, found.estimated, found.wrong) == (3, 1, 2, 1)
    assert found.within == 0.5 and (found.share_low, found.share_high) == (0.0, 1.0)
    assert found.largest_error == pytest.approx(2)


def test_what_is_no_number_is_wrong(small):
    came = whole(small)
    came.loc[3, "value"] = np.nan
    came.loc[20, ["value", "estimated"]] = np.nan, True
    found = counted(small, came)
    assert (found.wrong, found.within) == (1, 0.0)


def test_bytes_of_files_and_folders(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"12345")
    (tmp_path / "y").write_bytes(b"12")
    assert folder_bytes([tmp_path / "a", tmp_path / "y"]) == 7


def test_what_goes_away_meanwhile_is_not_counted(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"12345")
    walked = [(str(tmp_path / "a"), [], ["x", "gone"])]
    monkeypatch.setattr("os.walk", lambda path: walked)
    assert folder_bytes([tmp_path / "a"]) == 5
    assert folder_bytes([tmp_path / "a" / "x"]) == 5
