"""D4's reference tables on the network simulator ns-3: its scenario, and the runs."""
