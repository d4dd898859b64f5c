"""D3-4's explanation put to the test: is skew fast for fewer sums, or for sums in the cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from aftlib.shared_state.stream.parsing import BLOCK
from aftlib.shared_state.stream.sums import SliceSums
from aftlib.shared_state.stream.tuples import TupleStream

CASES = {
    "uniform": "all keys, equally often",
    "skewed": "Zipf, only the keys that occur have a sum",
    "skewed, all sums kept": "Zipf, but every key has a sum beforehand: as many as uniform",
    "uniform, few keys": "as many keys as the skewed stream has, equally often",
    "uniform, in runs": "all keys, equally often, but the same ones come one after another",
}
RUN = 64


def states_or_locality(
    keys: Sequence[int], tuples: int, skew: float, repeats: int, seed: int = 1
) -> pd.DataFrame:
    """Nanoseconds to add a parsed tuple to its key's sum, and to take the sums, for `CASES`.

    Parameters
    ----------
    keys : sequence of int
        Numbers of different keys, which set how large the table of sums is.
    tuples : int
        In memory and parsed already, so that nothing else is in the time.
    skew : float
        Zipf's parameter.
    repeats : int
        The fastest counts.
    seed : int

    Returns
    -------
    DataFrame
        keys, case, states: sums held, add_ns: a tuple, take_ms: for all sums.
    """
    rows = []
    for number in keys:
        columns = _columns(number, tuples, skew, seed)
        for case, (held, stream) in columns.items():
            timings = [_timed(held, stream) for _ in range(repeats)]
            states, add_s, take_s = (min(column) for column in zip(*timings, strict=True))
            at = {"keys": number, "case": case, "states": states}
            rows.append(at | {"add_ns": 1e9 * add_s / tuples, "take_ms": 1e3 * take_s})
    return pd.DataFrame(rows)


def _columns(
    keys: int, tuples: int, skew: float, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Keys that have a sum beforehand, and keys of the tuples, by case."""
    rng, nothing = np.random.default_rng([seed, keys]), np.empty(0, np.int64)
    stream = TupleStream(tuples, keys, skew, seed)
    skewed = stream.ids[np.searchsorted(np.cumsum(stream.shares)[:-1], rng.random(tuples))]
    occurring = rng.permutation(np.unique(skewed))
    uniform = stream.ids[rng.integers(0, keys, tuples)]
    return {
        "uniform": (nothing, uniform),
        "skewed": (nothing, skewed),
        "skewed, all sums kept": (stream.ids, skewed),
        "uniform, few keys": (nothing, rng.choice(occurring, tuples)),
        "uniform, in runs": (nothing, np.repeat(uniform[: -(-tuples // RUN)], RUN)[:tuples]),
    }


def _timed(held: np.ndarray, keys: np.ndarray) -> tuple[int, float, float]:
    """Sums at the end, seconds to add the tuples, seconds to take the sums."""
    sums = SliceSums(1)
    _add(sums, _blocks(held))
    _add(sums, _blocks(np.unique(keys)))  # the table has grown before the clock runs
    blocks = _blocks(keys)
    add_s = _seconds(lambda: _add(sums, blocks))
    before = time.perf_counter()
    states = len(sums.take())
    return states, add_s, time.perf_counter() - before


def _blocks(keys: np.ndarray) -> list[np.ndarray]:
    """Tuples of these keys in blocks as a reader hands them on."""
    block = np.stack([np.zeros_like(keys), keys, np.ones_like(keys)])
    return [block[:, first : first + BLOCK] for first in range(0, len(keys), BLOCK)]


def _add(sums: SliceSums, blocks: list[np.ndarray]) -> None:
    for block in blocks:
        sums.add(block)


def _seconds(work: Callable[[], None]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before
