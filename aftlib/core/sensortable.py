"""Samples of sensors on an even grid of steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.sensorlog import SensorLog


@dataclass(frozen=True)
class SensorTable:
    """Samples on an even grid."""

    values: np.ndarray  # (steps, n), NaN where a sample is missing
    names: tuple[str, ...]  # the n keys
    time: pd.Index  # of each step

    def split(self, share: float = 0.5) -> tuple[SensorTable, SensorTable]:
        """First and second part of the steps, for fitting and for evaluation."""
        cut = int(len(self.values) * share)
        parts = (slice(cut), slice(cut, None))
        first, second = (
            SensorTable(self.values[steps], self.names, self.time[steps]) for steps in parts
        )
        return first, second

    def write_log(self, path: Path | str) -> SensorLog:
        """Write the samples as a replayable log."""
        return SensorLog.write(path, self.values, self.names)
