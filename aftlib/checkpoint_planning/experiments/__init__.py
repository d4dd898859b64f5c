"""D2's experiments, in the order of notebook 02.

`parameters`, `cases` (figs 6, 7), `costs` (fig. 5), `recoveries` (fig. 1, failures), `guarded`.
"""
