"""The drill that several files of tests begin with."""

import pytest

from aftlib.failure_drill.schedule import draw_drill

SMALL = {
    "sensors": 12, "workers": 4, "width": 10, "windows": 60, "batch_windows": 5, "calm": 0.4,
    "faults": 3, "epsilon_sd": 0.8, "delta": 0.05, "pause_s": 0.1, "seed": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return draw_drill(tmp_path_factory.mktemp("drill"), **SMALL)
