"""D4: upstream backup in which the secondary works while nothing fails.

The upstream node stores each tuple in the queue of the node that it goes to, until ACKs take it
out: the downstream node sends a level-0 ACK of the results that have arrived, and the node passes
it on to the upstream node as a level-1 ACK of their tuples. When a node fails, its queue is sent
again to the other.

In the order in which data pass through them: `system` describes nodes, links and intervals (D4
table 1), the standby schemes, and a failure with its detection. `simulation` sends a stream through
the system. `closed_form` has the mean length of a queue and the traffic without a simulation.
`experiments` runs both. `stored_runs` has the runs of the network simulator ns-3, with which they
are compared. `figures` and `claims` show and judge them.
"""
