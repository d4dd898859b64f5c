"""The guard of one group: it turns windows into rows, and its state is written in two parts.

A guard is a function of the windows that it received. So its stored state is a snapshot, which is
written rarely, and the log of the windows since then. A restart loads the snapshot and processes
the log again, which gives the same bits.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aftlib.core.requirement import Requirement
from aftlib.core.textfile import memory_bytes
from aftlib.core.windows import AGGREGATES
from aftlib.guard.guard import VERSION, Guard
from aftlib.guard.promise import Promise
from aftlib.guard.rounds import LARGEST

NONE = np.iinfo(np.int64).min
"""Start of the next window before the first one."""
LEAST_LOG = 128
"""Windows between two snapshots; with more than 384 sensors, a third of their number."""
CACHE_BYTES = max(2**29, memory_bytes() // (4 * (os.cpu_count() or 1)))
"""Most memory of the guards that a process keeps from one micro-batch to the next.

Spark has a process per core; together they take a quarter of the machine's memory.
"""
STALE = 8
"""A guard that was not used while this many times the cache's guards were kept makes room."""
AUDIT = ("audited", "wrong", "allowed")
"""Columns for a micro-batch's additions to a group's `KeyedGuard.audit`. The group's first row has
them; the other rows have zeros."""
CHUNK = 2**20
"""Bytes of a part of a snapshot in the state store."""
PROMISE = -1
"""Key of the promise among the snapshot's parts."""
_STATES = np.array(["exact", "estimated", "lost"], object)
_TOKEN = 16
"""Bytes of a token."""
Entry = tuple[int, bytes]
"""Start and values of a window, as the log has them."""


@dataclass
class Change:
    """Changes of a group's stored state by one micro-batch."""

    snapshot: bytes | None = None  # replaces the one before, and empties the log
    entries: list[Entry] = field(default_factory=list)  # appended to the log


class _Round(NamedTuple):
    """One window of a group as it came, and the guard's estimates; arrays have shape (n,)."""

    start: Any
    window: np.ndarray  # NaN where missing
    samples: np.ndarray
    variance: np.ndarray
    estimate: np.ndarray
    half_width: np.ndarray
    declared: np.ndarray
    lasting: np.ndarray  # the longest loss, in windows, that may begin now


def identity_of(promise: Promise) -> str:
    """Return the identity of a group's state: its format and its promise."""
    return f"{VERSION} {promise.digest}"


