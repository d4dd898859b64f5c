"""The guards of a bucket of groups in Spark's state.

Spark calls a processor once per key. Such a call takes longer than a guard, so a key has a bucket
of groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from aftlib.guard.guard import VERSION
from aftlib.streaming.cache import GuardCache
from aftlib.streaming.keyed import KeyedGuards, hash_of
from aftlib.streaming.promise import Promise
from aftlib.streaming.rows import arrange, frame_of, rows_of

CHUNK = 2**20
"""Bytes of a part of a snapshot in the state store."""
AUDIT = ("audited", "wrong", "allowed")
"""Columns for a micro-batch's additions to a group's part of `KeyedGuards.audit`: each sensor's
first row has its additions, the other rows have zeros."""


_guards = GuardCache()
promise_of = cache(Promise.from_content)
"""Return the promise that a `content` describes; a process has few."""


class StoredGuards:
    """The guards of the groups of a bucket, whose state is in `operator.Variables`.

    `bucket` has the format, a hash of the promise, the token of the guards, and the numbers of
    parts of the log and of snapshots. `groups` has the groups' keys in the order of their places.
    `log` gains a part per micro-batch: the token before it, and the windows. Snapshots of groups,
    in `chunks`, replace the log from time to time; then later parts overwrite the old ones.
    `origin` has the promise whose guards wrote the log. If the promise has changed and its sensors
    have not, all groups go on with what they learned, else they begin anew.
    """

    def __init__(self, content: str, learned: str | None, variables: Any) -> None:
        self.content = content
        self.learned = learned
        self.promise = promise_of(content, learned)
        self.variables = variables
        self.digest = hash_of(content.encode())
        stored = variables.bucket.get() or (VERSION, b"", b"", 0, 0)
        version = stored[0]
        if version != VERSION:
            raise ValueError(
                f"the checkpoint must be of format {VERSION}, got {version}: go on with the "
                "version of aftlib that wrote it, or choose another checkpointLocation"
            )
        _, digest, token, *numbers = stored
        self.parts: int = numbers[0]
        self.snapshots: int = numbers[1]
        self.token = bytes(token)
        (keys,) = variables.groups.get() or ([],)
        # Spark 4.0 returns bytes within an array as a bytearray, which is no key of a dictionary
        keys = [bytes(key) if isinstance(key, bytearray) else key for key in keys]
        self.places = {key: place for place, key in enumerate(keys)}
        if bytes(digest) != self.digest:
            self._change_promise()

    def _change_promise(self) -> None:
        """Replace the state of another promise; Spark has refused one with other windows before."""
        variables = self.variables
        content, learned = variables.origin.get() or (self.content, None)
        keyed = KeyedGuards(self.promise)
        if self.places and self.promise.goes_on(content):
            keyed = StoredGuards(content, learned, variables).stored().under(self.promise)
        else:
            self.places = {}
        variables.log.clear()
        variables.chunks.clear()
        variables.origin.update((self.content, self.learned))
        variables.groups.update((list(self.places),))
        self._write_snapshots(keyed)
        self._write_bucket(keyed.token)

    def _write_bucket(self, token: bytes) -> None:
        """Record the token of the guards; then the log and the snapshots are theirs."""
        self.token = token
        state = (VERSION, self.digest, token, self.parts, self.snapshots)
        self.variables.bucket.update(state)

    def process(self, parts: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Process a bucket's windows of a micro-batch; yield their rows, if there are any."""
        # windows of a sensor that left the promise may still have been open
        windows = arrange(pd.concat(parts, ignore_index=True), self.promise.sensors)
        if not windows.start.size:
            return
        keyed = self.stored()
        token = keyed.token
        before = keyed.audit
        group = [self.places.setdefault(key, len(self.places)) for key in windows.key]
        if len(self.places) > before.shape[1]:
            self.variables.groups.update((list(self.places),))
        places, rounds, log = keyed.process(windows, np.array(group))
        added = keyed.audit
        added[:, : before.shape[1]] -= before
        self._store(keyed, token, log)
        _guards.keep(keyed)
        columns = rows_of(self.promise, rounds)
        keys = np.array([*self.places, None], object)[:-1]  # no array of what a key may contain
        groups, first = np.unique(places, return_index=True)
        audit = np.zeros((len(AUDIT), *rounds.window.shape))
        audit[:, first] = added[:, groups]
        both = {"start": columns.pop("start"), "key": keys[places].repeat(audit.shape[2])}
        both |= columns | dict(zip(AUDIT, audit.reshape(len(AUDIT), -1), strict=True))
        yield frame_of(both)

    def stored(self) -> KeyedGuards:
        """Return the stored guards, or new ones.

        If a process that had them has ended, or a task failed, they are restored from the snapshots
        and the whole log. Where the log leads back to guards that are still there, as after a task
        that ran twice, only the parts since then are processed.
        """
        if not self.places:
            return KeyedGuards(self.promise)
        missed: list[bytes] = []
        token = self.token
        keyed = _guards.take(token, self.promise)
        part = self.parts
        while keyed is None and part:
            part -= 1
            before, windows = self.variables.log.getValue((part,)) or (b"", b"")
            missed.append(bytes(windows))
            token = bytes(before)
            keyed = _guards.take(token, self.promise)
        missed.reverse()
        if keyed is None:
            keyed = KeyedGuards(self.promise)
            snapshots = [self._snapshot(group) for group in range(self.snapshots)]
            keyed.restore(snapshots, token, missed, self.token)
        else:
            keyed.replay(missed, self.token)
        return keyed

    def _snapshot(self, group: int) -> bytes:
        """Return the snapshot of a group; the first part that is not full is the last one."""
        parts: list[bytes] = []
        while not parts or len(parts[-1]) == CHUNK:
            (content,) = self.variables.chunks.getValue((group, len(parts))) or (b"",)
            parts.append(bytes(content))
        return b"".join(parts)

    def _store(self, keyed: KeyedGuards, before: bytes, log: bytes) -> None:
        """Record the guards' new state: their windows in the log, or snapshots if they are due."""
        if keyed.is_due:
            self._write_snapshots(keyed)
        else:
            self.variables.log.updateValue((self.parts,), (before, log))
            self.parts += 1
        self._write_bucket(keyed.token)

    def _write_snapshots(self, keyed: KeyedGuards) -> None:
        """Record in place of the log the whole state of the groups that have windows in it."""
        for group in np.flatnonzero(keyed.rows["logged"]).tolist():
            snapshot = keyed.snapshot(group)
            for part, cut in enumerate(range(0, len(snapshot) + 1, CHUNK)):
                content = snapshot[cut : cut + CHUNK]
                self.variables.chunks.updateValue((group, part), (content,))
        self.parts = 0
        self.snapshots = keyed.rows.size
