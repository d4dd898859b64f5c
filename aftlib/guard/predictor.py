"""A user's own prediction of lost windows, in place of the guard's.

The theorem of `guard.accounts` holds for every predictor. A poor one only gets fewer certificates.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

import numpy as np


class Predictor(Protocol):
    """The methods of a predictor. `Guard` needs no more than these two.

    The guard calls `predict` for each worker and horizon 1 … H of each window, with the worker's
    values as if it had failed that many windows ago. So a window costs H times the number of
    workers such calls. The guard calls `learn` H windows late; then a prediction in an outage is
    the same as the one that the accounts judged.

    If the guard is stored, as on a stream, a predictor also has ``to_bytes()``, which returns its
    state, and ``from_bytes(data)``, which returns a predictor that continues from it.
    """

    def predict(self, windows: np.ndarray, /) -> Any:
        """Return an estimate of the newest window's sensors, shape (n,).

        `windows`, shape (H + 1, n), has the newest window in its last row, NaN where a value is
        missing. The guard's own prediction replaces each result that is NaN or infinite.
        """

    def learn(self, window: np.ndarray, /) -> None:
        """Learn the next window, shape (n,), NaN where a value is missing; some value is there."""


STORED = ("predict", "learn", "to_bytes", "from_bytes")
"""Methods of a predictor whose guard can be stored."""


def require_methods(predictor: Any, *names: str) -> None:
    """Refuse a predictor without one of these methods."""
    missing = [name for name in names if not callable(getattr(predictor, name, None))]
    if missing:
        raise ValueError(
            f"predictor must have the methods {', '.join(names)}, got "
            f"{type(predictor).__name__} without {', '.join(missing)}: add them"
        )


def new_predictor(path: str) -> Any:
    """Return a new predictor of the class "module:Class"; ValueError when there is none."""
    module, _, name = str(path).partition(":")
    try:
        predictor = getattr(import_module(module), name)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"predictor must name a class without arguments such as 'my_module:MyClass', got "
            f"{path!r} ({error}): put its module where each Python process of Spark imports from"
        ) from error
    require_methods(predictor, *STORED)
    return predictor


def predict_each(
    predictor: Predictor, windows: np.ndarray, workers: np.ndarray, horizons: int
) -> np.ndarray:
    """Return predictions of the newest window if each worker had failed 1 … `horizons` rounds ago.

    `windows` has shape (H + 1, n), the newest last; the result has shape (horizons, n).
    """
    predicted = np.empty((horizons, workers.size))
    for worker in np.unique(workers):
        own = workers == worker
        known = windows.copy()
        for h in range(1, horizons + 1):
            known[-h, own] = np.nan
            values = np.asarray(predictor.predict(known.copy()), float)
            if values.shape != workers.shape:
                raise ValueError(
                    f"predictor.predict must return an array of shape {workers.shape}, got shape "
                    f"{values.shape}: return an estimate of each sensor"
                )
            predicted[h - 1, own] = values[own]
    return predicted
