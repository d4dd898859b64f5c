"""Windows that are put right from an archive of the samples, and the errors of their estimates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aftlib.core.checks import listed
from aftlib.core.intervals import clustered_share_interval
from aftlib.core.storage import CURRENT, new_version
from aftlib.streaming.aggregation import (
    ROWS,
    columns_for,
    key_of,
    read_samples,
    results_of_windows,
)
from aftlib.streaming.promise import Promise
from aftlib.streaming.rows import states_of, used_results

_REPLACED = ("state", "value", "half_width", "samples")
"""Columns of a window that the archive may put right."""
_AUDIT = ("estimated", "compared", "outages", "wrong", "share", "low", "high", "largest_error")
"""Columns of the audit of the estimates that were made; a stream's metrics audit predictions."""
ALL = "(all)"
"""Row of the audit for all sensors."""


class Repair(NamedTuple):
    """The result of `repair`."""

    table: DataFrame
    """The windows put right."""
    audit: pd.DataFrame
    """The errors of the estimates that were made, by kind of window and sensor."""


def repair(
    windows: DataFrame,
    archive: DataFrame,
    promise: Promise,
    *,
    into: Path | str | None = None,
    group: str | None = None,
    time: str = "time",
    sensor: str = "sensor",
    value: str = "value",
) -> Repair:
    """Put right the windows of which an archive has more samples, and audit the estimates.

    Spark computes the windows again, from the first start in the table to the last. A window of
    which the archive has more samples than came takes the place of the row with its start, group
    and sensor: a lost or an estimated one, one that late samples missed, or none at all. An
    estimate stays where the archive could only replace it by a lost window. The table `windows` is
    only read, so it may be the one that a stream still writes.

    Parameters
    ----------
    windows : DataFrame
        The table that `recoverable` wrote, no stream: ``spark.read.parquet("windows")``. Other
        columns are kept.
    archive : DataFrame
        All samples, no stream; without repeated ones, if the stream was without them.
    promise : Promise
        The one of the stream.
    into : str or Path, optional
        A folder of this machine, in which Spark can write. The table becomes its version
        ``into/current`` in one step, so who resolves this link, or a call after a crash, finds the
        whole table of the last call that ended. By default nothing is written.
    group, time, sensor, value : str
        The archive's columns, as of `recoverable`.

    Returns
    -------
    Repair
        `table`, a DataFrame: the columns of `windows`, then `repaired`, true where a row was put
        right or added, and `before`, its state, value, half_width and samples until then (null if
        there was no row). Its rows with `repaired` are what a ``MERGE INTO`` or an upsert by start,
        group and sensor needs, of a table that the stream does not write: a gap's first windows
        are written late, and would then be there twice.

        `audit`, a pandas DataFrame, has a row per kind of estimate (of "missing" windows, or of
        "partial" ones that had enough samples to be used) and sensor, and one for all sensors,
        "(all)":

        - `estimated`: estimates that were made; `compared`: those whose whole window the archive
          has; `outages`: runs of estimates of a group, of any sensors and both kinds, without a
          pause of more than the promise's `horizons` windows, that have a compared one;
        - `wrong`: compared estimates with an error above ε, and `share` of these; `low` and `high`:
          its 95 % interval, which holds if outages are independent, also those of different groups,
          however alike the errors of one are. A `low` above δ, and above what the guard's slack
          permits, is a reason to suspect that losses depend on the data. Estimates are judged by
          the ε of `promise`, so give no windows of before a change of ε;
        - `largest_error`.

    Raises
    ------
    ValueError
        When a DataFrame is a stream or lacks a column, a window has two rows, or the folder has
        other contents.
    TimeoutError
        When another process writes into the folder.

    Examples
    --------
    >>> windows = spark.read.parquet("windows")  # doctest: +SKIP
    >>> archive = spark.read.parquet("archive")  # doctest: +SKIP
    >>> table, audit = repair(windows, archive, promise, into="repaired")  # doctest: +SKIP
    """
    require_tables(windows, archive)
    if re.match(r"[A-Za-z][\w+.-]+:", str(into)):
        raise ValueError(
            f"into must be a folder of this machine, got {str(into)!r}: leave it out, and write "
            "the table yourself, to a new place"
        )
    columns = columns_for(promise, archive, time=time, sensor=sensor, value=value, group=group)
    group = columns.get("group")  # without backticks
    needed = ["start", "sensor", *_REPLACED] + ([] if group is None else [group])
    if missing := [name for name in needed if name not in windows.columns]:
        raise ValueError(
            f"windows must have the columns of recoverable, got none for {listed(missing)}: read "
            "the table that it wrote"
        )
    if "before" in windows.columns:
        raise ValueError(
            "windows must be the table that recoverable wrote, got one of repair: read the former, "
            "which has the estimates"
        )
    first, last = range_of(windows, group)
    again = windows_of_archive(archive, promise, columns, first, last)
    table = merged(windows, again, promise, group)
    if into is not None:
        with new_version(into) as scratch:
            table.write.mode("overwrite").parquet(f"file://{scratch.resolve()}")
            if not any(scratch.glob("*.parquet")):
                raise ValueError(
                    f"into must be a folder in which Spark's workers can write, got {str(into)!r}, "
                    "which another machine has: leave it out, and write the table yourself, to a "
                    "new place"
                )
        current = (Path(into) / CURRENT).resolve()
        table = windows.sparkSession.read.parquet(f"file://{current}")
    return Repair(table, audit_of(estimates_of(table, group), promise))


