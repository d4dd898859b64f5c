"""D3 by formula: throughput of a shuffle and of a shared table on p tasks, and fig. 1's counts.

A hash function is not given by the document. It is a population here: `HASHES` drawn at random.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from aftlib.shared_state.tuples import TupleStream

#: Number of hash functions that are drawn.
HASHES = 200


@cache
def busiest_shares(keys: int, skew: float, tasks: int, hashes: int = HASHES) -> np.ndarray:
    """Share of tuples that the busiest of `tasks` receivers gets, by hash function: q_p."""
    shares = TupleStream(1, keys, skew).shares
    draws = (np.random.default_rng([turn, keys]).integers(0, 2**32, keys) for turn in range(hashes))
    return np.array(
        [np.bincount(each % tasks, weights=shares, minlength=tasks).max() for each in draws]
    )


def shuffle_throughput(busiest: np.ndarray, tasks: int, receivers: float) -> np.ndarray:
    """Throughput of a pipelined shuffle: 1 / max((1 − b) / p, b·q_p), relative to one task.

    Receivers bear the share `receivers` (b) of a tuple's cost. Senders or the busiest receiver
    limit the throughput, whichever are slower.
    """
    return 1 / np.maximum((1 - receivers) / tasks, receivers * busiest)


def merged_sums(stream: TupleStream, tasks: int) -> float:
    """Expected number of sums that `tasks` tasks hold together: keys that each has seen."""
    seen = -np.expm1(stream.tuples / tasks * np.log1p(-np.minimum(stream.shares, 1 - 1e-16)))
    return float(tasks * seen.sum())


def shared_throughput(stream: TupleStream, tasks: int, merge_ns: float, tuple_ns: float) -> float:
    """Throughput of tasks that merge their sums once, one after another, relative to one task.

    A tuple costs a task `tuple_ns`, and merging a sum into the shared table `merge_ns`.
    """
    merging = merge_ns * merged_sums(stream, tasks) / stream.tuples
    return 1 / (1 / tasks + merging / tuple_ns)


def sent_again(replayed: int, share: float) -> int:
    """Tuples that healthy tasks get twice when a failed task's input passes a shuffle again.

    The failed task replays `replayed` tuples; its own keys have the share `share` of them (fig. 1).
    """
    return round(replayed * (1 - share))
