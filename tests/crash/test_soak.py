"""A short soak: four schemes struck side by side lose and double nothing, and end by themselves."""

import os

import pytest

from aftlib.failure_drill.lives import LIVES
from aftlib.failure_drill.soak import broken, soak

SECONDS = 1800.0 if os.environ.get("AFT_TRIALS") == "full" else 4.0
SECONDS = float(os.environ.get("AFT_SOAK_SECONDS") or SECONDS)


@pytest.mark.crash
@pytest.mark.timeout(SECONDS + 500)
def test_nothing_is_lost_or_doubled_while_all_are_struck(tmp_path):
    found = soak(SECONDS, tmp_path)
    assert list(found["schemes"]) == list(LIVES)
    assert broken(found) == []
    for name, one in found["schemes"].items():
        own = one["found"]
        assert own["failures"] >= 1 + name.startswith(("D2", "D5")) and own["due"] > 0, name
        assert len(one["memory_mb"]) == len(one["at_s"]) > 0 and max(one["memory_mb"]) > 0, name
