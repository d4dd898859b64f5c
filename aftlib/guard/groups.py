"""The guards of many groups in Spark's state, and a cache of them.

Spark calls a processor once per key. Such a call takes longer than a guard, so a key has a bucket
of groups.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.textfile import memory_bytes
from aftlib.guard.guard import VERSION
from aftlib.guard.keyed import Change, KeyedGuard, identity_of
from aftlib.guard.promise import Promise

CACHE_BYTES = max(2**29, memory_bytes() // (4 * (os.cpu_count() or 1)))
"""Most memory of the guards that a process keeps from one micro-batch to the next.

Spark has a process per core; together they take a quarter of the machine's memory.
"""
STALE = 8
"""A guard that was not used while this many times the cache's guards were kept makes room."""
CHUNK = 2**20
"""Bytes of a part of a snapshot in the state store."""
PROMISE = -1
"""Key of the promise among the snapshot's parts."""
AUDIT = ("audited", "wrong", "allowed")
"""Columns for a micro-batch's additions to a group's `KeyedGuard.audit`. The group's first row has
them; the other rows have zeros."""


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


class StoredGuards:
    """The guards of the groups of a bucket, whose state is in three maps of Spark's state.

    `heads` changes with every window and has some 100 bytes per group. `log` gains each window. The
    snapshot of a group, in `chunks`, replaces its log from time to time. The chunk `PROMISE` has
    the promise, so that a query with a changed promise can read the state and continue from it.
    """

    def __init__(self, content: str, heads: Any, log: Any, chunks: Any) -> None:
        self.promise, self.identity = promise_of(content)
        self.heads, self.log, self.chunks = heads, log, chunks

    def process(self, parts: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Process a bucket's windows of a micro-batch; yield their rows, if there are any."""
        windows = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
        # windows of a sensor that left the promise may still have been open
        windows = windows[windows["sensor"].isin(self.promise.sensors)]
        codes, groups = pd.factorize(windows["key"])
        order = np.argsort(codes, kind="stable")
        columns = {
            "sensor": windows["sensor"].to_numpy(object)[order],
            "start": windows["start"].to_numpy(np.int64)[order],
        }
        for name in ("value", "samples", "variance"):
            columns[name] = windows[name].to_numpy(float, na_value=np.nan)[order]
        cuts = np.searchsorted(codes[order], np.arange(len(groups) + 1)).tolist()
        rows = [
            self.process_group(group, {name: cells[begin:end] for name, cells in columns.items()})
            for group, begin, end in zip(groups.tolist(), cuts[:-1], cuts[1:], strict=True)
        ]
        if rows:
            yield frame_of(
                {name: np.concatenate([each[name] for each in rows]) for name in rows[0]}
            )

    def process_group(self, group: Any, windows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Process a group's windows, write its state, and return the rows with key and audit."""
        keyed, chunks = self.load(group)
        before = keyed.audit if keyed.reported is None else keyed.reported
        columns, change = keyed.process(windows)
        chunks = self.store(group, change, keyed.logged, chunks)
        self.heads.updateValue((group,), (self.identity, keyed.token, chunks, keyed.logged))
        keyed.reported = keyed.audit
        _guards.keep(keyed)
        audit = np.zeros((len(AUDIT), len(columns["start"])))
        audit[:, 0] = keyed.reported - before
        keys = np.full(audit.shape[1], group, object)
        both = {"start": columns.pop("start"), "key": keys, **columns}
        return both | dict(zip(AUDIT, audit, strict=True))

    def load(self, group: Any) -> tuple[KeyedGuard, int]:
        """Return a group's guard, and the number of its snapshot's chunks."""
        head = self.heads.getValue((group,))
        if head is None:
            self.chunks.updateValue((group, PROMISE), (self.promise.content.encode(),))
            return KeyedGuard(self.promise), 0
        identity, token, chunks, logged = head
        if (version := identity.split()[0]) != str(VERSION):
            raise ValueError(
                f"the checkpoint must be of format {VERSION}, got {version}: go on with the "
                "version of aftlib that wrote it, or choose another checkpointLocation"
            )
        token = bytes(token)
        keyed = _guards.take(token) or self.restored(group, token, chunks, logged)
        if identity == self.identity:
            return keyed, chunks
        keyed = keyed.continue_with(self.promise)
        self.chunks.updateValue((group, PROMISE), (self.promise.content.encode(),))
        return keyed, self.store(group, Change(keyed.snapshot()), 0, chunks)

    def restored(self, group: Any, token: bytes, chunks: int, logged: int) -> KeyedGuard:
        """Return the guard of the stored state, with the promise that wrote it."""
        keyed = KeyedGuard(promise_of(self.read_chunk(group, PROMISE).decode())[0])
        snapshot = b"".join(self.read_chunk(group, place) for place in range(chunks))
        found = (self.log.getValue((group, number)) for number in range(logged))
        entries = ((entry[0], bytes(entry[1])) for entry in found if entry)
        keyed.restore(snapshot or None, entries, token)
        return keyed

    def read_chunk(self, group: Any, place: int) -> bytes:
        """Return a part of the snapshot; no bytes where it is missing."""
        (content,) = self.chunks.getValue((group, place)) or (b"",)
        return bytes(content)

    def store(self, group: Any, change: Change, logged: int, chunks: int) -> int:
        """Write the changes; return the number of the snapshot's chunks.

        `logged` is the number of windows that the log has then. What a snapshot replaces in the log
        stays until it is written over.
        """
        if change.snapshot is not None:
            cuts = range(0, len(change.snapshot), CHUNK)
            for place, cut in enumerate(cuts):
                self.chunks.updateValue((group, place), (change.snapshot[cut : cut + CHUNK],))
            for place in range(len(cuts), chunks):
                self.chunks.removeKey((group, place))
            chunks = len(cuts)
        for number, entry in enumerate(change.entries, logged - len(change.entries)):
            self.log.updateValue((group, number), entry)
        return chunks


def frame_of(columns: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return columns as a DataFrame; texts stay objects, because Spark takes none in chunks."""
    objects = {
        name: pd.Series(column, dtype=object) if column.dtype == object else column
        for name, column in columns.items()
    }
    return pd.DataFrame(objects, copy=False)
