"""The checkpoint store: running aggregates, and the last batch that they contain."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from aftlib.checkpoint_planning.plan import CheckpointPlan
from aftlib.core.paths import atomic_directory
from aftlib.core.sqlite import open_database, transaction

APPLICATION = 0x41465431
VERSION = 6
_MAGIC = b"aft-checkpoint-3\n"
_KINDS = "<f8", "<i8", "<f8"  # of sums, counts and variance
_TABLES = (
    "CREATE TABLE stream (fingerprint TEXT NOT NULL)",
    "CREATE TABLE begun (batch INTEGER, start INTEGER, process TEXT, PRIMARY KEY (batch, process))",
    "CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), checkpoint BLOB NOT NULL)",
    "CREATE TABLE batches (batch INTEGER PRIMARY KEY, start INTEGER, stop INTEGER, "
    "recovered INTEGER, sensors INTEGER, res_ms REAL, rep_ms REAL, est_ms REAL)",
    "CREATE TABLE windows (start INTEGER, stop INTEGER, key TEXT, value REAL, half_width REAL, "
    "samples INTEGER, kept INTEGER, PRIMARY KEY (start, key))",
    "CREATE TABLE memory (name TEXT PRIMARY KEY, data BLOB NOT NULL)",
)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """c^k: the running aggregates of one window at τ_k (D2 section 3.2)."""

    window: int  # its first step t'
    position: int  # step τ_k up to which it has aggregated
    sums: np.ndarray  # (n,) over [window, position), estimated parts included
    counts: np.ndarray  # (n,) samples in each sum; an estimated step counts as one
    variance: np.ndarray  # (n,) error variance of each sum; 0 where nothing was estimated
    times: tuple[int, ...]  # τ of the current plan, from the step of planning to the window's end
    plan: str  # name of the plan; empty while the rest of the window is not planned yet

    @property
    def interval(self) -> int:
        """Index of the plan's next interval."""
        return self.times.index(self.position)

    @property
    def next_boundary(self) -> int:
        """Step of the next planned τ."""
        return self.times[self.interval + 1]

    def to_bytes(self) -> bytes:
        """The checkpoint with a version and a check sum: a line of JSON, then the three arrays."""
        line = json.dumps([self.window, self.position, self.times, self.plan], default=int).encode()
        arrays = zip((self.sums, self.counts, self.variance), _KINDS, strict=True)
        body = b"\n".join([line, b"".join(array.astype(kind).tobytes() for array, kind in arrays)])
        return _head(body) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """The checkpoint that `to_bytes` gave; ValueError when damaged or of another version."""
        body = data[len(_MAGIC) + 4 :]
        if data[: -len(body)] != _head(body):
            raise ValueError(
                f"data is no intact checkpoint ({len(data)} bytes begin with {data[:16]!r}); "
                "restore the file from a copy, or delete it to start the stream again"
            )
        line, _, numbers = body.partition(b"\n")
        window, position, times, plan = json.loads(line)
        sums, counts, variance = (
            np.frombuffer(part, kind)
            for part, kind in zip(np.split(np.frombuffer(numbers, "V8"), 3), _KINDS, strict=True)
        )
        return cls(window, position, sums, counts, variance, tuple(times), plan)


@dataclass(frozen=True)
class WindowResult:
    """A finished window, the steps [start, stop), of one sensor."""

    start: int
    stop: int
    key: str
    value: float  # mean or sum; NaN when every sample was missing
    half_width: float  # of the interval of probability 1 − δ; 0 when exact
    samples: int  # aggregated, estimated ones included
    kept: bool  # half_width ≤ ε; False: not recoverable, because too little was observed


@dataclass(frozen=True)
class IntervalRecord:
    """Record of one batch, over the steps [start, stop); T_… in milliseconds (D2 section 6.1)."""

    batch: int  # Spark's id
    start: int
    stop: int
    recovered: bool  # whether a process that crashed had begun it
    sensors: int  # number of sensors that were read
    res_ms: float
    rep_ms: float
    est_ms: float


