"""What the workers of a micro-batch have sent of its windows, put side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import pyarrow as pa

from aftlib.approximately_once.assignment import Assignment
from aftlib.core.windows import Windows


@dataclass(frozen=True)
class Delivery:
    """The windows due in one micro-batch, a row a window, and the shifts worked in it.

    `values` is NaN and `samples` 0 where `sent` is False.
    """

    layout: Windows
    assignment: Assignment
    shifts: list[dict]  # one a worker, as in `operator.RESULT`
    windows: range
    values: np.ndarray  # (windows, n)
    samples: np.ndarray  # (windows, n)
    sent: np.ndarray  # (windows, m) bool, whether a worker did

    @classmethod
    def of(cls, rows: pa.Table, layout: Windows, assignment: Assignment) -> Delivery:
        """Gather the rows (`operator.RESULT`) of all workers."""
        plain = rows.drop_columns(["values", "samples"]).to_pylist()
        shifts = [row for row in plain if row["first"] is None]
        start = min((row["start"] for row in shifts), default=0)
        due = layout.ending_in(start, max((row["stop"] for row in shifts), default=start))
        shape = len(due), len(assignment.worker_of)
        sent = np.zeros((len(due), len(assignment.workers)), bool)
        empty = np.full(shape, np.nan), np.zeros(shape, np.int64), sent
        found = cls(layout, assignment, shifts, due, *empty)
        for i, row in enumerate(plain):
            values, samples = rows["values"][i].values, rows["samples"][i].values
            if values is not None and row["count"]:
                first = row["first"] - due.start
                here = slice(first, first + row["count"])
                found.take(here, row["worker"], values.to_numpy(), samples.to_numpy())
        return found

    def take(self, rows: int | slice, worker: int, values: np.ndarray, samples: np.ndarray) -> None:
        """Put down what a worker has sent of some windows, a value a key in the worker's order."""
        keys = list(self.assignment.workers[worker])
        self.values[rows, keys] = values.reshape(-1, len(keys))
        self.samples[rows, keys] = samples.reshape(-1, len(keys))
        self.sent[rows, worker] = True

    def cells(self, rows: Sequence[int], names: Sequence[str]) -> list[tuple]:
        """Rows of the sink for what was sent of some windows, in the order in which it keeps them.

        Each has start, stop, key, value, half_width, estimated and samples.
        """
        order = np.array(sorted(range(len(names)), key=names.__getitem__))
        at = np.ix_(np.array(rows, int), order)
        sent = self.sent[at[0], self.assignment.worker_of[order]]
        window, key = np.nonzero(sent)
        start = (np.array(self.windows)[at[0].ravel()] * self.layout.slide)[window]
        ends = start + self.layout.width
        columns = start, ends, np.array(names, object)[order][key], self.values[at][sent]
        lists = (column.tolist() for column in columns)
        samples = self.samples[at][sent].tolist()
        return list(zip(*lists, repeat(None), repeat(0), samples, strict=False))
