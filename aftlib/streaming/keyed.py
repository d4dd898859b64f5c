"""The guard of one group: it turns windows into rows, and its state is written in two parts.

A guard is a function of the windows that it received. So its stored state is a snapshot, which is
written rarely, and the log of the windows since then. A restart loads the snapshot and processes
the log again, which gives the same bits.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from aftlib.core.windows import divisor
from aftlib.guard.estimator import LARGEST
from aftlib.guard.guard import VERSION
from aftlib.streaming.promise import Promise

NONE = np.iinfo(np.int64).min
"""Start of the next window before the first one."""
LEAST_LOG = 128
"""Least windows between two snapshots of up to 384 sensors; else a third of their number."""
SPREAD = 16
"""From then on, a snapshot is written after each window with the chance 1 / 16."""
TOKEN = 16
"""Bytes of a token."""
DAMAGED = "the checkpoint is damaged; restore it from a copy, or start again in another one"
_STATES = np.array(["exact", "estimated", "lost"], object)


class _Round(NamedTuple):
    """One window of a group as it came, and the guard's estimates; arrays have shape (n,)."""

    start: Any
    window: np.ndarray  # NaN where missing
    samples: np.ndarray
    variance: np.ndarray
    estimate: np.ndarray
    half_width: np.ndarray
    certified: np.ndarray
    lasting: np.ndarray  # the longest loss, in windows, that may begin now


