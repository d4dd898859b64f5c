"""The guards of many groups in Spark's state, and a cache of them.

Spark calls a processor once per key. Such a call takes longer than a guard, so a key has a bucket
of groups.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aftlib.guard.guard import VERSION
from aftlib.streaming.keyed import KeyedGuard, hash_of
from aftlib.streaming.promise import Promise
from aftlib.streaming.rows import frame_of

CHUNK = 2**20
"""Bytes of a part of a snapshot in the state store."""
_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
CACHE_BYTES = max(2**29, _MEMORY // (4 * (os.cpu_count() or 1)))
"""Most memory of the guards that a process keeps from one micro-batch to the next.

Spark has a process per core; together they take a quarter of the machine's memory.
"""
AUDIT = ("audited", "wrong", "allowed")
"""Columns for a micro-batch's additions to a group's `KeyedGuard.audit`: each sensor's first row
has its additions, the other rows have zeros."""


class GuardCache:
    """Guards that a process keeps between micro-batches, by token.

    When the store restores an earlier state, as after a failed task, its token differs from that of
    the guard that had continued. So the cache only returns the guard of the stored state. Groups
    come in turn, so a full cache that dropped the least recently used guard would never have the
    next group's: it drops any.
    """

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._random = Random(0)
        self._guards: dict[bytes, KeyedGuard] = {}

    def take(self, token: bytes) -> KeyedGuard | None:
        """Remove and return the guard with a token, if it is here."""
        keyed = self._guards.pop(token, None)
        if keyed is not None:
            self._bytes -= keyed.guard.nbytes
        return keyed

    def keep(self, keyed: KeyedGuard) -> None:
        """Store a guard if it fits; the caller must not change the guard any more."""
        self.take(keyed.token)
        room = self._most - keyed.guard.shared_nbytes - keyed.guard.nbytes
        while self._guards and self._bytes > room:
            self.take(self._random.choice(list(self._guards)))
        if self._bytes <= room:
            self._guards[keyed.token] = keyed
            self._bytes += keyed.guard.nbytes


_guards = GuardCache()
promise_of = cache(Promise.from_content)
"""Return the promise that a `content` describes; a process has few."""


class Head(NamedTuple):
    """Fields of a group in its bucket's state, besides its snapshot and its log."""

    key: Any
    token: bytes
    chunks: int  # of the snapshot
    parts: int  # of the log since then


