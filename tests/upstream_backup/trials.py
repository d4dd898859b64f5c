"""Trials in this process, for tests that need no Spark."""

import pytest

from aftlib.upstream_backup.experiments import recoveries


def in_this_process(spark, function, points):
    """Stand in for `aftlib.spark.sweep.sweep`."""
    return [*map(function, points)]


def trials_of(case):
    """Return the frame of `recoveries`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recoveries, "sweep", in_this_process)
        return recoveries.recoveries(None, case)