class KeyedGuard:
    """The guard of one group, which follows the starts of its windows.

    `token` identifies the state, because it is a hash of the promise and of all windows so far.
    """

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.guard = promise.guard()
        self.next = NONE  # start of the next window
        self.token = hash_of(f"{VERSION} {promise.content}".encode())
        self.logged = 0  # windows since the snapshot
        self._limits = np.array(promise.limits)
        self._names = np.array(promise.sensors, object)
        self._place = {name: place for place, name in enumerate(promise.sensors)}
        self._step = promise.step
        self._entry = np.dtype([("start", np.int64), ("window", float, (len(self._names),))])

    def __copy__(self) -> Self:
        """Return a guard with a state of its own."""
        return copy.deepcopy(self)

    def process(self, windows: pd.DataFrame) -> tuple[dict[str, np.ndarray], bytes]:
        """Process windows in the order of their starts; return their rows, and them for the log.

        `windows` has the columns start (µs), sensor, value, samples and variance (of the samples in
        a window), one row per window and sensor. Of a gap without any window, only the first H
        windows get rows. The rows are returned as columns, because a DataFrame of a group's few
        rows takes longer than the guard.
        """
        rounds = []
        log = b""
        for start, value, samples, variance in self._arranged(windows):
            with_rows = 0 if self.next == NONE else self.guard.horizons  # windows of a gap
            for empty in range(self.next, start, self._step)[:with_rows]:
                nothing = np.full(value.size, np.nan)
                rounds.append(self._round(empty, nothing, nothing, nothing))
                self.next = empty + self._step
            self._skip_to(start)
            window = used_results(self.promise, value, samples)
            rounds.append(self._round(start, window, samples, variance))
            entry = np.array((start, rounds[-1].window), self._entry)
            self._record(entry)
            log += entry.tobytes()
        return self._rows(rounds), log

    @property
    def audit(self) -> np.ndarray:
        """Guarantees with known outcome, the wrong ones, and the bound on these, shape (3, n).

        All three are summed over the horizons. An account without an outcome has no slack yet.
        """
        number, wrong, slack = self.guard.outcomes
        allowed = self.promise.delta * number + slack * (number > 0)
        return np.stack([number, wrong, allowed]).sum(1)

    @property
    def is_due(self) -> bool:
        """Whether to write a snapshot; groups that began together do not write them together."""
        least = max(LEAST_LOG, len(self._names) // 3)
        by_chance = self.token[0] % SPREAD == 0
        return self.logged >= least and (by_chance or self.logged >= 2 * least)

    def snapshot(self) -> bytes:
        """Return the whole state, and begin a new log."""
        self.logged = 0
        return self.token + self.next.to_bytes(8, "big", signed=True) + self.guard.to_bytes()

    def restore(self, snapshot: bytes | None, log: Iterable[bytes], token: bytes) -> None:
        """Continue from the stored state; ValueError when its parts do not belong together.

        Without a snapshot, this guard processes the parts of the log that it has not processed.
        """
        if snapshot is not None:
            self.token = snapshot[:TOKEN]
            self.next = int.from_bytes(snapshot[TOKEN : TOKEN + 8], "big", signed=True)
            try:
                self.guard = self.promise.guard(snapshot[TOKEN + 8 :])
            except ValueError as error:
                raise ValueError(
                    f"the snapshot of a group cannot be read ({error}): {DAMAGED}"
                ) from error
        for entry in np.frombuffer(b"".join(log), self._entry):
            self._skip_to(int(entry["start"]))
            self.guard.update(entry["window"])
            self._record(entry)
        if self.token != token:
            raise ValueError(
                f"the guard's state must be {token.hex()}, got {self.token.hex()}: {DAMAGED}"
            )

    def under(self, promise: Promise) -> Self:
        """Return a guard of a changed promise that goes on with what this one learned."""
        after = type(self)(promise)
        after.guard = promise.follow(self.guard)
        after.next = self.next
        after.token = hash_of(after.token + self.token)
        return after

    def _skip_to(self, start: int) -> None:
        """Let the guard process the empty windows before `start`."""
        if self.next == NONE:
            self.guard = self.promise.guard(start=start)
        elif self.next != start:
            self.guard.skip((start - self.next) // self._step)
            self.next = start

    def _record(self, entry: np.ndarray) -> None:
        """Count a window that the guard received, and hash it."""
        self.next = int(entry["start"]) + self._step
        self.logged += 1
        self.token = hash_of(self.token + entry.tobytes())

    def _arranged(
        self, windows: pd.DataFrame
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield start, values, samples and variances of each window, by sensor; NaN if missing."""
        column = np.array([self._place[name] for name in windows["sensor"]], int)
        starts, row = np.unique(np.asarray(windows["start"]), return_inverse=True)
        wide = np.full((3, starts.size, len(self._names)), np.nan)
        for place, name in enumerate(("value", "samples", "variance")):
            wide[place, row, column] = np.asarray(windows[name], float)
        yield from zip(starts.tolist(), *wide, strict=True)

    def _round(
        self, start: int, window: np.ndarray, samples: np.ndarray, variance: np.ndarray
    ) -> _Round:
        """Give a window to the guard."""
        recovered = self.guard.update(window)
        return _Round(
            start=start,
            window=window,
            samples=samples,
            variance=variance,
            estimate=recovered.estimate[0],
            half_width=recovered.half_width[0],
            certified=recovered.certified[0],
            lasting=self.guard.recoverable.cumprod(0).sum(0),
        )

    def _rows(self, rounds: list[_Round]) -> dict[str, np.ndarray]:
        """Return one row per round and sensor, as columns."""
        both = _Round(*(np.array(part) for part in zip(*rounds, strict=True)))
        samples = np.nan_to_num(both.samples).astype(np.int64)
        missing = np.isnan(both.window)
        partial = ~missing & (samples < self.promise.samples)
        own = sampling_half_width(self.promise, samples, both.variance)
        estimated = np.where(missing, both.certified, partial & (own <= self._limits))
        state = np.where(missing | partial, np.where(estimated, *_STATES[1:]), _STATES[0])
        half_width = np.where(missing & both.certified, both.half_width, np.nan)
        return {
            "start": np.repeat(both.start, len(self._names)),
            "sensor": np.tile(self._names, len(rounds)),
            "state": state.ravel(),
            "value": np.where(missing & both.certified, both.estimate, both.window).ravel(),
            "half_width": np.where(partial, own, half_width).ravel(),
            "samples": samples.ravel(),
            "recoverable": both.lasting.astype(np.int32).ravel(),
        }


def used_results(promise: Promise, value: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Return windows' results; NaN where too few samples came or a result is too large.

    Results of partial windows are extrapolated to all samples, which is possible for a mean or a
    sum; for other queries the promise has only whole windows.
    """
    number = np.nan_to_num(samples)
    enough = (number >= promise.share * promise.samples) & (np.abs(value) < LARGEST)
    present = np.clip(number, 1, promise.samples)
    whole = value * (result_per_mean(promise) * divisor(promise.query, present) / present)
    return np.where(enough, whole, np.nan)


def sampling_half_width(promise: Promise, samples: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return t·s·√(1/m − 1/w) for m samples drawn from the w of a window; NaN for m = 1.

    t is Student's quantile with m − 1 degrees of freedom, because s comes from m samples.
    """
    quantile = stdtrit(np.maximum(samples - 1, 1), 1 - promise.delta / 2)
    left = np.maximum(1 / np.maximum(samples, 1) - 1 / promise.samples, 0)
    half_width = np.where(samples > 1, quantile * np.sqrt(variance * left), np.nan)
    return half_width * result_per_mean(promise)


def result_per_mean(promise: Promise) -> float:
    """Return the result of a whole window whose samples have the mean 1."""
    return float(promise.samples / divisor(promise.query, promise.samples))


def hash_of(content: bytes) -> bytes:
    """Return a token."""
    return blake2b(content, digest_size=TOKEN).digest()
