"""All that a plan takes from samples, be they in memory or too many for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd

from aftlib.core.datasets import SensorTable
from aftlib.core.windows import Windows
from aftlib.sensor_plans.inventory import Inventory
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.window_results import WindowResults, window_results

MOST_ROWS = 200_000
"""Samples before the middle to which the plain model is fitted at most."""
LEAST_WINDOWS = 8


@dataclass(frozen=True, eq=False)
class Survey:
    """All that a plan takes from samples."""

    inventory: Inventory
    results: WindowResults
    recent: np.ndarray  # (at most MOST_ROWS, n) samples, the last ones of the first half

    @classmethod
    def of(cls, table: SensorTable, inventory: Inventory, question: Question) -> Self:
        """Survey of a table in memory; ValueError when it has too few windows."""
        windows = answerable_windows(table.names, inventory.steps, inventory.step, question)
        results = window_results(table.values, table.names, windows, inventory.step)
        return cls(inventory, results, table.values[recent_rows(inventory.steps)])


def recent_rows(steps: int) -> slice:
    """The last steps of the first half, to which the plain model is fitted."""
    return slice(max(0, steps // 2 - MOST_ROWS), steps // 2)


def answerable_windows(
    names: Sequence[str], steps: int, step: pd.Timedelta | None, question: Question
) -> Windows:
    """The question's windows over so many steps, which need not have been read.

    ValueError when there are too few windows, or fewer sensors than there are to be workers.
    """
    windows = Windows(*question.steps(step), question.query)
    count = len(windows.ending_in(0, steps))
    if count < LEAST_WINDOWS:
        raise ValueError(
            f"window must leave at least {LEAST_WINDOWS} windows, got {count} of {windows.width} "
            f"steps in {steps} steps; give more rows or a smaller window"
        )
    n = len(names)
    if (question.workers or n) > n:
        raise ValueError(f"workers must be at most the {n} sensors, got {question.workers!r}")
    return windows
