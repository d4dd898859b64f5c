"""The same four nodes on the network simulator ns-3, as an oracle for the simulation here."""
