"""Tuples as the partial aggregates that a merge takes."""

import numpy as np

from aftlib.shared_state.aggregates import Partials


def lift(aggregate, windows, keys, values):
    """Each tuple by itself."""
    values = np.asarray(values)
    columns = {"count": [np.ones_like(values)], "mean": [values, np.ones_like(values)]}
    return Partials(windows, keys, np.stack(columns.get(aggregate.name, [values]), axis=1))


def partials(aggregate, windows, keys, values):
    """All of them by window and key."""
    return aggregate.group(lift(aggregate, windows, keys, values))
