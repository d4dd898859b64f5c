"""A short soak of `recoverable` under kills, and a control: each harm is counted."""

import os

import numpy as np
import pandas as pd
import pytest

from benchmarks import soak

SECONDS = 1800.0 if os.environ.get("AFT_TRIALS") == "full" else 4.0
SECONDS = float(os.environ.get("AFT_SOAK_SECONDS") or SECONDS)


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(SECONDS + 500)
def test_nothing_is_lost_or_doubled_under_faults(tmp_path):
    score = soak.soak(SECONDS, tmp_path)
    assert soak.broken(score) == []
    assert score["failures"] >= 2 and score["due"] > 0 and score["rejected"] > 0


def test_the_score_has_each_harm():
    windows = np.arange(20)
    wide = pd.DataFrame(
        [soak.samples_of(window).mean(0) for window in windows],
        soak.BEGIN + pd.to_timedelta(windows * soak.SAMPLES, unit="s"),
        soak.names(soak.AFTER),
    )
    wide.iloc[0, soak.BEFORE :] = np.nan  # they join later
    rows = wide.rename_axis("start").reset_index().melt("start", var_name="sensor").dropna()
    rows = rows.assign(state="exact").reset_index(drop=True)
    harms = ("lost", "doubled", "wrong", "outside")
    assert not any(soak.score(rows)[harm] for harm in harms)
    rows.loc[[1, 2], "state"] = "estimated"
    rows.loc[[1, 2], "value"] += [0.5 * soak.EPSILON, 2 * soak.EPSILON]
    rows.loc[3, "value"] += 1
    score = soak.score(pd.concat([rows[rows.index != 5], rows[6:8]]))
    assert [score[harm] for harm in harms] == [1, 2, 1, 1]
    assert soak.broken(score | {"wrong_promises": 3, "bound": 2}) == [
        "1 lost", "2 doubled", "1 wrong", "3 wrong guarantees, at most 2"
    ]  # fmt: skip
