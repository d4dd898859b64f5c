"""D5's experiments in the order of notebook 05."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import model_validator

from aftlib.core.checks import require_number
from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.exponential_histogram.operator import HistogramOperator, count_events
from aftlib.spark.sweep import sweep as in_parallel
from aftlib.workbench.parameters import ParameterModel, parameter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIGURE_3_WINDOW, FIGURE_3_EPSILON = 7, 0.5
EVENTS = (0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0)
_ONE = ((2, 1),)
_FOUR = ((9, 1), (8, 2), (6, 4))
#: Buckets (newest first), total, query and exact count after each event, as the document prints.
FIGURE_3: tuple[tuple[tuple[tuple[int, int], ...], int, int, int], ...] = (
    ((), 0, 0, 0),
    (_ONE, 1, 1, 1),
    (((3, 1), *_ONE), 2, 2, 2),
    (((3, 1), *_ONE), 2, 2, 2),
    (((5, 1), (3, 2)), 3, 2, 3),
    (((6, 1), (5, 1), (3, 2)), 4, 3, 4),
    (((7, 1), (6, 2), (3, 2)), 5, 4, 5),
    (((8, 1), (7, 1), (6, 2), (3, 2)), 6, 5, 6),
    (_FOUR, 7, 5, 6),
    (_FOUR, 7, 5, 5),
    (_FOUR, 7, 5, 5),
    (_FOUR, 7, 5, 4),
    (((9, 1), (8, 2)), 3, 2, 3),
)
DOCUMENT_RATE = 1e5
"""Events per second that the document reports for 2012."""
CHUNK = 2**20
MOST_SWEPT = 5 * 10**7
"""Most events of a stream of the sweep, because one task holds it in memory."""
ROUNDING = 1 + 1e-12
"""Factor by which rounding may enlarge an error."""
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
_AXES = ("epsilon", "window", "share", "burst")
EVENTS_PER_RANGE = 2**16
"""Events of one random generator; no parameter, because the events of a seed depend on it."""


@dataclass(frozen=True)
class BitStream:
    """An endless stream of bits; how a caller cuts the stream does not change the bits.

    `burst` is at least 1, and at least share / (1 - share), where the mean run of zeros is one
    event. Without `burst`, events are independent. ValueError for a parameter outside its range.
    """

    share: float  # probability of a one, in (0, 1)
    burst: float | None = None  # mean length of a run of ones, in events
    seed: int = 0  # not negative

    def __post_init__(self) -> None:
        require_number("share", self.share, above=0, below=1)
        if self.burst is not None:
            least = max(1.0, self.share / (1 - self.share))
            fix = "lengthen it, or leave it out for independent events"
            require_number("burst", self.burst, least=least, fix=fix)

    def draw(self, size: int, first: int = 0) -> NDArray[np.bool_]:
        """Events `first` … `first + size - 1`, counted from 0, shape (size,)."""
        ranges = range(first // EVENTS_PER_RANGE, -(-(first + size) // EVENTS_PER_RANGE))
        parts = [self.draw_range(index) for index in ranges]
        whole = np.concatenate(parts) if parts else np.empty(0, bool)
        offset = first - ranges.start * EVENTS_PER_RANGE
        return whole[offset : offset + size]

    def draw_range(self, index: int) -> NDArray[np.bool_]:
        """Events of range number `index`, shape (EVENTS_PER_RANGE,)."""
        rng = np.random.default_rng([self.seed, index])
        if self.burst is None:
            return rng.random(EVENTS_PER_RANGE, np.float32) < self.share

        # Runs of ones and of zeros in turn, of geometric lengths; each range begins again.
        ones, zeros = self.burst, self.burst * (1 - self.share) / self.share
        first = bool(rng.random() < self.share)  # so that the share is right from the first event
        means = (ones, zeros) if first else (zeros, ones)
        pairs = 16 + int(1.5 * EVENTS_PER_RANGE / (ones + zeros))
        runs = np.empty(0, np.int64)
        while runs.sum() < EVENTS_PER_RANGE:
            drawn = np.column_stack([rng.geometric(min(1.0, 1 / mean), pairs) for mean in means])
            runs = np.append(runs, drawn.ravel())
        bits = (np.arange(runs.size) & 1 == 0) == first
        # cut first: where ones are rare, a run of zeros is longer than many ranges
        ends = np.minimum(np.cumsum(runs), EVENTS_PER_RANGE)
        return np.repeat(bits, np.diff(ends, prepend=0))


def count_exactly(events: NDArray[np.bool_], window: int) -> NDArray[np.int64]:
    """Ones among the last `window` events, after each event, shape (n,)."""
    exact = np.cumsum(events, dtype=np.int64)
    exact[window:] -= exact[:-window]  # NumPy copies what overlaps
    return exact


def relative_error(estimates: Any, exact: Any) -> NDArray[np.float64]:
    """|estimate − exact| / exact; if exact is 0: 0 where the estimate is 0, else infinite."""
    off = np.abs(np.asarray(estimates) - np.asarray(exact))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(off == 0, 0.0, off / exact)


class NotebookParameters(ParameterModel):
    """Parameters of notebook 05."""

    epsilons: list[float] = parameter(
        [0.001, 0.01, 0.05, 0.1, 0.2, 0.5], "guaranteed errors ε of the sweep", least=1e-5, below=1
    )
    windows: list[int] = parameter(
        [1_000, 10_000, 100_000],
        "events N of the sweep",
        smoke=[1_000, 10_000],
        full=[1_000, 10_000, 100_000, 1_000_000],
        least=1,
        most=10**7,
    )
    shares: list[float] = parameter(
        [0.0005, 0.005, 0.5],
        "probabilities P(1)",
        smoke=[0.005, 0.5],
        least=1e-6,
        most=1 - 1e-6,
    )
    bursts: list[float] = parameter(
        [0, 300], "mean lengths of runs of ones; 0: independent events", least=0, most=1e6
    )
    windows_of_events: int = parameter(
        20, "length of each stream of the sweep, in windows", least=1, most=10**6
    )
    epsilon: float = parameter(0.01, "of the long stream (fig. 5)", least=1e-5, below=1)
    window: int = parameter(1_000_000, "events N of the long stream", least=1, most=10**8)
    events: int = parameter(
        20_000_000,
        "length of the long stream",
        least=1,
        most=10**12,
        smoke=4_000_000,
        full=100_000_000,
    )
    seconds: float = parameter(
        1.0, "of each measurement of speed", above=0, most=3600, smoke=0.3, full=5.0
    )
    demo_window: int = parameter(10_000, "N of the streaming query", least=1, most=10**6)
    demo_epsilon: float = parameter(0.05, "ε of the streaming query", least=1e-5, below=1)
    demo_events: int = parameter(
        100_000, "events of the streaming query", least=5, most=10**7, smoke=20_000
    )
    seed: int = parameter(1, "of all streams", least=0, most=2**62)

    @model_validator(mode="after")
    def fit_together(self) -> Self:
        """Refuse streams that are too long for a task, and bursts that no stream can have."""
        windows, most = self.windows_of_events, max(self.windows)
        if windows * most > MOST_SWEPT:
            raise ValueError(
                f"windows_of_events × the largest of windows must be at most {MOST_SWEPT:,} "
                f"events, got {windows} × {most}: take fewer or smaller windows"
            )
        for share, burst in product(self.shares, self.bursts):
            if burst:
                BitStream(share, burst)
        return self


def figure_3() -> pd.DataFrame:
    """Replay the document's thirteen events (fig. 3).

    Columns t, event, buckets, total, query (the article's estimate), exact, estimate (the sound
    one), same: whether buckets, total, query and exact are those of the document.
    """
    histogram = ExponentialHistogram(FIGURE_3_WINDOW, FIGURE_3_EPSILON)
    exact, rows = count_exactly(np.array(EVENTS, bool), FIGURE_3_WINDOW), []
    for t, (event, printed) in enumerate(zip(EVENTS, FIGURE_3, strict=True), 1):
        histogram.update(event)
        buckets, total = tuple(histogram.buckets), histogram.total
        query, count = histogram.article_estimate(), int(exact[t - 1])
        same = (buckets, total, query, count) == printed
        rows.append((t, event, buckets, total, query, count, histogram.estimate(), same))
    columns = ["t", "event", "buckets", "total", "query", "exact", "estimate", "same"]
    return pd.DataFrame(rows, columns=columns)


def few_ones(epsilons: Sequence[float], most: int = 600) -> pd.DataFrame:
    """Errors with 1 … `most` ones in the window, after zeros that fill it; no bucket expires.

    Columns epsilon, ones; article, sound: the estimates; article_error, sound_error: relative.
    """
    exact, tables = np.arange(1, most + 1), []
    for epsilon in epsilons:
        table = pd.DataFrame({"epsilon": epsilon, "ones": exact})
        for name in ("article", "sound"):
            histogram = ExponentialHistogram(2 * most, epsilon)
            histogram.update(np.zeros(2 * most, bool))
            table[name] = histogram.estimates(np.ones(most, bool), article=name == "article")
            table[f"{name}_error"] = relative_error(table[name].to_numpy(), exact)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def counterexamples(few: pd.DataFrame) -> pd.DataFrame:
    """For each ε: fewest ones with which the article's error exceeds ε, and largest errors.

    Columns epsilon; ones: the fewest, missing if none break ε; article, article_error: with these
    ones; article_worst, sound_worst: largest errors.
    """
    by_epsilon = few.groupby("epsilon")
    worst = by_epsilon[["article_error", "sound_error"]].max()
    worst.columns = ["article_worst", "sound_worst"]
    broken = few[few["article_error"] > few["epsilon"] * ROUNDING].groupby("epsilon").first()
    columns = ["ones", "article", "article_error"]
    return broken[columns].reindex(worst.index).join(worst).reset_index()


def measure(events: NDArray[np.bool_], window: int, epsilon: float) -> dict[str, Any]:
    """Compare every answer of both estimates with the exact count.

    Return article, sound: largest relative error; article_missed, sound_missed: number of answers
    off by more than ε.
    """
    exact = count_exactly(events, window)
    result: dict[str, Any] = {}
    for name in ("article", "sound"):
        histogram, worst, missed = ExponentialHistogram(window, epsilon), 0.0, 0
        for first in range(0, events.size, CHUNK):  # a part at a time, to spare memory
            part = slice(first, first + CHUNK)
            answers = histogram.estimates(events[part], article=name == "article")
            error = relative_error(answers, exact[part])
            worst = max(worst, float(error.max()))
            missed += int((error > epsilon * ROUNDING).sum())
        result |= {name: worst, f"{name}_missed": missed}
    return result


def sweep(spark: SparkSession, p: NotebookParameters) -> pd.DataFrame:
    """Largest relative errors over a grid of ε, N, P(1) and mean lengths of bursts, on Spark.

    A burst of 0 means independent events. A stream is `windows_of_events` windows long, and has at
    least 131,072 events. One row per point: epsilon, window, share, burst, and the results of
    `measure`.
    """
    import aftlib.exponential_histogram.kernels  # noqa: F401 - compiled before the tasks start

    def measure_point(point: tuple[float, int, float, float]) -> dict[str, Any]:
        epsilon, window, share, burst = point
        stream = BitStream(share, burst or None, p.seed)
        size = max(p.windows_of_events * window, CHUNK // 8)
        return dict(zip(_AXES, point, strict=True)) | measure(stream.draw(size), window, epsilon)

    # long streams first, so that none of them runs alone at the end
    points = sorted(product(p.epsilons, p.windows, p.shares, p.bursts), key=lambda at: -at[1])
    table = pd.DataFrame(in_parallel(spark, measure_point, points))
    return table.sort_values(list(_AXES), ignore_index=True)


def run_operator(
    spark: SparkSession, folder: Path, events: pd.DataFrame, operator: HistogramOperator, files: int
) -> pd.DataFrame:
    """Run the operator over events (key, at, event) as a stream of `files` micro-batches.

    Return its answers: key, at, estimate, in order of key and at. The folder keeps input, Spark's
    checkpoint and answers, so a run that was interrupted goes on.
    """
    source = folder / "events"
    if not source.exists():
        source.mkdir(parents=True)
        edges = np.linspace(events["at"].min() - 1, events["at"].max(), files + 1)
        for number, (low, high) in enumerate(zip(edges, edges[1:], strict=False)):
            part = events[(events["at"] > low) & (events["at"] <= high)]
            path = source / f"{number:04}.parquet"
            part.to_parquet(path, index=False)
            os.utime(path, (number + 1, number + 1))  # Spark reads files in order of these times
    stream = (
        spark.readStream.schema("key bigint, at bigint, event boolean")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
    )
    query = (
        count_events(stream, operator)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "answers"))
    )
    query.awaitTermination()
    answers = spark.read.parquet(str(folder / "answers")).toPandas()
    return answers.sort_values(["key", "at"], ignore_index=True)


def demonstrate_operator(spark: SparkSession, folder: Path, p: NotebookParameters) -> pd.DataFrame:
    """The article's operator (figs. 6 and 7) as a streaming query: one answer per event.

    Columns key, at, estimate, exact, error (relative).
    """
    bits = BitStream(0.5, None, p.seed).draw(p.demo_events)
    events = pd.DataFrame({"key": 0, "at": np.arange(1, bits.size + 1), "event": bits})
    operator = HistogramOperator(p.demo_window, p.demo_epsilon)
    answers = run_operator(spark, folder, events, operator, files=5)
    exact = count_exactly(bits, p.demo_window)
    return answers.assign(exact=exact, error=relative_error(answers["estimate"], exact))


def long_run(p: NotebookParameters, points: int = 20) -> pd.DataFrame:
    """Feed a long stream to a histogram in chunks; one row per point of time (D5 fig. 5).

    Columns at: events so far; estimate, article, exact, buckets, bytes: at that point; error,
    article_error: relative; seconds: spent on updates so far.
    """
    stream, histogram = BitStream(0.5, None, p.seed), ExponentialHistogram(p.window, p.epsilon)
    histogram.update(np.empty(0, bool))  # compiled before the clock starts
    chunk = max(-(-p.events // points), min(p.events, 1_000_000))
    window, rows, seconds = np.empty(0, bool), [], 0.0
    for first in range(0, p.events, chunk):
        part = stream.draw(min(chunk, p.events - first), first)
        begin = time.perf_counter()
        histogram.update(part)
        seconds += time.perf_counter() - begin
        window = np.concatenate((window, part))[-p.window :]
        answers = histogram.estimate(), histogram.article_estimate(), int(window.sum())
        weighed = len(histogram.buckets), len(histogram.to_bytes())
        rows.append((first + part.size, *answers, *weighed, seconds))
    columns = ["at", "estimate", "article", "exact", "buckets", "bytes", "seconds"]
    table = pd.DataFrame(rows, columns=columns)
    table["error"] = relative_error(table["estimate"], table["exact"])
    table["article_error"] = relative_error(table["article"], table["exact"])
    return table


def sizes(epsilons: Sequence[float], windows: Sequence[int] = SIZES) -> pd.DataFrame:
    """Memory of windows full of ones.

    Columns epsilon, window, buckets, bytes (of `to_bytes`), ring_bytes: of the exact window's bits,
    bound: (k/2 + 1)(log₂(2N/k + 1) + 1) + 1 buckets with k = ⌈1/ε⌉.
    """
    rows = []
    for window, epsilon in product(windows, epsilons):
        histogram = ExponentialHistogram(window, epsilon, timed=True, values="integers")
        singles = min(window, 10**6)  # the others are added as one event
        if window > singles:
            histogram.update([window - singles], [0])
        histogram.update(np.ones(singles, np.int64), np.arange(1, singles + 1))
        half = np.ceil(np.ceil(1 / epsilon) / 2)
        bound = (half + 1) * (np.log2(window / half + 1) + 1) + 1
        weighed = len(histogram.buckets), len(histogram.to_bytes()), -(-window // 8)
        rows.append((epsilon, window, *weighed, bound))
    columns = ["epsilon", "window", "buckets", "bytes", "ring_bytes", "bound"]
    return pd.DataFrame(rows, columns=columns)


def speeds(p: NotebookParameters, rounds: int = 10) -> pd.DataFrame:
    """Events per second on one core, in `rounds` rounds of about `seconds` / 3 in all each.

    One row per method (one event per call; one event and a query; 10⁶ events per call) and round.
    """
    bits = BitStream(0.5, None, p.seed).draw(10**6)
    histogram = ExponentialHistogram(p.window, p.epsilon)
    histogram.update(BitStream(0.5).draw(2 * p.window))
    singles = bits[:20_000].tolist()

    def answer_each(bits: list[bool]) -> None:
        for bit in bits:
            histogram.update(bit)
            histogram.estimate()

    def update_each(bits: list[bool]) -> None:
        for bit in bits:
            histogram.update(bit)

    methods: dict[str, tuple[Callable[[Any], None], Any]] = {
        "one event per call": (update_each, singles),
        "one event and a query": (answer_each, singles),
        "10⁶ events per call": (histogram.update, bits),
    }
    rows = []
    for turn, (name, (work, given)) in product(range(rounds), methods.items()):
        begin, events = time.perf_counter(), 0
        while time.perf_counter() - begin < p.seconds / rounds:
            work(given)
            events += len(given)
        rate = events / (time.perf_counter() - begin)
        rows.append({"method": name, "round": turn, "events per second": rate})
    return pd.DataFrame(rows)
