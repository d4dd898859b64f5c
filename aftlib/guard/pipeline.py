"""The guard over any stream of samples: windows by event time, and estimates of missing ones.

Spark aggregates, and its watermark ends the windows. The guard processes them in order and decides
which of the missing ones may be estimated. Both continue after a crash: Spark from its checkpoint,
the guard from the state that it wrote after the last micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from aftlib.core.checks import require_number
from aftlib.core.paths import atomic_file
from aftlib.core.query_directory import QueryDirectory, pack_arrays, unpack_arrays
from aftlib.core.windows import AGGREGATES
from aftlib.guard.guard import Guard
from aftlib.guard.rounds import LARGEST

MOST_ROUNDS = 100_000
"""Most windows without any sample in a row; more mean a wrong clock."""
NONE = -1
"""Start of the next window before the first one; starts are multiples of a step."""
_TYPES = {
    "time": {"timestamp"},  # Spark's watermark takes no other
    "sensor": {"string"},
    "value": {"tinyint", "smallint", "int", "bigint", "float", "double"},
}


@dataclass(frozen=True)
class Promise:
    """The guarantee for a stream: its sensors, its windows, and the errors of estimates.

    Parameters
    ----------
    workers : sequence of sequences of str
        The sensors of each worker, which are lost together. Each sensor once.
    epsilon : float or sequence of float
        Largest error ε of an estimated window, in sensor units; one for all, or one per sensor in
        the order of `workers`.
    delta : float
        Share δ of the estimated windows whose error may be larger.
    window, slide : str
        Durations as pandas reads them, such as "10min"; by default windows tumble.
    watermark : str
        How late a sample may come. A window ends when a sample so much after its end has come.
    query : {"mean", "sum"}
    samples : int
        Samples of a whole window. A window with fewer counts as lost.
    horizons : int
        H, the largest number of windows of an outage that a guarantee covers.
    seasons : sequence of str
        Known seasonal periods, such as "1d", the most important first.

    Raises
    ------
    ValueError
        When a duration cannot be read, a sensor occurs twice, or a number is outside its range.
    """

    workers: Sequence[Sequence[str]]
    epsilon: float | Sequence[float]
    delta: float
    window: str
    slide: str | None = None
    watermark: str = "0s"
    query: str = "mean"
    samples: int = 1
    horizons: int = 5
    seasons: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.query not in [name for name, kind in AGGREGATES.items() if kind.gaussian]:
            raise ValueError(f"query must be 'mean' or 'sum', got {self.query!r}")
        require_number("samples", self.samples, least=1, whole=True)
        if not self.width:
            raise ValueError(f"window must last, got {self.window!r}: give '10min' or so")
        if not 0 < self.step <= self.width:
            raise ValueError(
                f"slide must be above 0 and at most window = {self.window}, got {self.slide}; "
                "a longer one would leave samples out of every window"
            )
        microseconds("watermark", self.watermark)
        self.guard()

    @property
    def sensors(self) -> list[str]:
        """All sensors, in the order of `workers`."""
        return [name for worker in self.workers for name in worker]

    @property
    def width(self) -> int:
        """Length of a window in microseconds."""
        return microseconds("window", self.window)

    @property
    def step(self) -> int:
        """From one window's start to the next one's, in microseconds."""
        return microseconds("slide", self.slide) if self.slide else self.width

    def guard(self) -> Guard:
        """Return a guard before its first window."""
        alone = [worker for worker in self.workers if isinstance(worker, str)]
        if alone:
            raise ValueError(
                f"workers must be lists of sensors, got {alone[0]!r}: give [{alone[0]!r}]"
            )
        names = self.sensors
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"workers must hold each sensor once, got {', '.join(twice)} twice")
        groups = [[names.index(name) for name in worker] for worker in self.workers]
        periods = [microseconds("each of seasons", season) / self.step for season in self.seasons]
        return Guard(groups, self.epsilon, self.delta, self.horizons, periods)


def microseconds(name: str, duration: str) -> int:
    """Return a duration such as "10min" in microseconds; `name` is the argument's."""
    try:
        length = pd.Timedelta(duration)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} must be a duration such as '10min', got {duration!r}") from error
    if length is pd.NaT or length < pd.Timedelta(0):
        raise ValueError(f"{name} must not be negative, got {duration!r}")
    return length // pd.Timedelta(microseconds=1)


