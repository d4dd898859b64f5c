"""Plotly figures of the experiments; each takes a tidy DataFrame and returns a figure."""
