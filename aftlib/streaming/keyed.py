"""The guard of one group: it turns windows into rows, and its state is written in two parts.

A guard is a function of the windows that it received. So its stored state is a snapshot, which is
written rarely, and the log of the windows since then. A restart loads the snapshot and processes
the log again, which gives the same bits.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Self

import numpy as np
import pandas as pd

from aftlib.guard.guard import VERSION
from aftlib.streaming.promise import Promise
from aftlib.streaming.rows import Rounds, rows_of, used_results

NONE = np.iinfo(np.int64).min
"""Start of the next window before the first one."""
LEAST_LOG = 128
"""Least windows between two snapshots of up to 384 sensors; else a third of their number."""
SPREAD = 16
"""From then on, a snapshot is written after each window with the chance 1 / 16."""
TOKEN = 16
"""Bytes of a token."""
DAMAGED = "the checkpoint is damaged; restore it from a copy, or start again in another one"


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
        return rows_of(self.promise, Rounds(*map(np.array, zip(*rounds, strict=True)))), log

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
    ) -> Rounds:
        """Give a window to the guard."""
        recovered = self.guard.update(window)
        return Rounds(
            start=start,
            window=window,
            samples=samples,
            variance=variance,
            estimate=recovered.estimate[0],
            half_width=recovered.half_width[0],
            certified=recovered.certified[0],
            lasting=self.guard.recoverable.cumprod(0).sum(0),
        )


def hash_of(content: bytes) -> bytes:
    """Return a token."""
    return blake2b(content, digest_size=TOKEN).digest()
