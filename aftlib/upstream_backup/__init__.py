"""D4: upstream backup with a secondary that works, and the other standby schemes.

A system is `Parameters` (stream, links, TCP, intervals) and a `Scheme`. `failures` computes when
each crash is detected. `routes` computes when tuples are written, sent in segments, processed, and
acknowledged. `recursion.simulate` combines the routes: which tuples are sent again, and when they
are processed. `closed_form` computes results without a simulation.

There are two references. `ns3` holds stored runs of the same four nodes on the network simulator
(made by `make ns3`). `processes` starts primary and secondary as real processes and kills them.
`experiments`, `claims` and `figures` are used by notebook 04.
"""

from aftlib.upstream_backup.failures import Failure
from aftlib.upstream_backup.parameters import Parameters
from aftlib.upstream_backup.recursion import simulate

__all__ = ["Failure", "Parameters", "simulate"]
