"""D3-4's explanation put to the test: is skew fast for fewer sums, or for sums in the cache."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from aftlib.core.checks import with_value
from aftlib.shared_state.stream.parsing import BLOCK
from aftlib.shared_state.stream.sums import SliceSums
from aftlib.shared_state.stream.tuples import TupleStream

RUN = 64
"""Tuples of the same key that come one after another in the last case."""


def states_or_locality(
    keys: Sequence[int], tuples: int, skew: float, repeats: int, seed: int = 1
) -> pd.DataFrame:
    """Nanoseconds to add a parsed tuple to its key's sum, and to take the sums, in five cases.

    *uniform*: all keys, equally often. *skewed*: Zipf, only the keys that occur have a sum.
    *skewed, all sums kept*: every key has a sum beforehand, as many as uniform. *uniform, few
    keys*: as many keys as the skewed stream has. *uniform, in runs*: the same keys one after
    another. `keys` are numbers of different keys, which set how large the table of sums is; tuples
    are in memory and parsed, so that nothing else is in the time; the fastest repeat counts.

    Columns keys, case, states: sums held, add_ns: a tuple, take_ms: for all sums.
    """
    rows = []
    for number in map(int, with_value(keys)):
        rng, nothing = np.random.default_rng([seed, number]), np.empty(0, np.int64)
        stream = TupleStream(tuples, number, skew, seed)
        skewed = stream.ids[np.searchsorted(np.cumsum(stream.shares)[:-1], rng.random(tuples))]
        occurring = rng.permutation(np.unique(skewed))
        uniform = stream.ids[rng.integers(0, number, tuples)]
        cases = {
            "uniform": (nothing, uniform),
            "skewed": (nothing, skewed),
            "skewed, all sums kept": (stream.ids, skewed),
            "uniform, few keys": (nothing, rng.choice(occurring, tuples)),
            "uniform, in runs": (nothing, np.repeat(uniform[: -(-tuples // RUN)], RUN)[:tuples]),
        }
        for case, (held, drawn) in cases.items():
            timings = [_timed(held, drawn) for _ in range(repeats)]
            states, add_s, take_s = (min(column) for column in zip(*timings, strict=True))
            at = {"keys": number, "case": case, "states": states}
            rows.append(at | {"add_ns": 1e9 * add_s / tuples, "take_ms": 1e3 * take_s})
    return pd.DataFrame(rows)


def _timed(held: np.ndarray, keys: np.ndarray) -> tuple[int, float, float]:
    """Sums at the end, seconds to add the tuples, seconds to take the sums."""
    sums, seconds = SliceSums(1), 0.0
    for each in (held, np.unique(keys), keys):  # the table has grown before the clock counts
        columns = np.stack([np.zeros_like(each), each, np.ones_like(each)])
        blocks = [columns[:, first : first + BLOCK] for first in range(0, len(each), BLOCK)]
        before = time.perf_counter()
        for block in blocks:
            sums.add(block)
        seconds = time.perf_counter() - before
    before = time.perf_counter()
    states = len(sums.take())
    return states, seconds, time.perf_counter() - before
