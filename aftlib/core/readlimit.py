"""A read limit, shared by all processes of a machine that read a log.

A broker with a quota, a gateway over radio, object storage or an archive hands out a limited number
of samples per second to all readers together. `ReadMeter` imposes such a limit on the readers of
one log by a token bucket in the log's folder, and counts how often each sample was read.
"""

from __future__ import annotations

import fcntl
import math
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from aftlib.core.checks import require_number

BYTES_PER_SAMPLE = 8
PAUSE_S = 0.1
"""Longest pause whose samples are granted afterwards by default: readers compute between reads."""
SLICE_S = 0.01
"""Seconds of the rate that one grant covers; short, so that several readers share the rate."""
LEAST_RATE = 1e-6
"""Least samples per second, one in 12 days; at much lower rates a reader's sleep overflows."""
_MOST_READS = np.iinfo(np.uint16).max
_STATE = struct.Struct("<3d?3d2q")  # the limit's fields, next free time, last, requests, samples
_BUCKET, _COUNTS = "read-limit", "read-counts"


@dataclass(frozen=True)
class ReadLimit:
    """Limit and price of reading a log.

    Parameters
    ----------
    samples_per_s : float
        Samples per second that all readers of one machine get together, at least 1e-6; infinite if
        reads are only counted.
    request_s : float
        Latency of each request in seconds, at least 0. Latencies of concurrent requests overlap.
    price_per_gb : float
        Price of 10⁹ bytes, in any currency, at least 0; a sample has 8 bytes.
    again_only : bool
        Whether only repeated reads are limited, as with pushed live input and a slow archive. By
        default all reads are limited.
    burst_s : float
        Longest pause in seconds whose samples are granted afterwards, at least 0. Let it be shorter
        than the start of a reader whose reading time is measured.
    """

    samples_per_s: float = math.inf
    request_s: float = 0.0
    price_per_gb: float = 0.0
    again_only: bool = False
    burst_s: float = PAUSE_S

    def __post_init__(self) -> None:
        if self.samples_per_s != math.inf:
            fix = "give a higher rate"
            require_number("samples_per_s", self.samples_per_s, least=LEAST_RATE, fix=fix)
        require_number("request_s", self.request_s, least=0)
        require_number("price_per_gb", self.price_per_gb, least=0)
        require_number("burst_s", self.burst_s, least=0)


@dataclass(frozen=True)
class ReadUsage:
    """Reads of a log so far."""

    requests: int
    samples: int  # every read of a sample counts
    price: float
    last_s: float  # time by the monotonic clock from which the last sample may be read


