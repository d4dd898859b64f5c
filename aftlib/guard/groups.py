"""The guards of many groups in Spark's state, and a cache of them.

Spark calls a processor once per key. Such a call takes longer than a guard, so a key has a bucket
of groups.
"""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aftlib.guard.guard import VERSION
from aftlib.guard.keyed import DAMAGED, TOKEN, Entry, KeyedGuard, hash_of, least_log
from aftlib.guard.promise import Promise

LONGEST = 4
"""Most micro-batches in a bucket's log, as a multiple of the least windows between snapshots."""
NEAR = 8
"""Most parts of a log that are read one by one."""
CHUNK = 2**20
"""Bytes of a part of a snapshot in the state store."""
_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
CACHE_BYTES = max(2**29, _MEMORY // (4 * (os.cpu_count() or 1)))
"""Most memory of the guards that a process keeps from one micro-batch to the next.

Spark has a process per core; together they take a quarter of the machine's memory.
"""
STALE = 8
"""Calls of `keep` after which an unused guard is dropped, as a multiple of the cache's guards."""
AUDIT = ("audited", "wrong", "allowed")
"""Columns for a micro-batch's additions to a group's `KeyedGuard.audit`: each sensor's first row
has its additions, the other rows have zeros."""
_ENTRY = struct.Struct(f"<i{TOKEN}sqi")
"""Before a window's values in the log: place of the group, token, start, length of the values."""


class GuardCache:
    """Guards that a process keeps between micro-batches, by token.

    When the store restores an earlier state, as after a failed task, its token differs from that of
    the guard that had continued. So the cache only returns the guard of the stored state. Groups
    come in turn, so a full cache that dropped the least recently used guard would never have the
    next group's. It keeps its guards until they are stale, as when another process went on.
    """

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._most, self._bytes, self._clock = most_bytes, 0, 0
        self._guards: dict[bytes, tuple[int, KeyedGuard]] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def take(self, token: bytes) -> KeyedGuard | None:
        """Remove and return the guard with a token, if it is here."""
        _, keyed = self._guards.pop(token, (0, None))
        if keyed is not None:
            self._bytes -= keyed.guard.nbytes
        return keyed

    def keep(self, keyed: KeyedGuard) -> None:
        """Store a guard if it fits; the caller must not change the guard any more."""
        self.take(keyed.token)
        self._clock += 1
        while self._guards:
            token, (stored_at, _) = next(iter(self._guards.items()))
            if self._clock - stored_at <= STALE * len(self._guards):
                break
            self.take(token)
        if self._bytes + keyed.guard.nbytes <= self._most:
            self._guards[keyed.token] = self._clock, keyed
            self._bytes += keyed.guard.nbytes


_guards = GuardCache()
promise_of = cache(Promise.from_content)
"""Return the promise that a `content` describes; a process has few."""


class Head(NamedTuple):
    """Fields of a group in its bucket's state, besides its snapshot and its windows in the log."""

    key: Any
    token: bytes
    chunks: int  # of the snapshot
    since: int  # the first part of the log that the snapshot does not contain


class StoredGuards:
    """The guards of the groups of a bucket, whose state is in three variables of Spark's state.

    A call of Spark takes as long as a guard. So a micro-batch makes some calls per bucket and none
    per group. `bucket` has the format, a hash of the promise, the number of the log's next part,
    and a head per group. `log` gains a part per micro-batch: the windows of all groups. The
    snapshot of a group, in `chunks`, replaces its windows in the log from time to time. `written`
    is the promise; if it has changed, all groups begin anew.
    """

    def __init__(self, content: str, bucket: Any, log: Any, chunks: Any, written: Any) -> None:
        self.content, self.promise = content, promise_of(content)
        self.bucket, self.log, self.chunks, self.written = bucket, log, chunks, written
        self.digest = hash_of(content.encode())
        version, digest, number, heads = bucket.get() or (VERSION, b"", 0, [])
        if version != VERSION:
            raise ValueError(
                f"the checkpoint must be of format {VERSION}, got {version}: go on with the "
                "version of aftlib that wrote it, or choose another checkpointLocation"
            )
        self.number: int = number  # of the log's next part
        self.heads = [Head(*head) for head in heads]
        self.begins = bytes(digest) != self.digest
        if self.begins and self.heads:
            self._begin_anew()
        self.places = {head.key: place for place, head in enumerate(self.heads)}
        self.news: list[bytes] = []  # windows for the log
        self.parts: dict[int, dict[int, list[Entry]]] = {}  # of the log
        self.oldest = self._since()

    def _begin_anew(self) -> None:
        """Remove the state of a promise that has changed; refuse a change of its windows."""
        (before,) = self.written.get() or ("",)
        if not before:
            raise ValueError(f"the checkpoint must contain its promise, got none: {DAMAGED}")
        self.promise.require_continuation(promise_of(before))
        for head in self.heads:
            for part in range(head.chunks):
                self.chunks.removeKey((head.key, part))
        for number in range(self._since(), self.number):
            self.log.removeKey((number,))
        self.heads = []

    def process(self, parts: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Process a bucket's windows of a micro-batch; yield their rows, if there are any."""
        windows = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
        # windows of a sensor that left the promise may still have been open
        windows = windows[windows["sensor"].isin(self.promise.sensors)]
        if windows.empty:
            return
        codes, groups = pd.factorize(windows["key"])
        order = np.argsort(codes, kind="stable")
        columns = {
            "sensor": windows["sensor"].to_numpy(object)[order],
            "start": windows["start"].to_numpy(np.int64)[order],
        }
        for name in ("value", "samples", "variance"):
            columns[name] = windows[name].to_numpy(float, na_value=np.nan)[order]
        cuts = np.searchsorted(codes[order], np.arange(len(groups) + 1)).tolist()
        self._shorten()
        rows = [
            self.process_group(group, {name: cells[begin:end] for name, cells in columns.items()})
            for group, begin, end in zip(groups.tolist(), cuts[:-1], cuts[1:], strict=True)
        ]
        self.write()
        yield frame_of({name: np.concatenate([each[name] for each in rows]) for name in rows[0]})

    def process_group(self, group: Any, windows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Process a group's windows, and return the rows with key and audit."""
        place = self.places.setdefault(group, len(self.heads))
        if place == len(self.heads):
            keyed = KeyedGuard(self.promise)
            self.heads.append(Head(group, keyed.token, 0, self.number))
        else:
            keyed = self.stored(place)
        before = keyed.audit if keyed.reported is None else keyed.reported
        columns, entries = keyed.process(windows)
        self.store(place, keyed, entries)
        keyed.reported = keyed.audit
        _guards.keep(keyed)
        audit = np.zeros((len(AUDIT), len(columns["start"])))
        audit[:, : before.shape[1]] = keyed.reported - before
        keys = np.full(audit.shape[1], group, object)
        both = {"start": columns.pop("start"), "key": keys, **columns}
        return both | dict(zip(AUDIT, audit, strict=True))

    def stored(self, place: int) -> KeyedGuard:
        """Return the stored guard of a group.

        Spark gives a task to any process of an executor. A process that did not have the group for
        some micro-batches reads what it missed from the log; only a new one needs the snapshot.
        """
        head, missed = self.heads[place], list[Entry]()
        keyed, entries = _guards.take(head.token), self._latest_entries(place)
        while keyed is None and (entry := next(entries, None)):
            missed.append(entry)
            keyed = _guards.take(entry.token)
        snapshot = None
        if keyed is None:
            keyed, snapshot = KeyedGuard(self.promise), self._snapshot(head)
        if keyed.token != head.token:
            keyed.restore(snapshot, reversed(missed), head.token)
            keyed.reported = None  # another process reported since
        return keyed

    def _latest_entries(self, place: int) -> Iterator[Entry]:
        """Yield a group's windows since its snapshot from the last one to the first."""
        for number in range(self.number - 1, self.heads[place].since - 1, -1):
            yield from reversed(self._part(number).get(place, ()))

    def _part(self, number: int) -> dict[int, list[Entry]]:
        """Return a part of the log by group, empty if it is missing.

        The last ones are read one by one. If they are not enough, the whole log is read at once.
        """
        if number not in self.parts:
            if len(self.parts) < NEAR:
                (content,) = self.log.getValue((number,)) or (b"",)
                self.parts[number] = unpack_log(bytes(content))
            else:
                parts = {key: unpack_log(bytes(part)) for (key,), (part,) in self.log.iterator()}
                self.parts = defaultdict(dict, parts)
        return self.parts[number]

    def _snapshot(self, head: Head) -> bytes | None:
        """Return the snapshot of a group, or None before the first one."""
        parts = [self.chunks.getValue((head.key, part)) or (b"",) for part in range(head.chunks)]
        return b"".join(bytes(content) for (content,) in parts) or None

    def store(self, place: int, keyed: KeyedGuard, entries: Sequence[Entry]) -> None:
        """Record a group's new state: its windows in the log, or a snapshot if it is due."""
        head = self.heads[place]._replace(token=keyed.token)
        if entries and not keyed.is_due:
            self.news += [pack_entry(place, entry) for entry in entries]
        else:
            snapshot = keyed.snapshot()
            cuts = range(0, len(snapshot), CHUNK)
            for part, cut in enumerate(cuts):
                self.chunks.updateValue((head.key, part), (snapshot[cut : cut + CHUNK],))
            for part in range(len(cuts), head.chunks):
                self.chunks.removeKey((head.key, part))
            # this micro-batch's part of the log has nothing of the group
            head = head._replace(chunks=len(cuts), since=self.number)
        self.heads[place] = head

    def write(self) -> None:
        """Write what the micro-batch changed: the log's new part, and the heads."""
        if self.begins:
            self.written.update((self.content,))
        self.log.updateValue((self.number,), (b"".join(self.news),))
        self.number += 1
        for number in range(self.oldest, self._since()):
            self.log.removeKey((number,))
        heads = [tuple(head) for head in self.heads]
        self.bucket.update((VERSION, self.digest, self.number, heads))

    def _since(self) -> int:
        """Return the first part of the log that a group needs."""
        return min((head.since for head in self.heads), default=self.number)

    def _shorten(self) -> None:
        """Write a snapshot of the group that needs the oldest part, if the log is too long.

        So a group whose sensors are silent does not make the log grow.
        """
        since = self._since()
        if self.number - since > LONGEST * least_log(self.promise):
            place = next(place for place, head in enumerate(self.heads) if head.since == since)
            keyed = self.stored(place)
            self.store(place, keyed, [])
            _guards.keep(keyed)


def pack_entry(place: int, entry: Entry) -> bytes:
    """Return a window in the format of the log, with the place of its group."""
    return _ENTRY.pack(place, entry.token, entry.start, len(entry.values)) + entry.values


def unpack_log(content: bytes) -> dict[int, list[Entry]]:
    """Return the windows of a part of the log by the place of their group."""
    begin, entries = 0, dict[int, list[Entry]]()
    while begin < len(content):
        place, token, start, length = _ENTRY.unpack_from(content, begin)
        begin += _ENTRY.size + length
        entries.setdefault(place, []).append(Entry(token, start, content[begin - length : begin]))
    return entries


def frame_of(columns: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return columns as a DataFrame; texts stay objects, because Spark refuses chunked texts."""
    objects = {
        name: pd.Series(column, dtype=object) if column.dtype == object else column
        for name, column in columns.items()
    }
    return pd.DataFrame(objects, copy=False)
