"""D4: upstream backup in which the secondary works while nothing fails.

In the order in which data pass through them: `system` describes nodes, links and intervals (D4
table 1), the standby schemes, and a failure with its detection. `simulation` sends a stream through
the system. `closed_form` has the mean length of a queue and the traffic without a simulation.
`experiments` runs both, also against the stored runs of the network simulator ns-3 (folder
``ns3``); `figures` and `claims` show and judge them.
"""
