"""D4: ways to stand by for a node that dies, simulated, and as real processes."""

from aftlib.upstream_backup.failures import Failure, failure_times
from aftlib.upstream_backup.parameters import Link, Parameters, Tcp
from aftlib.upstream_backup.run import Recovery, Run
from aftlib.upstream_backup.schemes import SCHEMES, Scheme
from aftlib.upstream_backup.simulation import simulate

__all__ = [
    "SCHEMES",
    "Failure",
    "Link",
    "Parameters",
    "Recovery",
    "Run",
    "Scheme",
    "Tcp",
    "failure_times",
    "simulate",
]
