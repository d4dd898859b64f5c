"""The guard over any stream of samples: windows by event time, estimates where they are promised.

Spark aggregates; its watermark says when a window is over; the guard takes the windows in order and
tells which of the missing ones may be estimated. Both go on after a death: Spark from its
checkpoint, the guard from the state that it wrote after the last micro-batch.
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
"""Windows without any sample between two that have some; more are taken for a wrong clock."""
NONE = -1
"""Where the next window starts while there was none; starts are multiples of a step."""
_TIMES = {"timestamp"}  # Spark's watermark takes no other
_NUMBERS = {"tinyint", "smallint", "int", "bigint", "float", "double"}


@dataclass(frozen=True)
class Promise:
    """What is asked of a stream: which sensors, which windows, and what an estimate must keep.

    Parameters
    ----------
    workers : sequence of sequences of str
        The sensors of each worker: those that are lost together. Each sensor once.
    epsilon : float or sequence of float
        Largest error ε of an estimated window, in sensor units; one for all, or one a sensor in
        the order of `workers`.
    delta : float
        Share δ of the estimated windows that may be further off.
    window, slide : str
        Durations as pandas reads them, such as "10min"; by default windows tumble.
    watermark : str
        How late a sample may come. A window is over when a sample so much after its end was seen.
    query : {"mean", "sum"}
    samples : int
        Samples that a whole window has. A window with fewer counts as lost.
    horizons : int
        H, most windows that an outage may last for a promise to be made.
    seasons : sequence of str
        Durations of known rhythms, such as "1d", the most important first.

    Raises
    ------
    ValueError
        When a duration is none, a sensor is there twice, or a number is outside its range.
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
        """A guard that has seen nothing yet."""
        alone = [worker for worker in self.workers if isinstance(worker, str)]
        if alone:
            raise ValueError(
                f"workers must be lists of sensors, got {alone[0]!r}: give [{alone[0]!r}]"
            )
        names = self.sensors
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"workers must hold each sensor once, got {', '.join(twice)} twice")
        places = iter(range(len(names)))
        groups = [[next(places) for _ in worker] for worker in self.workers]
        rhythms = [microseconds("each of seasons", season) / self.step for season in self.seasons]
        return Guard(groups, self.epsilon, self.delta, self.horizons, rhythms)