class ReadMeter:
    """Read limit and read counts of a log, in files next to the log's own.

    The bucket is a file that each reader locks. It holds the time at which the next sample may be
    read, by the machine's monotonic clock, which all processes share. That clock restarts when the
    machine does: set the limit again afterwards. The limit applies to every reader of the folder,
    so use a copy of the log. In every span of T seconds at most `samples_per_s` · (T + `burst_s`)
    samples are granted, plus one slice: the samples of `SLICE_S`, or one step of a reader's sensors
    if that is more. After a pause longer than `burst_s`, no samples of the pause are granted.

    Parameters
    ----------
    folder : Path
        The log's folder.
    steps, sensors : int
        Size of the log.
    clock, sleep
        Functions that return the time in seconds, and that wait; tests replace them.
    """

    def __init__(
        self,
        folder: Path,
        steps: int,
        sensors: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bucket, self._counts = folder / _BUCKET, folder / _COUNTS
        self._shape, self._clock, self._sleep = (steps, sensors), clock, sleep

    @property
    def active(self) -> bool:
        """Whether a limit was set."""
        return self._bucket.exists()

    def set_limit(self, limit: ReadLimit) -> None:
        """Limit every read from now on; earlier reads stay counted.

        ValueError when the log has no samples.
        """
        if not math.prod(self._shape):
            raise ValueError(
                f"log must hold samples to be limited, got {self._shape[0]} steps of "
                f"{self._shape[1]} sensors; write some first"
            )
        if not self.active:
            np.memmap(self._counts, np.uint16, "w+", shape=self._shape).flush()
            self._bucket.write_bytes(_STATE.pack(*astuple(ReadLimit()), 0, 0, 0, 0))
        with self._lock_bucket() as file:
            *_, requests, samples = _STATE.unpack(file.read())
            now = self._clock()
            file.seek(0)
            file.write(_STATE.pack(*astuple(limit), now, now, requests, samples))

    @property
    def usage(self) -> ReadUsage:
        """Requests and samples since the first limit was set, and their price by the last limit."""
        with self._lock_bucket() as file:
            *fields, _, last_s, requests, samples = _STATE.unpack(file.read())
        price = ReadLimit(*fields).price_per_gb * samples * BYTES_PER_SAMPLE / 1e9
        return ReadUsage(requests, samples, price, last_s)

    @property
    def counts(self) -> np.ndarray:
        """How often each sample was read, shape (steps, n); at most 65,535."""
        return np.array(self._open_counts("r"))

    def samples_again(self, begin: int, stop: int) -> int:
        """Count reads of the steps [begin, stop) beyond the first of each sample."""
        counts = self._open_counts("r")[begin:stop].astype(int)
        return int(np.maximum(counts - 1, 0).sum())

    def deliver(
        self, blocks: Iterator[np.ndarray], keys: Sequence[int], begin: int, cut: int
    ) -> Iterator[np.ndarray]:
        """Yield blocks (steps, keys) from step `begin` on, each as soon as the limit permits.

        Larger blocks are cut at multiples of `cut` steps. The whole call counts as one request.
        """
        counts, at, columns = self._open_counts("r+"), begin, list(keys)
        limit = self._limit()
        latency = limit.request_s
        if limit.again_only and not counts[at : at + 1, columns].any():
            latency = 0.0
        self._sleep(latency)
        self._reserve(counts, slice(0), columns, requests=1)
        for block in blocks:
            for part in np.split(block, range(-at % cut or cut, len(block), cut)):
                for first, last in pairwise(slices(limit, len(part), len(columns))):
                    rows = slice(at + first, at + last)
                    self._sleep(self._reserve(counts, rows, columns))
                at += len(part)
                yield part

    def _limit(self) -> ReadLimit:
        with self._lock_bucket() as file:
            return ReadLimit(*_STATE.unpack(file.read())[:5])

    def _reserve(
        self, counts: np.memmap, rows: slice, columns: list[int], requests: int = 0
    ) -> float:
        """Count a read of samples; return the seconds until the bucket grants the last of them.

        One lock covers counts and bucket: of two concurrent first reads, one is a repeat.
        """
        with self._lock_bucket() as file:
            *fields, free, last_s, total, samples = _STATE.unpack(file.read())
            limit, now = ReadLimit(*fields), self._clock()
            before = counts[rows, columns]
            counts[rows, columns] = before + (before < _MOST_READS)
            limited = int(np.count_nonzero(before)) if limit.again_only else before.size
            ready = (free if now - free <= limit.burst_s else now) + limited / limit.samples_per_s
            last_s = max(ready, now) if before.size else last_s
            file.seek(0)
            file.write(_STATE.pack(*fields, ready, last_s, total + requests, samples + before.size))
        return max(0.0, ready - now) if limited else 0.0

    def _open_counts(self, mode: str) -> np.memmap:
        return np.memmap(self._counts, np.uint16, mode, shape=self._shape)  # type: ignore[call-overload]

    @contextmanager
    def _lock_bucket(self) -> Iterator[BinaryIO]:
        # opened each time: processes forked from one that holds a file would share its lock
        with self._bucket.open("r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def slices(limit: ReadLimit, steps: int, sensors: int) -> list[int]:
    """Bounds of the slices of steps that the limit grants one after another."""
    if math.isinf(limit.samples_per_s):
        return [0, steps]
    length = max(1, int(limit.samples_per_s * SLICE_S / max(1, sensors)))
    return [*range(0, steps, length), steps]
