"""Real sensors on an even grid, from a Parquet file with the times as its index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.sensortable import SensorTable


def read_table(path: Path | str) -> SensorTable:
    """Read a wide Parquet file."""
    return even_grid(pd.read_parquet(path))


def even_grid(frame: pd.DataFrame) -> SensorTable:
    """Return the samples of a frame whose rows lie on an even grid."""
    values = frame.to_numpy(dtype=float, na_value=np.nan)
    return SensorTable(values, tuple(map(str, frame.columns)), frame.index)