def recoverable(
    stream: DataFrame,
    directory: str | Path,
    write: Callable[[pd.DataFrame, int], None],
    promise: Promise,
    time: str = "time",
    sensor: str = "sensor",
    value: str = "value",
) -> DataStreamWriter:
    """Aggregate a stream in windows, and estimate the missing windows where it is safe.

    Parameters
    ----------
    stream : DataFrame
        Streaming, one row per sample. Samples without time, sensor or a value below 1e100 are
        counted as `unread` in the query's progress (`observedMetrics`); Spark counts those that
        came too late (`numRowsDroppedByWatermark`).
    directory : path
        Place of Spark's checkpoint and of the guard's state. After a crash, start again with the
        same one.
    write : callable
        Receives every micro-batch's windows and the micro-batch's number. After a crash the last
        one comes once more, with the same rows: replace, do not append. Columns:

        - `start`, `sensor`;
        - `state`: "exact"; "estimated", where an error of at most ε was guaranteed before the loss
          began; "lost" otherwise: read those again from their source;
        - `value`: NaN where lost; `half_width`: 1 − δ of comparable errors were within it;
        - `samples`: how many came;
        - `recoverable`: how many windows long a loss of the sensor may be if it begins now.
    promise : Promise
    time, sensor, value : str
        The stream's columns.

    Returns
    -------
    DataStreamWriter
        Set a trigger if you like, and `start()` it.

    Raises
    ------
    ValueError
        When the stream does not stream or has no such column, or the directory is that of another
        promise or other columns; while it runs, when a sensor comes that no worker has.

    Examples
    --------
    >>> promise = Promise([["a"], ["b"], ["c"]], epsilon=0.5, delta=0.05, window="10min")
    >>> samples = spark.readStream.schema(SCHEMA).json("incoming")  # doctest: +SKIP
    >>> recoverable(samples, "state", upsert, promise).start()  # doctest: +SKIP
    """
    if not stream.isStreaming:
        raise ValueError(
            "stream must be streaming (spark.readStream); for a table use Guard.replay"
        )
    types = {column.name: column.dataType.simpleString() for column in stream.schema.fields}
    columns = {"time": time, "sensor": sensor, "value": value}
    for argument, name in columns.items():
        if types.get(name) not in _TYPES[argument]:
            raise ValueError(
                f"{argument} must name a column of type {' or '.join(sorted(_TYPES[argument]))}, "
                f"got {name!r} of type {types.get(name)}: rename or cast it"
            )
    place = Path(directory).absolute()
    named = {part: name for part, name in columns.items() if part != name}
    QueryDirectory(place).claim("promise", asdict(promise) | named)

    number = F.col(value).cast("double")
    good = F.coalesce(F.abs(number) < LARGEST, F.lit(False)) & F.col(sensor).isNotNull()
    rows = stream.select(
        F.col(time).alias("time"),
        F.col(sensor).alias("sensor"),
        F.when(good, number).alias("value"),
    ).observe(
        "unread", F.count(F.when(F.col("time").isNull() | F.col("value").isNull(), 1)).alias("rows")
    )
    total = getattr(F, AGGREGATES[promise.query].spark)
    late, width, step = (
        f"{length} microseconds"
        for length in (microseconds("watermark", promise.watermark), promise.width, promise.step)
    )
    finished = (
        rows.withWatermark("time", late)
        .groupBy(F.window("time", width, step).alias("window"), "sensor")
        .agg(total("value").alias("value"), F.count("value").alias("samples"))
        .select(F.col("window.start").alias("start"), "sensor", "value", "samples")
    )
    writer = finished.writeStream.outputMode("append")
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    return writer.foreachBatch(GuardedBatches(place, promise, write))


