"""A short soak: four schemes under faults lose and double nothing, and end by themselves."""

import os

import pytest

from benchmarks.soak import broken, soak
from benchmarks.soak_processes import SCHEMES

SECONDS = 1800.0 if os.environ.get("AFT_TRIALS") == "full" else 4.0
SECONDS = float(os.environ.get("AFT_SOAK_SECONDS") or SECONDS)


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(SECONDS + 500)
def test_nothing_is_lost_or_doubled_under_faults(tmp_path):
    report = soak(SECONDS, tmp_path)
    assert list(report["schemes"]) == list(SCHEMES)
    assert broken(report) == []
    for name, one in report["schemes"].items():
        own = one["score"]
        assert own["failures"] >= 1 + name.startswith(("D2", "D5")) and own["due"] > 0, name
        assert len(one["memory_mb"]) == len(one["at_s"]) > 0 and max(one["memory_mb"]) > 0, name
