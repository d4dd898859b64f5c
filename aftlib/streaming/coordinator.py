"""D1's coordinator on a stream: the rows of windows by a known model, which has nothing to learn.

An estimate depends on the other windows of its group and time alone. Spark emits these in one
micro-batch, so no state is needed besides that of Spark's own aggregation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy

import numpy as np
import pandas as pd

from aftlib.streaming.groups import promise_of
from aftlib.streaming.rows import Rounds, arrange, frame_of_rounds


def coordinate(frames: Iterable[pd.DataFrame], content: str) -> Iterator[pd.DataFrame]:
    """Yield the rows of all windows of some groups, with the audit of shadow predictions.

    `content` is that of the promise. Columns of `frames`: key, start (µs), sensor, value, samples,
    variance.
    """
    promise = promise_of(content, None)
    given = list(frames)
    if not given:  # a partition without any group
        return
    windows = arrange(pd.concat(given, ignore_index=True), promise)
    if not windows.start.size:
        return
    known = copy(promise.known_model)  # which counts for itself
    recovered = known.update(windows.value)
    recoverable = promise.horizons * known.recoverable_after(np.isnan(windows.value))
    rounds = Rounds(windows, recovered, recoverable)
    number, wrong, _ = known.outcomes[:, 0]
    audit = np.stack([number, wrong, promise.delta * number])
    yield frame_of_rounds(promise, rounds, windows.key, audit)