@dataclass
class GuardedBatches:
    """The guard's part of each micro-batch: it receives windows, and writes them without gaps."""

    place: Path
    promise: Promise
    write: Callable[[pd.DataFrame, int], None]

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Process a micro-batch; a second run of it writes the same rows."""
        windows = batch.toArrow().to_pandas().dropna(subset=["sensor"])
        unknown = sorted(set(windows["sensor"]) - set(self.promise.sensors))
        if unknown:
            raise ValueError(
                f"stream must hold the sensors of workers only, got {', '.join(unknown[:5])}: "
                "add them to a worker, or filter them out"
            )
        guard, start = self.read_state(batch_id)
        if len(windows):
            rows, start = self.fill_gaps(guard, start, windows)
            self.write(rows, batch_id)
        state = np.frombuffer(guard.to_bytes(), np.uint8)
        with atomic_file(self.path(batch_id)) as file:
            file.write_bytes(pack_arrays(guard=state, after=np.array(start)))
        self.path(batch_id - 2).unlink(missing_ok=True)  # a micro-batch may run again, not two

    def path(self, batch_id: int) -> Path:
        """Return the file of the state after a micro-batch."""
        return self.place / f"guard-{batch_id}.npz"

    def read_state(self, batch_id: int) -> tuple[Guard, int]:
        """Return the guard before a micro-batch, and its next window's start, or `NONE`."""
        if batch_id == 0:
            return self.promise.guard(), NONE
        path = self.path(batch_id - 1)
        try:
            state = unpack_arrays(path.read_bytes())
        except FileNotFoundError as error:
            raise ValueError(
                f"directory must hold the guard's state in {path}, which is missing: bring it "
                "back, or start again in another directory"
            ) from error
        return Guard.from_bytes(state["guard"].tobytes()), int(state["after"])

    def fill_gaps(self, guard: Guard, start: int, table: pd.DataFrame) -> tuple[pd.DataFrame, int]:
        """Give the windows to the guard in order; return all rows, and the next window's start."""
        names, step = self.promise.sensors, self.promise.step
        table = table.assign(start=table["start"].astype("datetime64[us, UTC]").astype("int64"))
        first, last = table["start"].min() if start == NONE else start, table["start"].max()
        starts = range(int(first), int(last) + 1, step)
        if len(starts) > table["start"].nunique() + MOST_ROUNDS:
            raise ValueError(
                f"time must not jump by more than {MOST_ROUNDS} windows, got one at "
                f"{pd.Timestamp(last, unit='us', tz='UTC')}: mend the sensor's clock"
            )
        wide = table.pivot(index="start", columns="sensor", values=["value", "samples"])
        every = pd.MultiIndex.from_product([["value", "samples"], names])
        values, samples = np.hsplit(wide.reindex(index=starts, columns=every).to_numpy(float), 2)
        samples = np.nan_to_num(samples)
        whole = (samples >= self.promise.samples) & (np.abs(values) < LARGEST)
        windows = np.where(whole, values, np.nan)

        steps = [(guard.update(row), guard.recoverable.cumprod(0).sum(0)) for row in windows]
        estimate, half_width, declared = (
            np.concatenate([getattr(recovered, name) for recovered, _ in steps])
            for name in ("estimate", "half_width", "declared")
        )
        state = np.where(whole, "exact", np.where(declared, "estimated", "lost"))
        rows = {
            "start": pd.to_datetime(np.repeat(starts, len(names)), unit="us", utc=True),
            "sensor": names * len(starts),
            "state": state.ravel(),
            "value": np.where(declared, estimate, windows).ravel(),
            "half_width": np.where(declared, half_width, np.nan).ravel(),
            "samples": samples.astype(int).ravel(),
            "recoverable": np.concatenate([lasting for _, lasting in steps]),
        }
        return pd.DataFrame(rows), starts[-1] + step
