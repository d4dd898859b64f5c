"""Real sensor data: a user's own wide CSV or Parquet file, put on an even grid of steps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.sensorlog import SensorLog


@dataclass(frozen=True)
class Quality:
    """What was found in a table, counted so that nothing is dropped in silence.

    Attributes
    ----------
    rows : int
        Rows as they came.
    out_of_order : int
        Rows with an earlier time than the row before them; they were sorted.
    duplicates : int
        Rows that repeated another of the same time exactly; one of each was kept.
    missing_steps : int
        Steps of the grid without a row; they are kept as missing.
    missing_values : int
        Values that were empty or NaN in the rows present; kept as missing.
    non_finite : int
        Values that were infinite; kept as missing.
    """

    rows: int
    out_of_order: int
    duplicates: int
    missing_steps: int
    missing_values: int
    non_finite: int

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)


@dataclass(frozen=True)
class SensorTable:
    """Samples on an even grid.

    Attributes
    ----------
    values : ndarray, shape (steps, n)
        NaN where a sample is missing.
    names : tuple of str
        The n keys.
    time : Index
        Time of each step: a DatetimeIndex, or step numbers where the file had none.
    quality : Quality
    """

    values: np.ndarray
    names: tuple[str, ...]
    time: pd.Index
    quality: Quality

    def split(self, share: float = 0.5) -> tuple[SensorTable, SensorTable]:
        """First and second part of the steps, for fitting and for evaluation."""
        if not 0 < share < 1:
            raise ValueError(f"share must lie inside (0, 1), got {share!r}")
        cut = int(len(self.values) * share)
        return tuple(  # type: ignore[return-value]
            SensorTable(self.values[s], self.names, self.time[s], self.quality)
            for s in (slice(cut), slice(cut, None))
        )

    def write_log(self, path: Path | str) -> SensorLog:
        """Write the samples as a replayable log."""
        return SensorLog.write(path, self.values, self.names, {"quality": self.quality.as_dict()})


def read_table(path: Path | str, time: str | None = None) -> SensorTable:
    """Read a wide file: rows are moments, columns are sensors.

    Parameters
    ----------
    path : path
        A .csv or .parquet file.
    time : str, optional
        Column of times; default the index or the first column that holds dates. Without any, rows
        are taken as consecutive steps.

    Returns
    -------
    SensorTable

    Raises
    ------
    ValueError
        When the file cannot be read as such a table, a sensor's column is not numeric or has no
        value at all, times do not lie on an even grid, or two different rows share a time.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise ValueError(f"path must end in .csv or .parquet, got {str(path)!r}")
    if not path.exists():
        raise ValueError(f"path must be an existing file, got {str(path)!r}")
    frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    return even_grid(frame, time)


def even_grid(frame: pd.DataFrame, time: str | None = None) -> SensorTable:
    """Put a wide frame on an even grid of steps; parameters and errors as `read_table`."""
    sensors, times = _apart(frame, time)
    values = _numeric(sensors)
    infinite = int(np.isinf(values).sum())
    values[np.isinf(values)] = np.nan
    missing = int(np.isnan(values).sum()) - infinite
    names = tuple(str(c) for c in sensors.columns)
    if times is None:
        quality = Quality(len(frame), 0, 0, 0, missing, infinite)
        return SensorTable(values, names, pd.RangeIndex(len(frame)), quality)
    out_of_order = int((np.diff(times.asi8) < 0).sum())
    values, times, duplicates = _once_each(values, times)
    gridded, grid = _placed(values, times)
    quality = Quality(
        len(frame), out_of_order, duplicates, len(grid) - len(times), missing, infinite
    )
    return SensorTable(gridded, names, grid, quality)


def _apart(frame: pd.DataFrame, time: str | None) -> tuple[pd.DataFrame, pd.DatetimeIndex | None]:
    """Sensor columns and times."""
    if time is not None:
        if time not in frame.columns:
            raise ValueError(f"time must be a column, got {time!r}; columns are {_some(frame)}")
        return frame.drop(columns=time), _dates(frame[time], time)
    if isinstance(frame.index, pd.DatetimeIndex):
        return frame, frame.index
    for column in frame.columns:
        kind = frame[column].dtype
        if pd.api.types.is_datetime64_any_dtype(kind):
            return frame.drop(columns=column), _dates(frame[column], column)
        if not pd.api.types.is_numeric_dtype(kind):
            return frame.drop(columns=column), _dates(frame[column], column)
    return frame, None


def _dates(column: pd.Series, name: str) -> pd.DatetimeIndex:
    try:
        times = pd.DatetimeIndex(pd.to_datetime(column, format="ISO8601"))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"column {name!r} must hold numbers or ISO 8601 times, got {column.iloc[0]!r} "
            f"({error}); drop it, or name the column of times with time="
        ) from error
    if times.hasnans:
        raise ValueError(f"column {name!r} must have a time in every row, got an empty one")
    return times


def _numeric(sensors: pd.DataFrame) -> np.ndarray:
    for column in sensors.columns:
        if not pd.api.types.is_numeric_dtype(sensors[column].dtype):
            raise ValueError(f"column {column!r} must be numeric, got {sensors[column].dtype}")
        if not np.isfinite(sensors[column].to_numpy(dtype=float)).any():
            raise ValueError(f"column {column!r} must hold a finite value, got none; drop it")
    if sensors.empty:
        raise ValueError(f"frame must hold sensors and rows, got shape {sensors.shape}")
    return sensors.to_numpy(dtype=float, copy=True)


def _once_each(
    values: np.ndarray, times: pd.DatetimeIndex
) -> tuple[np.ndarray, pd.DatetimeIndex, int]:
    """Rows sorted by time, exact repetitions once."""
    order = np.argsort(times.asi8, kind="stable")
    values, times = values[order], times[order]
    again = np.flatnonzero(times[1:] == times[:-1]) + 1
    differ = [i for i in again if not np.array_equal(values[i], values[i - 1], equal_nan=True)]
    if differ:
        raise ValueError(
            f"two different rows share the time {times[int(differ[0])]} ({len(differ)} such rows); "
            "keep one of them or average them first"
        )
    keep = np.setdiff1d(np.arange(len(times)), again)
    return values[keep], times[keep], len(again)


def _placed(values: np.ndarray, times: pd.DatetimeIndex) -> tuple[np.ndarray, pd.DatetimeIndex]:
    """Rows at their steps of an even grid whose period is the commonest distance."""
    if len(times) < 2:
        return values, times
    gaps = np.diff(times.asi8)
    distances, counts = np.unique(gaps, return_counts=True)
    period = distances[counts.argmax()]
    steps, rest = np.divmod(times.asi8 - times.asi8[0], period)
    if rest.any():
        i = int(np.flatnonzero(rest)[0])
        raise ValueError(
            f"times must lie on an even grid, got {times[i]} off the period of "
            f"{pd.Timedelta(period, unit=times.unit)}; resample the file first"
        )
    gridded = np.full((int(steps[-1]) + 1, values.shape[1]), np.nan)
    gridded[steps] = values
    grid = times[0] + np.arange(len(gridded)) * pd.Timedelta(period, unit=times.unit)
    return gridded, pd.DatetimeIndex(grid)


def _some(frame: pd.DataFrame) -> str:
    return ", ".join(map(repr, frame.columns[:8])) + (" …" if frame.shape[1] > 8 else "")
