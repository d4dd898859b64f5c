"""Samples in a table or a stream, as the results of windows."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from aftlib.core.checks import listed
from aftlib.core.windows import AGGREGATES
from aftlib.guard.estimator import LARGEST
from aftlib.streaming.promise import Promise, microseconds

ROWS = {
    "sensor": "string",
    "state": "string",
    "value": "double",
    "half_width": "double",
    "samples": "bigint",
    "recoverable": "int",
}
"""Columns of a window's row, besides its times and its group, with their types."""
WATERMARK = "spark.watermarkDelayMs"
"""Metadata by which Spark marks the column of a watermark, with its delay; tables keep it."""
OF_WINDOWS = -1
"""The delay in our marks of the times of windows, which no `withWatermark` writes. So a table of
windows is recognized: a stream that reads it has no watermark."""
_TYPES = {
    "time": ("timestamp",),  # Spark's watermark takes no other
    "sensor": ("string",),
    "value": ("tinyint", "smallint", "int", "bigint", "float", "double"),
}
_NO_GROUP = (
    *("float", "double", "array", "map", "struct", "variant"),  # NaN; no equality in Python
    *("interval", "time(", "void", "string collate"),  # no key of Spark's state
)


def column_of(stream: DataFrame, argument: str, name: str) -> str:
    """Return a column's name without backticks; ValueError if it does not fit the argument."""
    if not isinstance(name, str):
        raise ValueError(f"{argument} must be a column's name, got {name!r}: give a text")
    if name not in stream.columns and name[:1] == name[-1:] == "`":
        name = name[1:-1].replace("``", "`")
    exact = setting_of(stream, "spark.sql.caseSensitive") == "true"
    fold = str if exact else str.lower
    columns = [field for field in stream.schema.fields if fold(field.name) == fold(name)]
    kinds = [column.dataType.simpleString() for column in columns]
    if argument == "group":
        wanted = "names or whole numbers"
        fits = not "".join(kinds).startswith(_NO_GROUP)
    else:
        wanted = f"type {' or '.join(_TYPES[argument])}"
        fits = {*kinds} <= {*_TYPES[argument]}
    if len(columns) != 1 or not fits:
        named = [f"{column.name}: {kind}" for column, kind in zip(columns, kinds, strict=True)]
        raise ValueError(
            f"{argument} must name one column of {wanted}, got {name!r} for "
            f"{listed(named) or 'none'}: rename, cast or drop columns (there are "
            f"{listed(stream.columns)})"
        )
    if argument == "group" and name.lower() in ("start", *ROWS, "window_time"):
        raise ValueError(
            f"group must not be named as a column of the result, got {name!r}: rename it"
        )
    return columns[0].name


def columns_for(promise: Promise, frame: DataFrame, **names: str | None) -> dict[str, str]:
    """Return the columns of samples by their argument; a name None is left out.

    ValueError for what is no promise, if a column does not fit its argument, or for a query that
    Spark does not read as an aggregate of the value.
    """
    if not isinstance(promise, Promise):
        raise ValueError(f"promise must be a Promise, got {promise!r}: give Promise(…)")
    given = {argument: name for argument, name in names.items() if name is not None}
    columns = {argument: column_of(frame, argument, name) for argument, name in given.items()}
    require_query(frame, promise)
    return columns


def require_query(frame: DataFrame, promise: Promise) -> None:
    """Refuse a query that Spark does not read as an aggregate of the value, and a number."""
    if promise.query in AGGREGATES:
        return
    values = frame.sparkSession.range(0).select(F.col("id").cast("double").alias("value"))
    try:
        (result,) = values.agg(F.expr(promise.query)).schema
        if isinstance(result.dataType, NumericType):
            return
        problem = f"its type is {result.dataType.simpleString()}"
    except PySparkException as error:
        problem = f"{' '.join(str(error).split()):.300}"
    raise ValueError(
        f"query must be an SQL aggregate of value, and a number, got {promise.query!r} "
        f"({problem}): give {', '.join(AGGREGATES)} or one such as 'max(value)'"
    )


