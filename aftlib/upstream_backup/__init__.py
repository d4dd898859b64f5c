"""D4: upstream backup with a secondary that works, and the other standby schemes.

A system is `Parameters` (stream, links, TCP, intervals) and a `Scheme`. `failures` has the time at
which each crash is noticed. `routes` has the times at which tuples are written and cut in segments,
and takes them through a node and the ACKs back. `recursion.simulate` puts the routes together: the
tuples sent again, and when they are processed. `messages` lists the messages of a sequence diagram,
`ordering` has the effect of unordered results on an operator, `closed_form` the results without a
simulation.

Two references: `ns3` holds stored runs of the same four nodes on the network simulator (made by
`make ns3`), and `processes` starts two of them as real processes and kills them. `experiments`,
`claims` and `figures` make notebook 04 of it.
"""

from aftlib.upstream_backup.failures import Failure
from aftlib.upstream_backup.parameters import Parameters
from aftlib.upstream_backup.recursion import simulate

__all__ = ["Failure", "Parameters", "simulate"]