def _head(body: bytes) -> bytes:
    return _MAGIC + zlib.crc32(body).to_bytes(4, "big")


class CheckpointStore:
    """State of one stream that survives its process, in an SQLite file: one writer, many readers.

    Invariant: `commit` is one transaction, so either all of these are stored or none: the
    checkpoint, its batch number, and the windows that the batch finished. It is flushed to the
    disk, so it survives a power failure if the disk keeps every write that it confirmed.

    The file is made when absent. ValueError when it is no such store, of another version, or of a
    stream with another `fingerprint`.
    """

    def __init__(self, path: Path | str, fingerprint: str) -> None:
        self.path = Path(path)

        def create(connection: sqlite3.Connection) -> None:
            for table in _TABLES:
                connection.execute(table)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("INSERT INTO stream VALUES (?)", (fingerprint,))

        def check(connection: sqlite3.Connection) -> None:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version != VERSION:
                raise ValueError(
                    f"path must be of version {VERSION}, got version {version} in {str(path)!r}; "
                    "finish the stream with the release that began it"
                )
            stored = connection.execute("SELECT fingerprint FROM stream").fetchone()[0]
            if stored != fingerprint:
                raise ValueError(
                    f"path belongs to another stream ({stored}), not to this one ({fingerprint}): "
                    f"{str(path)!r}; the log, model, window and plan must be those it began with"
                )

        what = "a checkpoint store"
        self._connection = open_database(path, what, APPLICATION, create=create, check=check)

    def begin(self, batch: int, start: int, process_id: str) -> bool:
        """Record that a process begins a batch; True if another process began it and crashed.

        The record survives the process, but a power failure may delete it. The batch is then not
        recovered, but read from all sensors.
        """
        act = f"begin batch {batch} in"
        with transaction(self._connection, act, synced=False) as connection:
            row = batch, start, process_id
            connection.execute("INSERT OR IGNORE INTO begun VALUES (?, ?, ?)", row)
        others = "SELECT 1 FROM begun WHERE start = ? AND process != ? LIMIT 1"
        return bool(self._rows(others, start, process_id))

    def unfinished(self, start: int) -> int | None:
        """Batch that a process has begun at this step; None if no process has."""
        rows = self._rows("SELECT batch FROM begun WHERE start = ? LIMIT 1", start)
        return rows[0][0] if rows else None

    def end(self, process_id: str) -> None:
        """Record that a process ends without a crash: the batches that it began have not failed."""
        with transaction(self._connection, "end the process in") as connection:
            connection.execute("DELETE FROM begun WHERE process = ?", (process_id,))

    def keep(
        self, checkpoint: Checkpoint, memory: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        """Store a checkpoint that finishes no batch: the first, or one with a new plan.

        `memory` has the operator's other state by name.
        """
        with transaction(self._connection, "keep the plan in") as connection:
            connection.execute("REPLACE INTO state VALUES (1, ?)", (checkpoint.to_bytes(),))
            connection.executemany("REPLACE INTO memory VALUES (?, ?)", memory.items())

    def restore(self) -> Checkpoint | None:
        """The last checkpoint, None before the first; ValueError when it is damaged."""
        rows = self._rows("SELECT checkpoint FROM state")
        return Checkpoint.from_bytes(rows[0][0]) if rows else None

    def committed(self, batch: int) -> bool:
        """Whether the batch is part of the state."""
        return bool(self._rows("SELECT 1 FROM batches WHERE batch = ?", batch))

    def commit(
        self,
        checkpoint: Checkpoint,
        results: Sequence[WindowResult],
        record: IntervalRecord,
        memory: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Commit the batch, its checkpoint, its windows and the memory durably.

        OSError when the disk is full or fails; the state is then as it was before.
        """
        with transaction(self._connection, f"commit batch {record.batch} to") as connection:
            connection.execute("REPLACE INTO state VALUES (1, ?)", (checkpoint.to_bytes(),))
            windows = [tuple(vars(result).values()) for result in results]
            connection.executemany("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?, ?)", windows)
            row = tuple(vars(record).values())
            connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            connection.executemany("REPLACE INTO memory VALUES (?, ?)", memory.items())

    def remember(self, memory: Mapping[str, bytes]) -> None:
        """Store, by name, the operator's state that is not in the checkpoint."""
        with transaction(self._connection, "keep the memory in") as connection:
            connection.executemany("REPLACE INTO memory VALUES (?, ?)", memory.items())

    def memory(self, name: str) -> bytes:
        """The state that was last stored under a name; empty when there is none."""
        rows = self._rows("SELECT data FROM memory WHERE name = ?", name)
        return bytes(rows[0][0]) if rows else b""

    def results(self) -> list[WindowResult]:
        """Windows finished so far, ordered by start and key."""
        rows = self._rows("SELECT * FROM windows ORDER BY start, key")
        nan = {None: np.nan}  # SQLite keeps NaN as NULL
        return [
            WindowResult(start, stop, key, nan.get(value, value), half, count, bool(kept))
            for start, stop, key, value, half, count, kept in rows
        ]

    def records(self) -> list[IntervalRecord]:
        """Batches committed so far, in order."""
        rows = self._rows("SELECT * FROM batches ORDER BY batch")
        return [
            IntervalRecord(batch, start, stop, bool(recovered), *rest)
            for batch, start, stop, recovered, *rest in rows
        ]

    def _rows(self, query: str, *values: object) -> list[tuple]:
        return self._connection.execute(query, values).fetchall()


class Preparation:
    """Replay sets and gain matrices on disk, made with the plan so that recovery only loads them.

    The directory has one folder per plan: sensors, gain and variance of each interval. The folder's
    name is a hash of the plan and the model, so it is never used for another plan or model.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)

    def keep(self, fingerprint: str, plan: CheckpointPlan) -> str:
        """Compute and store the data that recoveries of a plan need; return their name."""
        digest = hashlib.sha256(fingerprint.encode())
        for numbers in (plan.times, *(replay.sensors for replay in plan.replay)):
            digest.update(np.array([len(numbers), *numbers], dtype=np.int64).data)
        name = digest.hexdigest()[:16]
        if not (self.directory / name).exists():
            with atomic_directory(self.directory / name) as scratch:
                for k, replay in enumerate(plan.replay):
                    np.save(scratch / f"{k}-sensors.npy", np.array(replay.sensors, dtype=np.int64))
                    np.save(scratch / f"{k}-gain.npy", replay.gain())
                    np.save(scratch / f"{k}-variance.npy", replay.variance)
        return name

    def load(self, name: str, interval: int) -> PreparedReplay:
        """Load the preparation of an interval; ValueError when it is gone or damaged."""
        parts = {}
        for part in ("sensors", "gain", "variance"):
            path = self.directory / name / f"{interval}-{part}.npy"
            try:
                parts[part] = np.load(path, allow_pickle=False)
            except (OSError, ValueError) as error:
                raise ValueError(
                    f"directory lacks an intact {path.name} of plan {name} ({error}); restore "
                    f"{str(self.directory)!r} from a copy, or start the stream again"
                ) from error
        return PreparedReplay(**parts | {"sensors": parts["sensors"].tolist()})


@dataclass(frozen=True, eq=False)
class PreparedReplay:
    """The preparation of an interval: the replay set O, and the gain that estimates the others."""

    sensors: list[int]  # O
    gain: np.ndarray  # (n − |O|, |O|)
    variance: np.ndarray  # (n,) of each sensor's value at one step given those of O

    def complete(self, mean: np.ndarray, sums: np.ndarray, steps: int) -> np.ndarray:
        """Return the sums of all n sensors over some steps, from the sums of O (D2 eqs (5), (10)).

        No sample of O may be missing.
        """
        everyone, replayed = np.empty(mean.size), mean[self.sensors]
        others = np.setdiff1d(np.arange(mean.size), self.sensors)
        everyone[self.sensors] = sums
        everyone[others] = steps * mean[others] + self.gain @ (sums - steps * replayed)
        return everyone