def require_tables(windows: DataFrame, archive: DataFrame) -> None:
    """Refuse what is no table."""
    for name, frame in {"windows": windows, "archive": archive}.items():
        if not isinstance(frame, DataFrame) or frame.isStreaming:
            raise ValueError(
                f"{name} must be a Spark DataFrame and no stream, got a {type(frame).__name__}: "
                "give spark.read.parquet(…) or another table"
            )


def range_of(windows: DataFrame, group: str | None) -> tuple[int, int]:
    """Return the first and the last start in microseconds, 0 and 0 of an empty table.

    ValueError where a window has two rows.
    """
    start = F.unix_micros("start")
    keys = F.count_distinct("start", key_of(group), "sensor")
    counts = windows.agg(F.count("*"), keys, F.min(start), F.max(start))
    ((rows, different, first, last),) = counts.collect()
    if rows != different:
        raise ValueError(
            f"windows must have each start, group and sensor once, got {rows} rows of {different}: "
            "give group=…, or drop repeated rows"
        )
    return first or 0, last or 0


def replaced_part_of(prefix: str) -> Column:
    """Return what the archive may put right of a row, as one column."""
    return F.struct(*(F.col(prefix + name).cast(ROWS[name]).alias(name) for name in _REPLACED))


def windows_of_archive(
    archive: DataFrame, promise: Promise, columns: Mapping[str, str], first: int, last: int
) -> DataFrame:
    """Return the windows from the start `first` to `last` as the stream would have written them.

    Columns: those of `results_of_windows`, then state and half_width.
    """
    samples = read_samples(archive, promise, columns)
    begin, end = (F.timestamp_micros(F.lit(at)) for at in (first, last + promise.width - 1))
    samples = samples.where(F.isnull("reason") & F.col("time").between(begin, end))
    results = results_of_windows(samples, promise).where(F.col("start").between(first, last))
    # what only a guard needs would have to be loaded in each process
    content = replace(promise, model=None, predictor=None).content
    schema = results.withColumns({"state": F.lit(""), "half_width": F.col("value")}).schema
    return results.mapInPandas(partial(rows_of_results, content=content), schema)


def rows_of_results(frames: Iterable[pd.DataFrame], content: str) -> Iterator[pd.DataFrame]:
    """Yield windows with their states, as `rows_of` has them of windows that came."""
    promise = Promise.from_content(content)
    limits = dict(zip(promise.sensors, promise.limits, strict=True))
    for frame in frames:
        numbers = frame[["value", "samples", "variance"]].to_numpy(float)
        result, samples, variance = numbers.T
        value = used_results(promise, result, samples)
        own_limits = frame["sensor"].map(limits).to_numpy(float)
        state, half_width = states_of(promise, value, samples, variance, own_limits)
        yield frame.assign(state=state, value=value, half_width=half_width)


