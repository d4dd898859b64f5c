"""D3's experiments, in the order of notebook 03.

`parameters`, `strategies` on Spark (table 1, figs 1, 5, 6), `servers` (sockets, stores, engines).
"""