def microseconds(name: str, duration: str) -> int:
    """Read a duration such as "10min"; `name` is what the user calls it."""
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
    """Aggregate a stream in windows, and estimate the windows that are missing where it is safe.

    Parameters
    ----------
    stream : DataFrame
        Streaming, a row a sample. Samples without time, sensor or a value below 1e100 are counted
        as `unread` in the query's progress (`observedMetrics`); Spark counts those that came too
        late (`numRowsDroppedByWatermark`).
    directory : path
        Place of Spark's checkpoint and of the guard's state. Start again with the same one to go
        on after a death.
    write : callable
        Is given every micro-batch's windows and the micro-batch's number. After a death the last
        one comes once more, with the same rows: replace, do not append. Columns:

        - `start`, `sensor`;
        - `state`: "exact"; "estimated", where the guard had promised an error of at most ε before
          the loss began; "lost", where it had not: read those again from their source;
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
        When the stream does not stream or lacks a column, or the directory holds the stream of
        another promise or other columns; while it runs, when a sensor comes that no worker has.

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
    for argument, name, wanted in (
        ("time", time, _TIMES), ("sensor", sensor, {"string"}), ("value", value, _NUMBERS),
    ):  # fmt: skip
        if types.get(name) not in wanted:
            raise ValueError(
                f"{argument} must name a column of type {' or '.join(sorted(wanted))}, got "
                f"{name!r} of type {types.get(name)}: rename or cast it"
            )
    place = Path(directory).absolute()
    columns = {"time": time, "sensor": sensor, "value": value}
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
    lasting = [f"{length} microseconds" for length in (promise.width, promise.step)]
    total = getattr(F, AGGREGATES[promise.query].spark)
    finished = (
        rows.withWatermark("time", f"{microseconds('watermark', promise.watermark)} microseconds")
        .groupBy(F.window("time", *lasting).alias("window"), "sensor")
        .agg(total("value").alias("value"), F.count("value").alias("samples"))
        .select(F.col("window.start").alias("start"), "sensor", "value", "samples")
    )
    writer = finished.writeStream.outputMode("append")
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    return writer.foreachBatch(Keeper(place, promise, write))


@dataclass
class Keeper:
    """The guard's side of each micro-batch: windows in, windows with their gaps filled out."""

    place: Path
    promise: Promise
    write: Callable[[pd.DataFrame, int], None]

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Judge a micro-batch's windows; running it twice hands over the same rows."""
        found = batch.toArrow().to_pandas()
        unknown = sorted(set(found["sensor"].dropna()) - set(self.promise.sensors))
        if unknown:
            raise ValueError(
                f"stream must hold the sensors of workers only, got {', '.join(unknown[:5])}: "
                "add them to a worker, or filter them out"
            )
        guard, after = self.before(batch_id)
        if found["sensor"].notna().any():
            rows, after = self.judge(guard, after, found.dropna(subset=["sensor"]))
            self.write(rows, batch_id)
        state = np.frombuffer(guard.to_bytes(), np.uint8)
        with atomic_file(self.path(batch_id)) as file:
            file.write_bytes(pack_arrays(guard=state, after=np.array(after)))
        self.path(batch_id - 2).unlink(missing_ok=True)  # a micro-batch may run again, not two

    def path(self, batch_id: int) -> Path:
        """File of the state after a micro-batch."""
        return self.place / f"guard-{batch_id}.npz"

    def before(self, batch_id: int) -> tuple[Guard, int]:
        """The guard as it was before a micro-batch, and its next window's start, or `NONE`."""
        if batch_id == 0:
            return self.promise.guard(), NONE
        try:
            state = unpack_arrays(self.path(batch_id - 1).read_bytes())
            return Guard.from_bytes(state["guard"].tobytes()), int(state["after"])
        except FileNotFoundError as error:
            raise ValueError(
                f"directory must hold the guard's state in {self.path(batch_id - 1)}, which is "
                "missing: bring it back, or start anew in another directory"
            ) from error

    def judge(self, guard: Guard, after: int, found: pd.DataFrame) -> tuple[pd.DataFrame, int]:
        """Feed the windows to the guard one after another, and say what became of each."""
        promise, names = self.promise, self.promise.sensors
        starts = found["start"].astype("datetime64[us, UTC]").astype("int64")
        table = found.assign(start=starts)
        first = int(starts.min()) if after == NONE else after
        expected = range(first, int(starts.max()) + 1, promise.step)
        if len(expected) > starts.nunique() + MOST_ROUNDS:
            raise ValueError(
                f"time must not jump by more than {MOST_ROUNDS} windows, got one at "
                f"{pd.Timestamp(int(starts.max()), unit='us', tz='UTC')}: mend the sensor's clock"
            )
        values, samples = (
            table.pivot(index="start", columns="sensor", values=name)
            .reindex(index=expected, columns=names)
            .to_numpy(float)
            for name in ("value", "samples")
        )
        samples = np.nan_to_num(samples)
        whole = (samples >= promise.samples) & (np.abs(values) < LARGEST)
        windows = np.where(whole, values, np.nan)

        told = [(guard.update(row), guard.recoverable.cumprod(0).sum(0)) for row in windows]
        estimate, half_width, declared = (
            np.concatenate([getattr(said, name) for said, _ in told])
            for name in ("estimate", "half_width", "declared")
        )
        missing = np.isnan(windows)
        state = np.where(missing, np.where(declared, "estimated", "lost"), "exact")
        rows = {
            "start": np.repeat(pd.to_datetime(np.array(expected), unit="us", utc=True), len(names)),
            "sensor": names * len(expected),
            "state": state.ravel(),
            "value": np.where(missing, np.where(declared, estimate, np.nan), windows).ravel(),
            "half_width": np.where(declared, half_width, np.nan).ravel(),
            "samples": samples.astype(int).ravel(),
            "recoverable": np.concatenate([lasting for _, lasting in told]),
        }
        return pd.DataFrame(rows), int(expected[-1]) + promise.step
