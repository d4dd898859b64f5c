"""A file, or a directory of them, that is too large for memory: surveyed by Spark, read once.

Each task reads its own stretch of the rows, in their order, and adds up the slices that windows are
made of. What lies at the edge of its stretch it sends as it is, so that results are the same to the
bit however the rows were cut. The driver holds the slices and no samples but those to which the
plain model is fitted: its memory grows with the number of windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from aftlib.core.datasets import Quality
from aftlib.core.fillvalues import find_fill_values, require_no_fill_values
from aftlib.core.windows import Windows
from aftlib.sensor_plans.inventory import Inventory, Tally
from aftlib.sensor_plans.layout import Layout, Stretch, layout_of, stretches_of
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_file import require_usable
from aftlib.sensor_plans.survey import Survey, answerable_windows, recent_rows
from aftlib.sensor_plans.window_results import CHUNK, finished, known
from aftlib.spark.sweep import by_number

Message = tuple[str, int, bytes]
SCHEMA = "place long, number long, kind string, at long, rows binary"
_LONG = pa.int64()
SENT = pa.schema(
    {"place": _LONG, "number": _LONG, "kind": pa.string(), "at": _LONG, "rows": pa.binary()}
)
SLICES, EDGE, RECENT, TALLY, COUNTS, REFUSED = "slices", "edge", "recent", "tally", "counts", "no"
LONGEST_GAP = 20_000
"""Steps without a row that are filled as missing ones; more part what comes before and after."""


def survey_by_spark(
    spark: SparkSession,
    data: Path,
    question: Question,
    *,
    time: str | None = None,
    drop: Sequence[str] = (),
    missing: Sequence[float] | None = None,
    decimal: str | None = None,
    cells: int = 2_000_000,
) -> Survey:
    """Survey a wide CSV or Parquet file, or a directory of them in the order of their names.

    Its rows must be in the order of their times, which lie on an even grid, each time once.

    Parameters
    ----------
    time, drop, missing, decimal
        As `sensor_file.read_sensors`.
    cells : int
        Samples that a task reads, about; the result does not depend on it.

    Raises
    ------
    ValueError
        When the rows are not like that, or `sensor_file.read_sensors` would refuse them; the
        message names the column and the way out.
    """
    layout = layout_of(data, time, drop, missing or (), decimal)
    windows = answerable_windows(layout.names, layout.steps, layout.step, question)
    stretches, recent = stretches_of(layout, cells), recent_rows(layout.steps)
    task = Task(layout, windows, recent)

    def read(place: int) -> Iterator[pa.RecordBatch]:
        for number, message in enumerate(task.run(stretches[place])):
            row = dict(zip(SENT.names, (place, number, *message), strict=True))
            yield pa.RecordBatch.from_pylist([row], SENT)

    found = Found(layout, windows, recent, check=missing is None or len(missing) > 0)
    for batch in by_number(spark, len(stretches), read, SCHEMA).toArrow().to_batches():
        for row in batch.to_pylist():
            found.take((row["place"], row["number"]), row["kind"], row["at"], row["rows"])
    return found.survey()


@dataclass
class Task:
    """What one task does with its stretch of rows: it sends messages (kind, at, bytes)."""

    layout: Layout
    windows: Windows
    recent: slice

    def run(self, stretch: Stretch) -> Iterator[Message]:
        """Read the stretch; send what the driver needs of it, or why it cannot be read."""
        try:
            yield from self._read(stretch)
        except (ValueError, OSError) as error:
            where = f"{stretch.file}: " if len(self.layout.files) > 1 else ""
            yield REFUSED, 0, f"{where}{error}".encode()

    def _read(self, stretch: Stretch) -> Iterator[Message]:
        pane = self.windows.pane
        end: int | None = None  # step after the last one read
        rest = np.empty((0, len(self.layout.names)))  # rows up to there, in no whole slice yet
        counts = np.zeros(4, np.int64)
        for steps, values, infinite, marked in self.layout.read(stretch):
            back = np.flatnonzero(np.diff(steps) <= 0) + 1
            if len(back) or steps[0] < (0 if end is None else end):
                late = steps[int(back[0])] if len(back) else steps[0]
                raise ValueError(out_of_order(self.layout, int(late)))
            if steps[-1] >= self.layout.steps:  # files that are not in the order of their names
                raise ValueError(out_of_order(self.layout, int(steps[-1])))
            missing = int(np.isnan(values).sum()) - infinite - marked
            counts += len(steps), missing, infinite, marked
            gaps = np.flatnonzero(np.diff(steps) > LONGEST_GAP) + 1
            for at, part in zip(np.split(steps, gaps), np.split(values, gaps), strict=True):
                if end is None or at[0] - end > LONGEST_GAP:
                    if end is not None and len(rest):
                        yield EDGE, end - len(rest), rest.tobytes()
                    end, rest = int(at[0]), rest[:0]
                rows = np.full((int(at[-1]) + 1 - end, values.shape[1]), np.nan)
                rows[at - end] = part
                yield TALLY, end, Tally.of(rows).to_bytes()
                low, high = max(self.recent.start, end), min(self.recent.stop, end + len(rows))
                if low < high:
                    yield RECENT, low, rows[low - end : high - end].tobytes()

                end, rows = int(at[-1]) + 1, np.concatenate([rest, rows])
                begin = end - len(rows)
                first, last = -(-begin // pane), end // pane  # the slices that are whole here
                rest = rows
                if first < last:
                    whole = slice(first * pane - begin, last * pane - begin)
                    if whole.start:
                        yield EDGE, begin, rows[: whole.start].tobytes()
                    yield SLICES, first, np.stack(self.windows.slices(rows[whole])).tobytes()
                    rest = rows[whole.stop :]
        if end is not None and len(rest):
            yield EDGE, end - len(rest), rest.tobytes()
        yield COUNTS, 0, counts.tobytes()


def out_of_order(layout: Layout, step: int) -> str:
    """What a row out of order is told."""
    return (
        f"rows must be in the order of their times, each time once, got {layout.first} first and "
        f"{layout.first + step * layout.step} again or too late; sort them, and keep one a time"
    )


class Found:
    """What the tasks sent, put together."""

    def __init__(self, layout: Layout, windows: Windows, recent: slice, check: bool = True) -> None:
        self.check = check  # whether fill values are refused
        n, pane = len(layout.names), windows.pane
        self.layout, self.windows, self.start = layout, windows, recent.start
        self.sums = np.zeros((layout.steps // pane, n))
        self.samples = np.zeros(self.sums.shape, np.int64)
        self.recent = np.full((recent.stop - recent.start, n), np.nan)
        self.edges: dict[int, np.ndarray] = {}
        self.counts = np.zeros(4, np.int64)
        self.tallies: dict[tuple[int, int], tuple[int, Tally]] = {}  # in the order of the rows

    def take(self, place: tuple[int, int], kind: str, at: int, data: bytes) -> None:
        """Take in one message, the second number of its stretch's place; in any order."""
        n = len(self.layout.names)
        if kind == REFUSED:
            raise ValueError(data.decode())
        if kind == COUNTS:
            self.counts += np.frombuffer(data, np.int64)
        elif kind == TALLY:
            self.tallies[place] = at, Tally.from_bytes(data)
        elif kind == SLICES:
            packed = np.frombuffer(data).reshape(2, -1, n)
            self.sums[at : at + packed.shape[1]] = packed[0]
            self.samples[at : at + packed.shape[1]] = packed[1]
        else:
            rows = np.frombuffer(data).reshape(-1, n)
            if kind == RECENT:
                self.recent[at - self.start : at - self.start + len(rows)] = rows
            else:
                pane = self.windows.pane
                for step, row in enumerate(rows, at):  # kept until all of a slice is there
                    edge = self.edges.setdefault(step // pane, np.full((pane, n), np.nan))
                    edge[step % pane] = row

    def survey(self) -> Survey:
        """The survey of it all; ValueError when the stretches were not in order, or are unfit."""
        layout, windows = self.layout, self.windows
        (_, total), *further = (self.tallies[place] for place in sorted(self.tallies))
        n = len(layout.names)
        for at, tally in further:
            if at < total.steps:
                raise ValueError(out_of_order(layout, at))
            if at > total.steps:
                total += Tally.silent_for(at - total.steps, n)
            total += tally
        require_usable(layout.names, total)
        samples = np.vstack([self.recent, total.lowest, total.highest])
        suspects = find_fill_values(layout.names, samples)
        if self.check:
            require_no_fill_values(suspects)

        for place, rows in self.edges.items():
            if place < len(self.sums):
                sums, samples = windows.slices(rows)
                self.sums[place], self.samples[place] = sums[0], samples[0]
        every = windows.ending_in(0, layout.steps)
        parts = []
        for begin in range(0, len(every), CHUNK):
            starts = np.array(every[begin : begin + CHUNK]) * (windows.slide // windows.pane)
            parts.append(known(*windows.joined(self.sums, self.samples, starts), windows))
        results = finished(np.concatenate(parts), layout.names, windows, layout.step)
        rows_read, missing, infinite, marked = self.counts.tolist()
        found = {"missing_values": missing, "non_finite": infinite, "marked": marked}
        quality = Quality(rows_read, **found, missing_steps=layout.steps - rows_read)
        last = layout.first + (layout.steps - 1) * layout.step
        inventory = Inventory(
            names=layout.names,
            first=layout.first,
            last=last,
            step=layout.step,
            quality=quality,
            tally=total,
            row_numbers=layout.row_numbers,
            fill_values=suspects,
        )
        return Survey(inventory, results, self.recent)