class StoredGuards:
    """The guards of the groups of a bucket, whose state is in four variables of Spark's state.

    `bucket` has the format, a hash of the promise, and a head per group. `log` gains a part per
    group and micro-batch: the token of the guard before it, and the windows. The snapshot of a
    group, in `chunks`, replaces its log from time to time; then later parts overwrite the old ones.
    `origin` has the promise whose guards wrote the logs. If the promise has changed and its sensors
    have not, all groups go on with what they learned, else they begin anew.
    """

    def __init__(
        self, content: str, learned: str | None, origin: Any, bucket: Any, log: Any, chunks: Any
    ) -> None:
        self.content = content
        self.learned = learned
        self.promise = promise_of(content, learned)
        self.origin = origin
        self.bucket = bucket
        self.log = log
        self.chunks = chunks
        self.digest = hash_of(content.encode())
        version, digest, heads = bucket.get() or (VERSION, b"", [])
        if version != VERSION:
            raise ValueError(
                f"the checkpoint must be of format {VERSION}, got {version}: go on with the "
                "version of aftlib that wrote it, or choose another checkpointLocation"
            )
        # Spark 4.0 returns bytes within an array as a bytearray, which is no key of a dictionary
        self.heads: dict[Any, Head] = {
            key: Head(key, bytes(token), *rest) for key, token, *rest in heads
        }
        if bytes(digest) != self.digest:
            self._change_promise()

    def _change_promise(self) -> None:
        """Replace the state of another promise; Spark has refused one with other windows before."""
        content, learned = self.origin.get() or (self.content, None)
        goes_on = bool(self.heads) and self.promise.goes_on(content)
        variables = self.origin, self.bucket, self.log, self.chunks
        before = StoredGuards(content, learned, *variables) if goes_on else self
        for head in list(self.heads.values()):
            keyed = before.stored(head.key).under(self.promise) if goes_on else None
            for part in range(head.chunks):
                self.chunks.removeKey((head.key, part))
            for part in range(head.parts):
                self.log.removeKey((head.key, part))
            del self.heads[head.key]
            if keyed is not None:
                self._write_snapshot(head.key, keyed)
        self.origin.update((self.content, self.learned))
        self._write_heads()

    def _write_heads(self) -> None:
        self.bucket.update((VERSION, self.digest, [tuple(head) for head in self.heads.values()]))

    def process(self, parts: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Process a bucket's windows of a micro-batch; yield their rows, if there are any."""
        windows = pd.concat(parts, ignore_index=True)
        # windows of a sensor that left the promise may still have been open
        windows = windows[windows["sensor"].isin(self.promise.sensors)]
        if windows.empty:
            return
        groups = windows.groupby(windows["key"].astype(object), sort=False)
        rows = [self.process_group(group, part) for group, part in groups]
        self._write_heads()
        yield frame_of({name: np.concatenate([each[name] for each in rows]) for name in rows[0]})

    def process_group(self, group: Any, windows: pd.DataFrame) -> dict[str, np.ndarray]:
        """Process a group's windows, and return the rows with key and audit."""
        keyed = self.stored(group)
        token = keyed.token
        before = keyed.audit
        columns, log = keyed.process(windows)
        after = keyed.audit
        self._store(group, keyed, token, log)
        _guards.keep(keyed)
        audit = np.zeros((len(AUDIT), len(columns["start"])))
        audit[:, : after.shape[1]] = after - before
        keys = np.full(audit.shape[1], group, object)
        both = {"start": columns.pop("start"), "key": keys, **columns}
        return both | dict(zip(AUDIT, audit, strict=True))

    def stored(self, group: Any) -> KeyedGuard:
        """Return the stored guard of a group, or a new one.

        Spark gives a task to any process of an executor. A process that did not have the group for
        some micro-batches looks back in the log for the guard that it has, and processes the parts
        since then; only a process without any needs the snapshot, and then the whole log.
        """
        if group not in self.heads:
            return KeyedGuard(self.promise)
        head = self.heads[group]
        missed: list[bytes] = []
        keyed = _guards.take(head.token)
        part = head.parts
        while keyed is None and part:
            part -= 1
            token, windows = self.log.getValue((group, part)) or (b"", b"")
            missed.append(bytes(windows))
            keyed = _guards.take(bytes(token))
        snapshot = None
        if keyed is None:
            keyed = KeyedGuard(self.promise)
            snapshot = self._snapshot(head)
        if keyed.token != head.token:
            keyed.restore(snapshot, reversed(missed), head.token)
        return keyed

    def _snapshot(self, head: Head) -> bytes | None:
        """Return the snapshot of a group, or None before the first one."""
        parts = [self.chunks.getValue((head.key, part)) or (b"",) for part in range(head.chunks)]
        return b"".join(bytes(content) for (content,) in parts) or None

    def _store(self, group: Any, keyed: KeyedGuard, before: bytes, log: bytes) -> None:
        """Record a group's new state: its windows in the log, or a snapshot if it is due."""
        head = self.heads.get(group, Head(group, before, 0, 0))
        if keyed.is_due:
            self._write_snapshot(group, keyed)
        else:
            self.log.updateValue((group, head.parts), (before, log))
            self.heads[group] = Head(group, keyed.token, head.chunks, head.parts + 1)

    def _write_snapshot(self, group: Any, keyed: KeyedGuard) -> None:
        """Record a group's whole state in place of its log."""
        snapshot = keyed.snapshot()
        cuts = range(0, len(snapshot), CHUNK)
        for part, cut in enumerate(cuts):
            self.chunks.updateValue((group, part), (snapshot[cut : cut + CHUNK],))
        self.heads[group] = Head(group, keyed.token, chunks=len(cuts), parts=0)