def merged(windows: DataFrame, again: DataFrame, promise: Promise, group: str | None) -> DataFrame:
    """Return the windows with those in their places of which the archive has more samples."""
    old = windows.select(
        F.unix_micros("start").alias("start"),
        key_of(group).alias("key"),
        "sensor",
        F.struct("*").alias("old"),
    )
    new = again.select("start", "key", "sensor", F.struct(*_REPLACED).alias("new"))
    worse = F.col("old.state").eqNullSafe("estimated") & F.col("new.state").eqNullSafe("lost")
    more = F.col("new.samples") > F.coalesce("old.samples", F.lit(0))
    better = F.isnotnull("new.value") & more & ~worse
    rows = old.join(new, ["start", "key", "sensor"], "full").withColumn("repaired", better)
    rows = rows.where(F.col("repaired") | F.col("old").isNotNull())
    replaced: dict[str | None, Column] = {
        name: F.when(F.col("repaired"), F.col("new")[name]).otherwise(F.col("old")[name])
        for name in _REPLACED
    }
    of_both = replaced | {
        "start": F.timestamp_micros("start"),
        "sensor": F.col("sensor"),
        "window_time": F.timestamp_micros(F.col("start") + promise.width - 1),
        group: F.col("key"),
    }
    columns = [of_both.get(name, F.col("old")[name]).alias(name) for name in windows.columns]
    before = F.when(F.col("repaired") & F.col("old").isNotNull(), replaced_part_of("old."))
    return rows.select(*columns, "repaired", before.alias("before"))


def estimates_of(table: DataFrame, group: str | None) -> pd.DataFrame:
    """Return the estimates that were made: key, start, sensor, samples, and error if known."""
    before = F.when(F.col("repaired"), F.col("before")).otherwise(replaced_part_of(""))
    known = F.col("repaired") & (F.col("state") == "exact")
    estimated = table.withColumn("was", before).where("was.state = 'estimated'")
    return estimated.select(
        key_of(group).alias("key"),
        F.unix_micros("start").alias("start"),
        "sensor",
        F.col("was.samples").alias("samples"),
        F.when(known, F.abs(F.col("value") - F.col("was.value"))).alias("error"),
    ).toPandas()


def audit_of(estimates: pd.DataFrame, promise: Promise) -> pd.DataFrame:
    """Return the audit of `estimates_of`, with a row per kind of estimate and sensor."""
    estimates = estimates.sort_values(["key", "start"], ignore_index=True)
    # an outage has lost windows between its estimates, because each horizon is certified apart
    pause = estimates["start"].diff() > promise.horizons * promise.step
    estimates["outage"] = (pause | (estimates["key"] != estimates["key"].shift())).cumsum()
    limits = estimates["sensor"].map(dict(zip(promise.sensors, promise.limits, strict=True)))
    estimates["wrong"] = estimates["error"] > limits.astype(float)
    least = promise.share * promise.samples
    kind = pd.Series(np.where(estimates["samples"] < least, "missing", "partial"), name="kind")
    rows = []
    for name, of_kind in estimates.groupby(kind):
        rows.append({"kind": name, "sensor": ALL} | audit_row(of_kind))
        for sensor, own in of_kind.groupby("sensor"):
            rows.append({"kind": name, "sensor": sensor} | audit_row(own))
    return pd.DataFrame(rows, columns=["kind", "sensor", *_AUDIT]).set_index(["kind", "sensor"])


def audit_row(estimates: pd.DataFrame) -> dict[str, Any]:
    """Return the row of the audit for some estimates."""
    compared = estimates.dropna(subset="error")
    outages = compared.groupby("outage")["wrong"].agg(["sum", "size"]).to_numpy(float)
    row: dict[str, Any] = {
        "estimated": len(estimates),
        "compared": len(compared),
        "outages": len(outages),
        "wrong": int(compared["wrong"].sum()),
    }
    if len(compared):
        low, high = clustered_share_interval(outages[:, 0], outages[:, 1])
        row |= {"share": compared["wrong"].mean(), "low": low, "high": high}
        row["largest_error"] = compared["error"].max()
    return row
