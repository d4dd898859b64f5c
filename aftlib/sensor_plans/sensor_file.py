"""A user's file of sensors, wide or long, read and judged fit for a plan; nothing is guessed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.checks import listed
from aftlib.core.datasets import SensorTable, read_long, read_table, usual_step
from aftlib.core.fillvalues import require_no_fill_values
from aftlib.sensor_plans.survey import Tally

MOST_MISSING = 0.5
"""Share of a sensor's samples that may be missing: with more, windows are mostly guesses."""


LONG_GAP = 0.1
"""Share of the steps from which a gap of all sensors parts two campaigns."""


def read_sensors(
    path: Path | str,
    *,
    long: Sequence[str] | None = None,
    time: str | None = None,
    resample: str | None = None,
    drop: Sequence[str] = (),
    missing: Sequence[float] | None = None,
    decimal: str | None = None,
) -> SensorTable:
    """Read sensors that a plan can be made for.

    Parameters
    ----------
    path : path
        CSV or Parquet file. Wide: rows are moments, columns are sensors.
    long : (time, sensor, value), optional
        Columns of a long file, which has one row a sample.
    time, resample, drop, decimal
        As `datasets.read_table`; in a long file, `drop` names sensors.
    missing : sequence of float, optional
        Fill values, which stand for a missing sample. Other values far from all others are refused,
        except where the sequence is empty.

    Raises
    ------
    ValueError
        When the file cannot be read as such a table, has less than two sensors or two steps, or a
        sensor never varies or misses more than half of its samples. The message names the columns
        and the way out.
    """
    how: Any = {"resample": resample, "drop": drop, "missing": missing or (), "decimal": decimal}
    if long is None:
        table = read_table(path, time, **how)
    else:
        if time is not None:
            raise ValueError(f"time must not go with long, got {time!r}: long names it already")
        table = read_long(path, long, **how)
    if not table.values.size:
        raise ValueError("the file must hold at least two rows, got none: give a longer record")
    if missing is None or len(missing):
        require_no_fill_values(table.fill_values)
    tally = Tally.of(table.values)
    if resample is None and isinstance(table.time, pd.DatetimeIndex):
        require_common_steps(table, tally)
    require_usable(table.names, tally)
    return table


def require_common_steps(table: SensorTable, tally: Tally) -> None:
    """Refuse sensors that report at different times, so that few steps have several samples."""
    if (tally.missing <= MOST_MISSING * tally.steps).any():
        return
    places = [np.flatnonzero(np.isfinite(column)) for column in table.values.T]
    distances = [np.diff(place) for place in places if len(place) > 2]
    regular = [
        np.median(distance) > 1 and (abs(distance / np.median(distance) - 1) < 0.1).mean() > 0.6
        for distance in distances
    ]
    if not regular or np.mean(regular) < 0.5:
        return
    times = pd.DatetimeIndex(table.time)
    raise ValueError(
        f"sensors must report at the same times, got {tally.missing.mean() / tally.steps:.0%} of "
        f"the samples missing in steps of {times[1] - times[0]}; average the samples around each "
        f"step with resample={usual_step(table.values, times)!r}"
    )


def require_usable(names: Sequence[str], tally: Tally) -> None:
    """Refuse too few sensors or steps, and sensors that never vary or miss most samples."""
    n, steps = len(names), tally.steps
    if n < 2:
        raise ValueError(
            f"the file must hold at least two sensors, got {list(names)}: one has no other "
            "to be estimated from"
        )
    if steps < 2:
        raise ValueError(f"the file must hold at least two rows, got {steps}: give a longer record")
    share = tally.missing / steps
    lost = list(compress(names, share > MOST_MISSING))
    if len(lost) == n and tally.silence.longest[0] > LONG_GAP * steps:
        raise ValueError(
            "the file must have samples at most of its steps, got none of any sensor at "
            f"{int(tally.silent[0]):,} of {steps:,} steps, {int(tally.silence.longest[0]):,} of "
            "them in a row; plan for the rows before or after that gap alone"
        )
    if len(lost) == n:
        raise ValueError(
            f"the columns must have most of their samples, got {share.max():.0%} missing; take a "
            "longer step with resample="
        )
    if lost:
        raise ValueError(
            f"column {listed(lost)} must have most of its samples, got {share.max():.0%} missing; "
            f"leave it out with drop={lost[:8]!r}, or take a longer step with resample="
        )
    still = list(compress(names, tally.lowest == tally.highest))
    if len(still) == n:
        raise ValueError("no column varies, got one value only in each: is this the right file?")
    if still:
        raise ValueError(
            f"column {listed(still)} must vary, got one value only; leave it out with "
            f"drop={still[:8]!r}"
        )
