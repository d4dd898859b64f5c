"""A stream that follows a plan: the user's samples through `recoverable`, with outages made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.core.windows import results_of
from aftlib.sensor_plans.sensor_file import SensorTable
from aftlib.sensor_plans.sensor_plan import SensorPlan
from aftlib.streaming.promise import Promise
from aftlib.streaming.stream import recoverable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Windows before the first outage, in which the guard learns.
BEFORE = 350
#: Outages of one machine.
OUTAGES = 10
#: Windows of an outage.
OUTAGE_WINDOWS = 3
#: Windows from the start of an outage to the start of the next one.
APART = 10
SCHEMA = "time timestamp, sensor string, value double"


def follow_plan(
    spark: SparkSession, plan: SensorPlan, table: SensorTable, directory: Path
) -> pd.DataFrame:
    """Stream the last samples of a table through the plan's guarantee, and compare with the truth.

    The plan's machine of the drawn outage sends nothing in some windows. The table has times;
    `directory` must not exist yet.

    Returns
    -------
    DataFrame
        One row per window and sensor from the first outage on: start, sensor, machine ("away" or
        "at work"), state, value, half_width, truth (the result of all samples; NaN
        where the table lacks some), error, epsilon.
    """
    (directory / "incoming").mkdir(parents=True)
    # the plan's guard learned the very windows that are streamed, so the stream begins without
    promise = Promise.from_plan(plan.write(directory / "plan.json"), learned=None)
    window = pd.Timedelta(promise.width, "us")
    samples = pd.DataFrame(table.values, table.time, [*table.names])
    recent = last_windows(samples, window, BEFORE + OUTAGES * APART)
    long = recent.rename_axis("time").reset_index()
    long = long.melt("time", var_name="sensor", value_name="value").dropna()
    start = long["time"].dt.floor(window)
    number = (start - start.min()) // window
    machine = plan.assignment[plan.outage.machine]
    away = long["sensor"].isin(machine) & is_away(number)
    long[~away].to_parquet(directory / "incoming" / "samples.parquet", coerce_timestamps="us")
    rows = run_query(spark, promise, directory)

    aggregated = long.assign(start=start).groupby(["start", "sensor"])["value"]
    sizes = aggregated.size()
    results = results_of(promise.query, aggregated.sum().to_numpy(), sizes.to_numpy())
    truth = pd.Series(results, sizes.index).where(sizes == promise.samples)
    rows = rows.assign(start=pd.DatetimeIndex(rows["start"]).tz_localize("UTC"))
    rows = rows.merge(truth.rename("truth").reset_index(), how="left", on=["start", "sensor"])
    number = (rows["start"] - start.min()) // window
    lost = is_away(number) & rows["sensor"].isin(machine)
    limits = dict(zip(promise.sensors, promise.limits, strict=True))
    rows = rows.assign(
        machine=np.where(lost, "away", "at work"),
        error=(rows["value"] - rows["truth"]).abs(),
        epsilon=rows["sensor"].map(limits),
    )
    return rows[number >= BEFORE].sort_values(["start", "sensor"], ignore_index=True)


def last_windows(samples: pd.DataFrame, window: pd.Timedelta, count: int) -> pd.DataFrame:
    """The rows of the last `count` whole windows, with their times in UTC."""
    times = pd.DatetimeIndex(samples.index)
    times = times.tz_localize("UTC") if times.tz is None else times.tz_convert("UTC")
    starts = times.floor(window)
    end = starts[-1]  # its window may be incomplete, but its samples end the one before
    return samples.set_axis(times)[starts >= end - count * window]


def is_away(number: pd.Series) -> pd.Series:
    """Whether the machine is away in each window, by its number from the first one on."""
    since = number - BEFORE
    return (since >= 0) & (since < OUTAGES * APART) & (since % APART < OUTAGE_WINDOWS)


def run_query(spark: SparkSession, promise: Promise, directory: Path) -> pd.DataFrame:
    """Run `recoverable` on the files of "incoming" until all are read, and return its rows."""
    samples = spark.readStream.schema(SCHEMA).parquet(str(directory / "incoming"))
    writer = recoverable(samples, promise).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(directory / "windows"))
    query.awaitTermination()
    columns = ["start", "sensor", "state", "value", "half_width"]
    return spark.read.parquet(str(directory / "windows")).select(*columns).toPandas()


def count_states(rows: pd.DataFrame) -> pd.DataFrame:
    """Windows of `follow_plan` by machine and state: their number and their errors.

    Columns: machine, state, windows, compared (those with a value and a known truth), within (share
    of these within ε, NaN if there are none), largest_error.
    """
    within = (rows["error"] <= rows["epsilon"]).astype(float).where(rows["error"].notna())
    grouped = rows.assign(within=within).groupby(["machine", "state"])
    counts = grouped.agg(
        windows=("state", "size"),
        compared=("error", "count"),
        within=("within", "mean"),
        largest_error=("error", "max"),
    )
    return counts.reset_index()
