"""Samples of sensors on an even grid of steps, and the faults of the file they came from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.checks import refuse_columns, require_number
from aftlib.core.fillvalues import FillValue
from aftlib.core.sensorlog import SensorLog


@dataclass(frozen=True)
class Quality:
    """Counts of the faults in a table, so that nothing is dropped silently."""

    rows: int  # of the file
    out_of_order: int = 0  # rows with an earlier time than the row before them; they were sorted
    duplicates: int = 0  # rows that repeated another of the same time exactly; one was kept
    missing_steps: int = 0  # steps of the grid without a row; kept as missing
    missing_values: int = 0  # empty or NaN in the rows present; kept as missing
    non_finite: int = 0  # infinite values; kept as missing
    averaged: int = 0  # rows that share a step with others after resampling; their mean was kept
    marked: int = 0  # values that the user marked as missing
    filtered: int = 0  # rows left out, because they do not satisfy the user's conditions

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)


@dataclass(frozen=True)
class SensorTable:
    """Samples on an even grid."""

    values: np.ndarray  # (steps, n), NaN where a sample is missing
    names: tuple[str, ...]  # the n keys
    time: pd.Index  # of each step: a DatetimeIndex, or step numbers where the file had none
    quality: Quality
    row_numbers: tuple[str, ...] = ()  # columns that only numbered the rows; left out
    fill_values: tuple[FillValue, ...] = ()  # values that may stand for missing samples
    ignored: tuple[str, ...] = ()  # columns of a long file that are not read

    def split(self, share: float = 0.5) -> tuple[SensorTable, SensorTable]:
        """First and second part of the steps, for fitting and for evaluation.

        ValueError when the share is outside (0, 1), or a sensor has no value in one of the parts.
        """
        require_number("share", share, above=0, below=1)
        cut = int(len(self.values) * share)
        parts = []
        for word, steps in (("first", slice(cut)), ("second", slice(cut, None))):
            part = SensorTable(self.values[steps], self.names, self.time[steps], self.quality)
            silent = ~np.isfinite(part.values).any(axis=0)
            wanted = f"have a value in the {word} part of the steps"
            refuse_columns(self.names, silent, wanted, "none")
            parts.append(part)
        return parts[0], parts[1]

    def write_log(self, path: Path | str) -> SensorLog:
        """Write the samples as a replayable log."""
        return SensorLog.write(path, self.values, self.names, {"quality": self.quality.as_dict()})
