"""The guards of a bucket of groups in Spark's state.

Spark calls a processor once per key. Such a call takes longer than a guard, so a key has a bucket
of groups.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from aftlib.guard.guard import VERSION
from aftlib.streaming.cache import GuardCache
from aftlib.streaming.keyed import KeyedGuards, hash_of
from aftlib.streaming.promise import Promise
from aftlib.streaming.rows import arrange, frame_of_rounds

CHUNK = 2**20
"""Bytes of a part of a snapshot in the state store."""

NO_RECORD = b"", b"", None
NEW_BUCKET = json.dumps({"format": VERSION, "promise": "", "log_parts": 0, "snapshots": 0}).encode()
_guards = GuardCache()
promise_of = cache(Promise.from_content)
"""Return the promise that a `content` describes; a process has few."""


class StoredGuards:
    """The guards of the groups of a bucket in Spark's state, which are records by name.

    A record has a token, a content (bytes, no promise's) and keys, of which it uses some. "bucket"
    has the token of the guards, the groups' keys in the order of their places, and as JSON the
    format, a hash of the promise, and the numbers of parts of the log and of snapshots. A "log"
    part, one per micro-batch, has the token before it and the windows. Snapshots of groups, in
    "chunk" records, replace the log from time to time; then later parts overwrite the old ones.
    "origin" has as JSON the promise whose guards wrote the log.

    If the promise has changed and its sensors have not, all groups go on with what they learned,
    else they begin anew. So the constructor may write the state: that of a new bucket, or of a
    changed promise.
    """

    def __init__(self, content: str, learned: str | None, records: Any) -> None:
        self.content = content
        self.learned = learned
        self.promise = promise_of(content, learned)
        self.records = records
        token, about, keys = records.getValue(("bucket",)) or (b"", NEW_BUCKET, [])
        self.about = json.loads(bytes(about))
        if self.about["format"] != VERSION:
            raise ValueError(
                f"the checkpoint must be of format {VERSION}, got {self.about['format']}: go on "
                "with the version of aftlib that wrote it, or choose another checkpointLocation"
            )
        self.token = bytes(token)
        # Spark 4.0 returns bytes within an array as a bytearray, which is no key of a dictionary
        keys = [bytes(key) if isinstance(key, bytearray) else key for key in keys]
        self.places = {key: place for place, key in enumerate(keys)}
        digest = hash_of(content.encode()).hex()
        if self.about["promise"] != digest:
            self.about["promise"] = digest
            self._begin_or_change()

    def _write(self, name: str, token: bytes | None, content: bytes, keys: Any = None) -> None:
        """Write a record."""
        self.records.updateValue((name,), (token, content, keys))

    def _begin_or_change(self) -> None:
        """Replace the state of another promise with the same windows; Spark refuses others.

        A new bucket comes here as well. It then only records its promise.
        """
        origin = {"content": self.content, "learned": self.learned}
        _, written, _ = self.records.getValue(("origin",)) or (None, json.dumps(origin), None)
        before = json.loads(written)
        keyed = KeyedGuards(self.promise)
        if self.places and self.promise.goes_on(before["content"]):
            earlier = StoredGuards(before["content"], before["learned"], self.records)
            keyed = earlier.stored().under(self.promise)
        else:
            self.places = {}
        self.records.clear()
        self._write("origin", None, json.dumps(origin).encode())
        self._write_snapshots(keyed)
        self._write_bucket(keyed.token)

    def _write_bucket(self, token: bytes) -> None:
        """Record the token of the guards; then the log and the snapshots are theirs."""
        self.token = token
        self._write("bucket", token, json.dumps(self.about).encode(), list(self.places))

    def process(self, frames: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Process a bucket's windows of a micro-batch; yield their rows, if there are any.

        The windows are recorded in the log, or in its place snapshots if they are due.
        """
        # windows of a sensor that left the promise may still have been open
        windows = arrange(pd.concat(frames, ignore_index=True), self.promise)
        if not windows.start.size:
            return
        keyed = self.stored()
        earlier_token = keyed.token
        earlier_audit = keyed.audit.sum(1)
        places = [self.places.setdefault(key, len(self.places)) for key in windows.key]
        rounds, log_part = keyed.process(windows._replace(key=np.array(places)))
        audit = keyed.audit.sum(1) - earlier_audit
        if keyed.is_due:
            self._write_snapshots(keyed)
        else:
            self._write(f"log {self.about['log_parts']}", earlier_token, log_part)
            self.about["log_parts"] += 1
        self._write_bucket(keyed.token)
        _guards.keep(keyed)
        keys = np.array([*self.places, None], object)[:-1]  # no array of what a key may contain
        yield frame_of_rounds(self.promise, rounds, keys[rounds.windows.key], audit)

    def stored(self) -> KeyedGuards:
        """Return the stored guards, or new ones.

        If a process that had them has ended, or a task failed, they are restored from the snapshots
        and the whole log. Where the log leads back to guards that are still there, as after a task
        that ran twice, only the parts since then are processed.
        """
        missed: list[bytes] = []
        token = self.token
        keyed = _guards.take(token, self.promise)
        part = self.about["log_parts"]
        while keyed is None and part:
            part -= 1
            token_before, windows, _ = self.records.getValue((f"log {part}",)) or NO_RECORD
            missed.insert(0, bytes(windows))
            token = bytes(token_before)
            keyed = _guards.take(token, self.promise)
        if keyed is None:
            keyed = KeyedGuards(self.promise)
            snapshots = [self._snapshot(place) for place in range(self.about["snapshots"])]
            keyed.restore(snapshots, token)
        keyed.replay(missed, self.token)
        return keyed

    def _snapshot(self, place: int) -> bytes:
        """Return the snapshot of a group; the first chunk that is not full is the last one."""
        chunks: list[bytes] = []
        while not chunks or len(chunks[-1]) == CHUNK:
            name = f"chunk {place} {len(chunks)}"
            _, chunk, _ = self.records.getValue((name,)) or NO_RECORD
            chunks.append(bytes(chunk))
        return b"".join(chunks)

    def _write_snapshots(self, keyed: KeyedGuards) -> None:
        """Record in place of the log the whole state of the groups that have windows in it."""
        for place in np.flatnonzero(keyed.states["logged"]).tolist():
            snapshot = keyed.snapshot(place)
            for number, cut in enumerate(range(0, len(snapshot) + 1, CHUNK)):
                self._write(f"chunk {place} {number}", None, snapshot[cut : cut + CHUNK])
        self.about |= {"log_parts": 0, "snapshots": keyed.states.size}
