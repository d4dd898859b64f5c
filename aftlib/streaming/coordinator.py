"""D1's coordinator on a stream: the rows of windows by a known model, which has nothing to learn.

An estimate depends on the other windows of its group and time alone. Spark emits these in one
micro-batch, so no state is needed besides that of Spark's own aggregation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from aftlib.guard.known import KnownModel
from aftlib.streaming.groups import AUDIT, promise_of
from aftlib.streaming.rows import Rounds, arrange, frame_of, rows_of, used_results


def rows_by_model(parts: Iterable[pd.DataFrame], content: str) -> Iterator[pd.DataFrame]:
    """Yield the rows of all windows of some groups, with the audit of the model's estimates.

    `content` is that of the promise. Columns of `parts`: key, start (µs), sensor, value, samples,
    variance. Each sensor's first row has its outcomes of all windows, as in `groups`.
    """
    promise = promise_of(content, None)
    frames = list(parts)
    if not frames:  # a partition without any group
        return
    windows = arrange(pd.concat(frames, ignore_index=True), promise.sensors)
    if not windows.start.size:
        return
    table = promise.gain_table
    known = KnownModel.of_table(table)
    window = used_results(promise, windows.value, windows.samples)
    recovered = known.update(window)
    rounds = Rounds(
        start=windows.start,
        window=window,
        samples=windows.samples,
        variance=windows.variance,
        estimate=recovered.estimate,
        half_width=recovered.half_width,
        certified=recovered.certified,
        lasting=promise.horizons * table.recoverable_after(np.isnan(window)),
    )
    columns = rows_of(promise, rounds)
    n = len(promise.sensors)
    audit = np.zeros((len(AUDIT), len(columns["start"])))
    number, wrong, _ = known.outcomes[:, 0]
    audit[:, :n] = number, wrong, promise.delta * number
    both = {"start": columns.pop("start"), "key": np.repeat(windows.key, n), **columns}
    yield frame_of(both | dict(zip(AUDIT, audit, strict=True)))
