"""D5's experiments in the order of notebook 05, and the streams of bits that they count."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import model_validator
from pyspark.sql import SparkSession

from aftlib.core.checks import require_number
from aftlib.documents.exponential_histogram.histogram import ExponentialHistogram
from aftlib.documents.exponential_histogram.operator import HistogramOperator, run_operator
from aftlib.notebook.parameters import ParameterModel, parameter
from aftlib.spark.sweep import sweep

FIGURE_3_WINDOW = 7
FIGURE_3_EPSILON = 0.5
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
#: Events per second that the document reports for a dual core of 2.4 GHz and Windows 7.
DOCUMENT_RATE = 1e5
#: Events of one random generator; no parameter, because the events of a seed depend on it.
EVENTS_PER_RANGE = 2**16
#: Events that `measure` compares at a time, to spare memory.
CHUNK = 2**20
#: Ones up to which `few_ones` tries every number.
MOST_ONES = 600
#: Factor by which rounding may enlarge an error.
ROUNDING = 1 + 1e-12
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
_AXES = ("epsilon", "window", "share", "burst")


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
        most=10**6,
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
        20, "length of each stream of the sweep, in windows", least=1, most=50
    )
    epsilon: float = parameter(0.01, "of the long stream (fig. 5)", least=1e-5, below=1)
    window: int = parameter(1_000_000, "events N of the long stream", least=1, most=10**8)
    events: int = parameter(
        20_000_000,
        "length of the long stream",
        least=1,
        most=10**9,
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
        """Refuse bursts that no stream can have."""
        least = max(1.0, max(self.shares) / (1 - max(self.shares)))
        for burst in filter(None, self.bursts):
            require_number("burst", burst, least=least, fix="lengthen it, or lower shares")
        return self


def figure_3() -> pd.DataFrame:
    """Replay the document's thirteen events (fig. 3).

    Columns t, event, buckets, total, query (the article's estimate), exact, estimate (the sound
    one), same: whether buckets, total, query and exact are those of the document.
    """
    histogram = ExponentialHistogram(FIGURE_3_WINDOW, FIGURE_3_EPSILON)
    exact = count_exactly(np.array(EVENTS, bool), FIGURE_3_WINDOW).tolist()
    rows = []
    for t, (event, count, printed) in enumerate(zip(EVENTS, exact, FIGURE_3, strict=True), 1):
        histogram.update(event)
        row = {
            "buckets": tuple(histogram.buckets),
            "total": histogram.total,
            "query": histogram.article_estimate(),
            "exact": count,
        }
        same = tuple(row.values()) == printed
        estimate = histogram.estimate()
        rows.append({"t": t, "event": event, **row, "estimate": estimate, "same": same})
    return pd.DataFrame(rows)


def few_ones(epsilons: Sequence[float]) -> pd.DataFrame:
    """Errors with 1 … `MOST_ONES` ones in the window, after zeros that fill it; no bucket expires.

    Columns epsilon, ones; article, sound: the estimates; article_error, sound_error: relative.
    """
    exact = np.arange(1, MOST_ONES + 1)
    tables = []
    for epsilon in epsilons:
        table = pd.DataFrame({"epsilon": epsilon, "ones": exact})
        for name in ("article", "sound"):
            histogram = ExponentialHistogram(2 * MOST_ONES, epsilon)
            histogram.update(np.zeros(2 * MOST_ONES, bool))
            table[name] = histogram.estimates(np.ones(MOST_ONES, bool), article=name == "article")
            table[f"{name}_error"] = relative_error(table[name].to_numpy(), exact)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def counterexamples(few: pd.DataFrame) -> pd.DataFrame:
    """For each ε that the article's error exceeds: the row of `few` with the fewest ones."""
    broken = few[few["article_error"] > few["epsilon"] * ROUNDING]
    return broken.groupby("epsilon", as_index=False).first()