class KeyedGuard:
    """The guard of one group, which follows the starts of its windows.

    `token` identifies the state, because it is a hash of the promise and of all windows so far.
    """

    def __init__(self, promise: Promise) -> None:
        self.promise, self.guard = promise, promise.guard()
        self.next = NONE  # start of the next window
        self.token = _hash(identity_of(promise).encode())
        self.logged = 0  # windows since the snapshot
        self._most = max(LEAST_LOG, len(promise.sensors) // 3)
        self._limits = np.array(promise.limits)
        self._names = np.array(promise.sensors, object)
        self._place = {name: place for place, name in enumerate(promise.sensors)}
        self._step = promise.step

    def process(self, windows: pd.DataFrame) -> tuple[dict[str, np.ndarray], Change]:
        """Process windows in the order of their starts; return their rows and the state's change.

        `windows` has the columns start (µs), sensor, value, samples and variance (of the samples in
        a window), one row per window and sensor. Rows of sensors that the promise does not have are
        left out. Of a gap without any window, only the first H windows get rows. The rows are
        columns by name, because a group has few and a DataFrame costs more than the guard.
        """
        rounds, change = [], Change()
        for start, value, samples, variance in self._arranged(windows):
            for empty in range(self.next, start, self._step)[: self._listed]:
                nothing = np.full(value.size, np.nan)
                rounds.append(self._round(empty, nothing, nothing, nothing))
                self.next = empty + self._step
            self._skip_to(start)
            rounds.append(self._round(start, self._used(value, samples), samples, variance))
            entry = start, rounds[-1].window.tobytes()
            change.entries.append(entry)
            self._record(entry)
            if self.logged == self._most:
                change = Change(self.snapshot())
                self.logged = 0
        return self._rows(rounds), change

    @property
    def audit(self) -> np.ndarray:
        """Guarantees with known outcome, the wrong ones, and the bound on these, shape (3,).

        Summed over all accounts; one without an outcome has no slack yet.
        """
        number, wrong, slack = self.guard.outcomes
        allowed = self.promise.delta * number + slack * (number > 0)
        return np.stack([number, wrong, allowed]).sum((1, 2))

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return self.token + self.next.to_bytes(8, "big", signed=True) + self.guard.to_bytes()

    def restore(self, snapshot: bytes | None, entries: Iterable[Entry], token: bytes) -> None:
        """Continue from the stored state; ValueError when its parts do not belong together."""
        if snapshot is not None:
            self.token = snapshot[:_TOKEN]
            self.next = int.from_bytes(snapshot[_TOKEN : _TOKEN + 8], "big", signed=True)
            self.guard = Guard.from_bytes(snapshot[_TOKEN + 8 :])
        for start, values in entries:
            self._skip_to(start)
            self.guard.update(np.frombuffer(values))
            self._record((start, values))
        if self.token != token:
            raise ValueError(
                f"the guard's state must be that of {token.hex()}, got {self.token.hex()}: the "
                "checkpoint is damaged; restore it from a copy, or start again in another one"
            )

    def continue_with(self, promise: Promise) -> KeyedGuard:
        """Return the group's guard for a changed promise; the caller must store its whole state.

        ValueError when a parameter differs that must not change.
        """
        promise.require_continuation(self.promise)
        changed = KeyedGuard(promise)
        changed.guard, changed.next = promise.guard(self.guard), self.next
        changed.token = _hash(self.token + identity_of(promise).encode())
        return changed

    @property
    def _listed(self) -> int:
        """Windows of a gap that get rows: none before the first window."""
        return 0 if self.next == NONE else self.guard.horizons

    def _skip_to(self, start: int) -> None:
        """Let the guard process the empty windows before `start`."""
        if self.next not in (NONE, start):
            self.guard.skip((start - self.next) // self._step)
            self.next = start

    def _record(self, entry: Entry) -> None:
        """Count a window that the guard received, and hash it."""
        start, values = entry
        self.next = start + self._step
        self.logged += 1
        self.token = _hash(self.token + start.to_bytes(8, "big", signed=True) + values)

    def _arranged(
        self, windows: pd.DataFrame
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield start, values, samples and variances of each window, by sensor; NaN if missing."""
        column = np.array([self._place.get(name, -1) for name in windows["sensor"].tolist()], int)
        known = column >= 0
        starts, row = np.unique(windows["start"].to_numpy(np.int64)[known], return_inverse=True)
        wide = np.full((3, starts.size, len(self._names)), np.nan)
        for place, name in enumerate(("value", "samples", "variance")):
            cells = windows[name].to_numpy(float, na_value=np.nan)
            wide[place, row, column[known]] = cells[known]
        yield from zip(starts.tolist(), *wide, strict=True)

    def _used(self, value: np.ndarray, samples: np.ndarray) -> np.ndarray:
        """Return a window's results; NaN where too few samples came or a result is too large.

        Results of partial windows are extrapolated to all samples.
        """
        promise, number = self.promise, np.nan_to_num(samples)
        kind = AGGREGATES[promise.query]
        enough = (number >= promise.share * promise.samples) & (np.abs(value) < LARGEST)
        partial = number < promise.samples
        whole = np.where(partial, kind.extrapolate(value, number, promise.samples), value)
        return np.where(enough, whole, np.nan)

    def _round(
        self, start: int, window: np.ndarray, samples: np.ndarray, variance: np.ndarray
    ) -> _Round:
        """Give a window to the guard."""
        recovered = self.guard.update(window)
        lasting = self.guard.recoverable.cumprod(0).sum(0)
        return _Round(
            start, window, samples, variance, recovered.estimate[0], recovered.half_width[0],
            recovered.declared[0], lasting,
        )  # fmt: skip

    def _rows(self, rounds: list[_Round]) -> dict[str, np.ndarray]:
        """Return one row per round and sensor, as columns."""
        both = _Round(*(np.array(part) for part in zip(*rounds, strict=True)))
        samples, missing = np.nan_to_num(both.samples).astype(np.int64), np.isnan(both.window)
        partial = ~missing & (samples < self.promise.samples)
        own = self._half_width(samples, both.variance)
        estimated = np.where(missing, both.declared, partial & (own <= self._limits))
        state = np.where(missing | partial, np.where(estimated, *_STATES[1:]), _STATES[0])
        half_width = np.where(missing & both.declared, both.half_width, np.nan)
        return {
            "start": np.repeat(both.start, len(self._names)),
            "sensor": np.tile(self._names, len(rounds)),
            "state": state.ravel(),
            "value": np.where(missing & both.declared, both.estimate, both.window).ravel(),
            "half_width": np.where(partial, own, half_width).ravel(),
            "samples": samples.ravel(),
            "recoverable": both.lasting.astype(np.int32).ravel(),
        }

    def _half_width(self, samples: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return the half-width z·s·√(1/m − 1/w) for m samples drawn from the w of a window."""
        whole = self.promise.samples
        left = 1 / np.maximum(samples, 1) - 1 / whole
        half_width = Requirement(1.0, self.promise.delta).half_width(variance * np.maximum(left, 0))
        return AGGREGATES[self.promise.query].of_mean(half_width, whole)


def _hash(content: bytes) -> bytes:
    return blake2b(content, digest_size=_TOKEN).digest()


class GuardCache:
    """Guards that a process keeps between micro-batches, by token.

    When the store restores an earlier state, as after a failed task, its token differs from that of
    the guard that had continued. So the cache only returns the guard of the stored state. Groups
    come in turn. If the least recently used guard made room, none would still be here when its
    group comes again. So a full cache keeps the guards that it has until they are stale.
    """

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._most, self._bytes, self._clock = most_bytes, 0, 0
        self._guards: OrderedDict[bytes, tuple[int, KeyedGuard]] = OrderedDict()

    def take(self, token: bytes) -> KeyedGuard | None:
        """Remove and return the guard with a token, if it is here."""
        _, keyed = self._guards.pop(token, (0, None))
        if keyed is not None:
            self._bytes -= keyed.guard.nbytes
        return keyed

    def keep(self, keyed: KeyedGuard) -> None:
        """Store a guard if there is room; its user must not change it any more."""
        self.take(keyed.token)
        self._clock += 1
        while self._guards and self._bytes + keyed.guard.nbytes > self._most:
            token, (kept, _) = next(iter(self._guards.items()))
            if self._clock - kept <= STALE * len(self._guards):
                return
            self.take(token)
        if self._bytes + keyed.guard.nbytes <= self._most:
            self._guards[keyed.token] = self._clock, keyed
            self._bytes += keyed.guard.nbytes


_guards = GuardCache()


@cache
def promise_of(content: str) -> tuple[Promise, str]:
    """Return the promise that `content` describes, and its identity; a process has few."""
    promise = Promise.from_content(content)
    return promise, identity_of(promise)


class StoredGuard:
    """A group's guard, whose state is in three variables of Spark's state.

    `head` changes with every micro-batch and has some 100 bytes. `log` gains each window. The
    snapshot, in `chunks`, is written once per `LEAST_LOG` windows. The chunk `PROMISE` has the
    promise, so that a query with a changed promise can read the state and continue from it.
    """

    def __init__(self, content: str, head: Any, log: Any, chunks: Any) -> None:
        self.promise, self.identity = promise_of(content)
        self.head, self.log, self.chunks = head, log, chunks

    def process(self, key: Any, parts: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Process a group's windows of a micro-batch; yield their rows, if there are any."""
        windows = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
        # windows of a sensor that left the promise may still have been open
        if set(self.promise.sensors).isdisjoint(windows["sensor"].tolist()):
            return
        keyed, chunks = self.load()
        before = keyed.audit
        columns, change = keyed.process(windows)
        chunks = self.store(change, chunks)
        self.head.update((self.identity, keyed.token, chunks))
        _guards.keep(keyed)
        audit = np.zeros((len(AUDIT), len(columns["start"])))
        audit[:, 0] = keyed.audit - before
        keys = np.full(audit.shape[1], key, object)
        both = {"start": columns.pop("start"), "key": keys, **columns}
        yield frame_of(both | dict(zip(AUDIT, audit, strict=True)))

    def load(self) -> tuple[KeyedGuard, int]:
        """Return the group's guard, and the number of its snapshot's chunks."""
        head = self.head.get()
        if head is None:
            self.chunks.updateValue((PROMISE,), (self.promise.content.encode(),))
            return KeyedGuard(self.promise), 0
        identity, token, chunks = head
        if (version := identity.split()[0]) != str(VERSION):
            raise ValueError(
                f"the checkpoint must be of format {VERSION}, got {version}: go on with the "
                "version of aftlib that wrote it, or choose another checkpointLocation"
            )
        keyed = _guards.take(bytes(token)) or self.restored(bytes(token), chunks)
        if identity == self.identity:
            return keyed, chunks
        keyed = keyed.continue_with(self.promise)
        self.chunks.updateValue((PROMISE,), (self.promise.content.encode(),))
        return keyed, self.store(Change(keyed.snapshot()), chunks)

    def restored(self, token: bytes, chunks: int) -> KeyedGuard:
        """Return the guard of the stored state, with the promise that wrote it."""
        keyed = KeyedGuard(Promise.from_content(self.read_chunk(PROMISE).decode()))
        snapshot = b"".join(self.read_chunk(place) for place in range(chunks))
        entries = [(start, bytes(window)) for start, window in self.log.get()]
        keyed.restore(snapshot or None, entries, token)
        return keyed

    def read_chunk(self, place: int) -> bytes:
        """Return a part of the snapshot; no bytes where it is missing."""
        (content,) = self.chunks.getValue((place,)) or (b"",)
        return bytes(content)

    def store(self, change: Change, chunks: int) -> int:
        """Write the changes; return the number of the snapshot's chunks."""
        if change.snapshot is not None:
            self.log.clear()
            cuts = range(0, len(change.snapshot), CHUNK)
            for place, cut in enumerate(cuts):
                self.chunks.updateValue((place,), (change.snapshot[cut : cut + CHUNK],))
            for place in range(len(cuts), chunks):
                self.chunks.removeKey((place,))
            chunks = len(cuts)
        if change.entries:
            self.log.appendList(change.entries)
        return chunks


def frame_of(columns: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return columns as a DataFrame; texts stay objects, because Spark takes none in chunks."""
    objects = {
        name: pd.Series(column, dtype=object) if column.dtype == object else column
        for name, column in columns.items()
    }
    return pd.DataFrame(objects, copy=False)
