"""Input that costs something: one limit on all processes of a machine that read a log.

A broker with a quota, a gateway over radio, object storage or an archive hands out so many samples
per second, whoever asks. `ReadMeter` imposes such a limit on the readers of one log by a token
bucket in the log's folder, and counts how often each sample was read.
"""

from __future__ import annotations

import fcntl
import math
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from aftlib.core.checks import require_number

BYTES_PER_SAMPLE = 8
PAUSE_S = 0.1
"""Longest time without a read that is made up for: readers compute between two reads."""
SLICE_S = 0.01
"""Time of the samples that are granted at once, so that several readers share the rate."""
_STATE = struct.Struct("<4d2q")  # limit (rate, latency, price), next free time, requests, samples
_BUCKET, _COUNTS = "read-limit", "read-counts"


@dataclass(frozen=True)
class ReadLimit:
    """Cost of reading a log.

    Parameters
    ----------
    samples_per_s : float
        Samples per second that all readers of one machine get together, above 0; infinite for
        input that is counted only.
    request_s : float
        Latency of each request in seconds, at least 0. Requests wait side by side.
    price_per_gb : float
        Price of 10⁹ bytes, in any currency, at least 0; a sample has 8 bytes.
    """

    samples_per_s: float = math.inf
    request_s: float = 0.0
    price_per_gb: float = 0.0

    def __post_init__(self) -> None:
        if self.samples_per_s != math.inf:
            require_number("samples_per_s", self.samples_per_s, above=0)
        require_number("request_s", self.request_s, least=0)
        require_number("price_per_gb", self.price_per_gb, least=0)


@dataclass(frozen=True)
class ReadUsage:
    """Reads of a log so far."""

    requests: int
    samples: int  # every read of a sample counts
    price: float


class ReadMeter:
    """Limit and account of a log's readers, in files beside the log's own.

    The bucket is a file that each reader locks, with the time at which the next sample may be read
    by the machine's monotonic clock, which all processes share. So a limit holds until the machine
    restarts; then set it again. Any reader of the folder is limited, so limit a copy of your own.
    In every span of T seconds at most `samples_per_s` · (T + `PAUSE_S`) samples are granted, and
    after a longer pause none at once.

    Parameters
    ----------
    folder : Path
        The log's folder.
    steps, sensors : int
        Size of the log.
    clock, sleep
        Time in seconds, and how to wait; tests give their own.
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
        """Limit every read from now on; the account goes on.

        ValueError when the log has no samples.
        """
        if not math.prod(self._shape):
            raise ValueError(
                f"log must hold samples to be limited, got {self._shape[0]} steps of "
                f"{self._shape[1]} sensors; write some first"
            )
        if not self.active:
            np.memmap(self._counts, np.uint16, "w+", shape=self._shape).flush()
            self._bucket.write_bytes(_STATE.pack(math.inf, 0, 0, 0, 0, 0))
        with self._locked() as file:
            *_, requests, samples = _STATE.unpack(file.read())
            values = limit.samples_per_s, limit.request_s, limit.price_per_gb, self._clock()
            file.seek(0)
            file.write(_STATE.pack(*values, requests, samples))

    @property
    def usage(self) -> ReadUsage:
        """Requests and samples since the first limit was set, and their price at the last one's."""
        with self._locked() as file:
            _, _, price, _, requests, samples = _STATE.unpack(file.read())
        return ReadUsage(requests, samples, price * samples * BYTES_PER_SAMPLE / 1e9)

    @property
    def counts(self) -> np.ndarray:
        """How often each sample was read, shape (steps, n)."""
        return np.array(self._opened("r"))

    def samples_again(self, begin: int, stop: int) -> int:
        """Count reads of the steps [begin, stop) beyond the first of each sample."""
        counts = self._opened("r")[begin:stop].astype(int)
        return int(np.maximum(counts - 1, 0).sum())

    def deliver(
        self, blocks: Iterator[np.ndarray], keys: Sequence[int], begin: int, cut: int
    ) -> Iterator[np.ndarray]:
        """Yield blocks (steps, keys) from step `begin` on, each as soon as the limit permits.

        Larger blocks are cut at the steps that `cut` divides. All of it is one request.
        """
        counts, at, columns = self._opened("r+"), begin, list(keys)
        self._sleep(self._reserve(0, requests=1))
        for block in blocks:
            for part in np.split(block, range(-at % cut or cut, len(block), cut)):
                for first, last in pairwise(self._slices(len(part), len(columns))):
                    wait = self._reserve((last - first) * len(columns))
                    if wait > 0:
                        self._sleep(wait)
                    with self._locked():
                        counts[at + first : at + last, columns] += 1
                at += len(part)
                yield part

    def _slices(self, steps: int, keys: int) -> list[int]:
        """Bounds of the slices in which so many steps are granted."""
        with self._locked() as file:
            rate = _STATE.unpack(file.read())[0]
        length = steps if math.isinf(rate) else max(1, int(rate * SLICE_S / max(1, keys)))
        return [*range(0, steps, max(1, length)), steps]

    def _reserve(self, samples: int, requests: int = 0) -> float:
        """Take samples out of the bucket; return the seconds until the last of them is there."""
        with self._locked() as file:
            rate, latency, price, free, asked, read = _STATE.unpack(file.read())
            now = self._clock()
            ready = (free if now - free <= PAUSE_S else now) + samples / rate
            file.seek(0)
            about = asked + requests, read + samples
            file.write(_STATE.pack(rate, latency, price, ready, *about))
        return latency if requests else ready - now

    def _opened(self, mode: str) -> np.memmap:
        return np.memmap(self._counts, np.uint16, mode, shape=self._shape)  # type: ignore[call-overload]

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        # opened each time: processes forked from one that holds a file would share its lock
        with self._bucket.open("r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