def measure(events: NDArray[np.bool_], window: int, epsilon: float) -> dict[str, Any]:
    """Compare every answer of both estimates with the exact count.

    Return article, sound: largest relative error; article_missed, sound_missed: number of answers
    off by more than ε.
    """
    exact = count_exactly(events, window)
    result: dict[str, Any] = {}
    for name in ("article", "sound"):
        histogram = ExponentialHistogram(window, epsilon)
        worst = 0.0
        missed = 0
        for first in range(0, events.size, CHUNK):
            part = slice(first, first + CHUNK)
            answers = histogram.estimates(events[part], article=name == "article")
            error = relative_error(answers, exact[part])
            worst = max(worst, float(error.max()))
            missed += int((error > epsilon * ROUNDING).sum())
        result |= {name: worst, f"{name}_missed": missed}
    return result


def measure_streams(spark: SparkSession, p: NotebookParameters) -> pd.DataFrame:
    """Largest relative errors over a grid of ε, N, P(1) and mean lengths of bursts, on Spark.

    A burst of 0 means independent events. A stream is `windows_of_events` windows long, and has at
    least 131,072 events. One row per point: epsilon, window, share, burst, and the results of
    `measure`.
    """
    import aftlib.documents.exponential_histogram.kernels  # noqa: F401 - compiled before the tasks start

    def measure_point(point: tuple[float, int, float, float]) -> dict[str, Any]:
        epsilon, window, share, burst = point
        size = max(p.windows_of_events * window, CHUNK // 8)
        bits = draw_bits(size, share, p.seed, burst)
        return dict(zip(_AXES, point, strict=True)) | measure(bits, window, epsilon)

    # long streams first, so that none of them runs alone at the end
    points = sorted(product(p.epsilons, p.windows, p.shares, p.bursts), key=lambda at: -at[1])
    table = pd.DataFrame(sweep(spark, measure_point, points))
    return table.sort_values(list(_AXES), ignore_index=True)


def demonstrate_operator(spark: SparkSession, folder: Path, p: NotebookParameters) -> pd.DataFrame:
    """The article's operator (figs. 6 and 7) as a streaming query: one answer per event.

    Columns key, at, estimate, exact.
    """
    bits = draw_bits(p.demo_events, 0.5, p.seed)
    events = pd.DataFrame({"key": 0, "at": np.arange(1, bits.size + 1), "event": bits})
    operator = HistogramOperator(p.demo_window, p.demo_epsilon)
    answers = run_operator(spark, folder, events, operator, files=5)
    return answers.assign(exact=count_exactly(bits, p.demo_window))


def try_other_windows(p: NotebookParameters) -> pd.DataFrame:
    """Windows in time, sums, and merging, compared with exact answers at the end of a stream.

    Events come at random milliseconds, ten on average. One row per kind: name, exact, estimate,
    error: relative, and guaranteed: the histogram's `error_bound`.
    """
    rng = np.random.default_rng(p.seed)
    size = min(p.demo_events, 100_000)
    times = np.cumsum(rng.integers(0, 20, size, endpoint=True))
    window = max(1, int(times[-1]) // 2)
    ones = rng.random(size) < 0.5
    amounts = rng.integers(0, 100, size)
    inside = times > times[-1] - window

    def fill(events: NDArray[Any], part: slice, values: str = "bits") -> ExponentialHistogram:
        histogram = ExponentialHistogram(window, p.demo_epsilon, timed=True, values=values)
        histogram.update(events[part], timestamps=times[part])
        return histogram

    whole = slice(None)
    span = f"the last {window / 1000:,.3g} s"
    merged = fill(ones, slice(0, None, 2)).merge(fill(ones, slice(1, None, 2)))
    cases = [
        (f"ones in {span}", ones, fill(ones, whole)),
        (f"sum of {span}", amounts, fill(amounts, whole, "integers")),
        ("the same ones, merged from two streams", ones, merged),
    ]
    rows = []
    for name, events, histogram in cases:
        exact = int(events[inside].sum())
        estimate = histogram.estimate()
        error = float(relative_error(estimate, exact))
        rows.append((name, exact, estimate, error, histogram.error_bound))
    return pd.DataFrame(rows, columns=["name", "exact", "estimate", "error", "guaranteed"])


def find_crossings(sizes: pd.DataFrame) -> pd.Series:
    """For each ε of `sizes` the smallest window whose histogram is smaller than the ring of bits.

    An ε without such a window is left out.
    """
    smaller = sizes[sizes["bytes"] < sizes["ring_bytes"]]
    return smaller.groupby("epsilon")["window"].min()


def long_run(p: NotebookParameters, points: int = 20) -> pd.DataFrame:
    """Feed a long stream to a histogram; relative errors at points of time (D5 fig. 5).

    Columns at: events so far; error, article_error: relative.
    """
    bits = draw_bits(p.events, 0.5, p.seed)
    histogram = ExponentialHistogram(p.window, p.epsilon)
    rows = []
    size = -(-p.events // points)
    for first in range(0, p.events, size):
        histogram.update(bits[first : first + size])
        at = min(first + size, p.events)
        exact = np.count_nonzero(bits[max(0, at - p.window) : at])
        answers = histogram.estimate(), histogram.article_estimate()
        rows.append((at, *relative_error(answers, exact)))
    return pd.DataFrame(rows, columns=["at", "error", "article_error"])


def sizes(epsilons: Sequence[float], windows: Sequence[int] = SIZES) -> pd.DataFrame:
    """Memory of windows full of ones.

    Columns epsilon, window, buckets, levels: their different sizes, each of which an event merges
    at most once; bytes (of `to_bytes`), ring_bytes: of the exact window's bits, bound:
    (k/2 + 1)(log₂(2N/k + 1) + 1) + 1 buckets with k = ⌈1/ε⌉.
    """
    rows = []
    for window, epsilon in product(windows, epsilons):
        histogram = ExponentialHistogram(window, epsilon, values="integers")
        histogram.update([window])  # buckets depend on the sum alone
        half = np.ceil(np.ceil(1 / epsilon) / 2)
        bound = (half + 1) * (np.log2(window / half + 1) + 1) + 1
        counts = [count for _, count in histogram.buckets]
        rows.append(
            {
                "epsilon": epsilon,
                "window": window,
                "buckets": len(counts),
                "levels": len(set(counts)),
                "bytes": len(histogram.to_bytes()),
                "ring_bytes": -(-window // 8),
                "bound": bound,
            }
        )
    return pd.DataFrame(rows)


def speeds(p: NotebookParameters, rounds: int = 10) -> pd.DataFrame:
    """Events per second on one core, `seconds` in all for each method.

    One row per round and method (one event and a query; 10⁶ events per call).
    """
    bits = draw_bits(10**6, 0.5, p.seed)
    histogram = ExponentialHistogram(p.window, p.epsilon)
    histogram.update(draw_bits(2 * p.window, 0.5, p.seed))

    def answer_each(bits: list[bool]) -> None:
        for bit in bits:
            histogram.update(bit)
            histogram.estimate()

    methods: dict[str, tuple[Callable[[Any], None], Any]] = {
        "one event and a query": (answer_each, bits[:20_000].tolist()),
        "10⁶ events per call": (histogram.update, bits),
    }
    rows = []
    for _, (name, (work, given)) in product(range(rounds), methods.items()):
        events = 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < p.seconds / rounds:
            work(given)
            events += len(given)
        rate = events / (time.perf_counter() - begin)
        rows.append({"method": name, "events per second": rate})
    return pd.DataFrame(rows)


def draw_bits(size: int, share: float, seed: int, burst: float = 0) -> NDArray[np.bool_]:
    """`size` bits of a stream, each a one with probability `share`.

    `burst` is the mean length of a run of ones, in events. It must be at least 1, and at least
    share / (1 - share), where the mean run of zeros is one event. With 0, events are independent.
    """
    ranges = range(-(-size // EVENTS_PER_RANGE))
    generators = [np.random.default_rng([seed, index]) for index in ranges]
    if burst:
        parts = [_draw_bursts(rng, share, burst) for rng in generators]
    else:
        parts = [rng.random(EVENTS_PER_RANGE, np.float32) < share for rng in generators]
    return np.concatenate(parts)[:size]


def _draw_bursts(rng: np.random.Generator, share: float, burst: float) -> NDArray[np.bool_]:
    """One range: runs of ones and of zeros in turn, of geometric lengths."""
    zeros = burst * (1 - share) / share
    first = bool(rng.random() < share)  # so that the share is right from the first event
    means = (burst, zeros) if first else (zeros, burst)
    pairs = 16 + int(1.5 * EVENTS_PER_RANGE / (burst + zeros))
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
