"""D4: upstream backup with a secondary that works, beside the other ways to stand by.

A system is `Parameters` (stream, links, TCP, intervals) and a `Scheme`. `failures` says when each
crash is noticed. `stream` says when tuples are written and cut in segments, and `routes` takes them
through a node and the ACKs back. `recursion.simulate` puts the routes together: what is sent again,
and when it is processed. `messages` lists what a sequence diagram shows of it, `ordering` what
results out of order do to an operator, `closed_form` what can be said without a simulation.

Two references: `ns3` holds stored runs of the same four nodes on the network simulator (made by
`make ns3`), and `processes` starts two of them as real processes and kills them. `experiments`,
`claims` and `figures` make notebook 04 of it.
"""

from aftlib.upstream_backup.failures import Failure
from aftlib.upstream_backup.parameters import Parameters
from aftlib.upstream_backup.recursion import simulate

__all__ = ["Failure", "Parameters", "simulate"]