def setting_of(stream: DataFrame, name: str) -> str | None:
    """Return a setting of the session, or None where a platform lets nobody read it.

    Then Spark itself refuses a state store that does not fit.
    """
    try:
        return stream.sparkSession.conf.get(name)
    except PySparkException:
        return None


def read_samples(
    frame: DataFrame, promise: Promise, columns: Mapping[str, str], now: Column | None = None
) -> DataFrame:
    """Return samples as time, key, sensor, value, and a reason to leave the row out, or null.

    If several reasons apply, the first counts. `now` is the present time, by default Spark's.
    """
    # A database pads names of the type CHAR with blanks, which `aft plan` does not read, either.
    # They stay if the promise has names with outer blanks itself.
    sensor = quoted(columns["sensor"])
    padded = any(name != name.strip(" ") for name in promise.sensors)
    samples = frame.select(
        quoted(columns["time"]).alias("time"),
        key_of(columns.get("group")).alias("key"),
        (sensor if padded else F.trim(sensor)).alias("sensor"),
        quoted(columns["value"]).cast("double").alias("value"),
    )
    tests = reasons_to_reject(promise, now).items()
    reason = F.coalesce(*(F.when(test, F.lit(name)) for name, test in tests))
    return samples.withColumn("reason", reason)


def results_of_windows(samples: DataFrame, promise: Promise, *fixed: Column) -> DataFrame:
    """Return the result of each window of `read_samples`, as `arrange` reads them.

    Columns: key, start (µs), sensor, value, samples (their number), variance (of the samples).
    `fixed` columns, which are null, only become part of the key of Spark's state.
    """
    partial = promise.samples > 1 and promise.share < 1  # such windows are used, and need it
    variance = F.var_samp("value") if partial else F.lit(None).cast("double")
    keyed = samples.select(end_of_window(promise), "key", "sensor", "value", *fixed)
    keys = [name for name in keyed.columns if name != "value"]
    windows = keyed.groupBy(*keys).agg(
        F.expr(AGGREGATES.get(promise.query, promise.query)).cast("double").alias("value"),
        F.count("value").alias("samples"),
        variance.alias("variance"),
    )
    start = (F.unix_micros("end") - promise.width).alias("start")
    return windows.select("key", start, "sensor", "value", "samples", "variance")


def end_of_window(promise: Promise) -> Column:
    """Return the end of a sample's window, or of each of its windows; it has the watermark.

    Spark aggregates by a point in time faster than by a window with a start and an end.
    """
    window = F.window("time", f"{promise.width} microseconds", f"{promise.step} microseconds")
    return window["end"].alias("end", metadata={WATERMARK: OF_WINDOWS})


def reasons_to_reject(promise: Promise, now: Column | None) -> dict[str, Column]:
    """Return the tests by which samples are left out."""
    clock = F.current_timestamp() if now is None else now.cast("timestamp")
    latest = F.unix_micros(clock) + microseconds("ahead", promise.ahead)  # faster than intervals
    return {
        "no_time": F.isnull("time"),
        "no_group": F.isnull("key"),
        "no_sensor": F.isnull("sensor"),
        "no_value": ~F.coalesce(F.abs("value") < LARGEST, F.lit(False)),
        "unknown_sensor": ~F.col("sensor").isin(promise.sensors),
        "too_late": F.unix_micros("time") > latest,
        "too_early": F.col("time") < F.lit(promise.earliest.to_pydatetime()),
    }


def key_of(group: str | None) -> Column:
    """Return the group of a row, which is "" without groups."""
    return F.lit("") if group is None else quoted(group)


def quoted(name: str) -> Column:
    """Return the column with exactly this name."""
    return F.col("`" + name.replace("`", "``") + "`")
