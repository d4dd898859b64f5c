"""Means over random failures, for the tests of the simulation and of the closed form."""

import numpy as np

from aftlib.upstream_backup.failures import Failure, failure_times
from aftlib.upstream_backup.recursion import simulate


def mean_of(scheme, parameters, measure, count=400, node="primary"):
    found = (simulate(parameters, scheme, [Failure(t, node)]) for t in failure_times(count, 1))
    return np.mean([measure(one.recoveries[0]) for one in found], axis=0)
