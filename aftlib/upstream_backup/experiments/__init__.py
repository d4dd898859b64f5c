"""D4's experiments, in the order of notebook 04.

`parameters`, `recoveries` (figs 3 to 6, closed form, ns-3), `beyond` the document.
"""
