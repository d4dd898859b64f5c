"""D4: ways to stand by for a node that dies, simulated, and as real processes."""

from aftlib.standby.failures import Failure, failure_times
from aftlib.standby.parameters import Link, Parameters, Tcp
from aftlib.standby.run import Recovery, Run
from aftlib.standby.schemes import SCHEMES, Scheme
from aftlib.standby.simulation import simulate

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
