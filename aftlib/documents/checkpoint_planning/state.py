"""What survives a driver: checkpoint, batch and windows in SQLite, prepared gains in files."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from aftlib.core.storage import atomic_directory, open_database, transaction
from aftlib.documents.checkpoint_planning.plan import CheckpointPlan

_TABLES = (
    "stream (part TEXT PRIMARY KEY, identity TEXT)",
    "begun (start INTEGER PRIMARY KEY, process TEXT)",
    "checkpoint (one INTEGER PRIMARY KEY CHECK (one = 1), window_start INTEGER, "
    "position INTEGER, arrays BLOB, times TEXT, plan_name TEXT)",
    "batches (batch INTEGER PRIMARY KEY, start INTEGER, stop INTEGER, "
    "recovered INTEGER, sensors INTEGER, res_ms REAL, rep_ms REAL, est_ms REAL)",
    "windows (start INTEGER, stop INTEGER, key TEXT, value REAL, half_width REAL, "
    "samples INTEGER, PRIMARY KEY (start, key))",
)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """c^k: the running aggregates of one window at τ_k (D2 section 3.2)."""

    window_start: int  # first step t' of its window
    position: int  # step τ_k of the stream, up to which it has aggregated
    sums: np.ndarray  # (n,) over [window_start, position), estimated parts included
    counts: np.ndarray  # (n,) samples in each sum; an estimated step counts as one
    sum_variance: np.ndarray  # (n,) error variance of each sum; 0 where nothing was estimated
    times: tuple[int, ...]  # τ of the current plan as steps of the stream, to the window's end
    plan_name: str  # of the prepared plan; empty while the rest of the window is not planned yet

    @property
    def next_interval(self) -> int:
        """Index in the plan of the interval that begins here."""
        return self.times.index(self.position)

    @property
    def next_boundary(self) -> int:
        """Step of the next planned τ."""
        return self.times[self.next_interval + 1]


@dataclass(frozen=True)
class IntervalRecord:
    """Record of an interval that is committed, [start, stop); T_… in milliseconds (section 6.1).

    An interval is one batch of the stream: the operator aggregates and commits it as a whole.
    """

    batch: int  # its number in the stream, which is Spark's id of the micro-batch
    start: int
    stop: int
    recovered: bool  # a process that crashed had begun it; always false with `replays_all`
    sensors: int  # number of sensors that were read
    res_ms: float  # restore the checkpoint, record the beginning, load O and its gain
    rep_ms: float  # read the samples and add them up
    est_ms: float  # estimate the other sensors; the commit that follows is not timed


@dataclass(frozen=True, eq=False)
class PreparedReplay:
    """The preparation of an interval: the replay set O, and the gain that estimates the others."""

    sensors: np.ndarray  # (|O|,) indices
    gain: np.ndarray  # (n − |O|, |O|)
    step_variance: np.ndarray  # (n,) of each sensor's value at one step given those of O

    @classmethod
    def everything(cls, size: int) -> PreparedReplay:
        """All `size` sensors are replayed and none is estimated."""
        return cls(np.arange(size), np.empty((0, size)), np.zeros(size))

    def save(self, path: Path) -> None:
        """Write the preparation as a file."""
        with path.open("wb") as file:
            for array in (self.sensors, self.gain, self.step_variance):
                np.save(file, array)

    @classmethod
    def load(cls, path: Path) -> PreparedReplay:
        """Load a file; ValueError when it is gone or damaged."""
        try:
            with path.open("rb") as file:
                return cls(*(np.load(file) for _ in range(3)))
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(
                f"path must be an intact prepared replay, got {str(path)!r} ({error}); restore it "
                "from a copy, or start again in another directory"
            ) from error

    def estimate(self, mean: np.ndarray, sums: np.ndarray, steps: int) -> np.ndarray:
        """Return the sums of all n sensors over some steps, from the sums of O (D2 eqs (6), (9)).

        No sample of O may be missing.
        """
        others = np.setdiff1d(np.arange(mean.size), self.sensors)
        estimated = steps * mean
        estimated[others] += self.gain @ (sums - estimated[self.sensors])
        estimated[self.sensors] = sums
        return estimated


class CheckpointStore:
    """State of one stream that survives its process: one writer, many readers.

    A directory has it as an SQLite file, and the preparations of plans as files.

    Invariant: `commit` is one transaction, so either all of these are stored or none: the
    checkpoint, its batch number, and the windows that the batch finished. It is flushed to the
    disk, so it survives a power failure if the disk keeps every write that it confirmed.

    A missing directory or file is created. An existing store is opened without a write, so that
    readers never wait for the writer. ValueError when the file is none of SQLite's.

    Close a store that is no longer used, or use it as a context manager.
    """

    def __init__(self, directory: Path | str) -> None:
        self.prepared = Path(directory) / "prepared"
        self.prepared.mkdir(parents=True, exist_ok=True)
        self.path = Path(directory) / "state.sqlite"
        self._connection = open_database(self.path)
        if len(self._rows("SELECT 1 FROM sqlite_master WHERE type = 'table'")) < len(_TABLES):
            with transaction(self._connection, "create the tables of") as connection:
                for table in _TABLES:
                    connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")

    @cached_property
    def _unsynced(self) -> sqlite3.Connection:
        """Connection of `begin`, which does not wait for the disk."""
        return open_database(self.path, synced=False)

    def close(self) -> None:
        """Close the connections; the store can no longer be used."""
        self._connection.close()
        if "_unsynced" in vars(self):
            self._unsynced.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def require_same(self, part: str, identity: str) -> None:
        """Record the identity of the stream's query or log; ValueError if it began with another."""
        with transaction(self._connection, f"record the {part} in") as connection:
            connection.execute("INSERT OR IGNORE INTO stream VALUES (?, ?)", (part, identity))
        stored = self._rows("SELECT identity FROM stream WHERE part = ?", part)[0][0]
        if stored != identity:
            raise ValueError(
                f"{part} must be the one that the stream in {str(self.path)!r} began with, "
                f"{stored}, got {identity}: go on with that one, or start again in another "
                "directory"
            )

    def begin(self, start: int, process_id: str) -> bool:
        """Record that a process begins the batch at a step; True if another began it and crashed.

        The record survives the process, but a power failure may delete it. The batch is then not
        recovered, but read from all sensors.
        """
        with transaction(self._unsynced, "begin a batch in") as connection:
            connection.execute("INSERT OR IGNORE INTO begun VALUES (?, ?)", (start, process_id))
        return self._rows("SELECT process FROM begun WHERE start = ?", start) != [(process_id,)]

    def unfinished(self, start: int) -> bool:
        """Return whether a process has begun the batch at `start`, the last checkpoint's step.

        That batch is unfinished. Batches that are committed may still be recorded as begun.
        """
        return bool(self._rows("SELECT 1 FROM begun WHERE start = ?", start))

    def withdraw(self, process_id: str) -> None:
        """Delete the record that a process began a batch, because it ends without a crash.

        The batch has not failed. The next process reads it from all sensors, so that it is exact.
        """
        with transaction(self._connection, "withdraw the process from") as connection:
            connection.execute("DELETE FROM begun WHERE process = ?", (process_id,))

    def save(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint that finishes no batch: the first, or one with a new plan."""
        with transaction(self._connection, "store the plan in") as connection:
            _replace_checkpoint(connection, checkpoint)

    def restore(self) -> Checkpoint | None:
        """Return the last checkpoint, None before the first."""
        rows = self._rows("SELECT window_start, position, arrays, times, plan_name FROM checkpoint")
        if not rows:
            return None
        window_start, position, arrays, times, plan_name = rows[0]
        sums, counts, variance = np.frombuffer(arrays).reshape(3, -1)
        steps = tuple(json.loads(times))
        return Checkpoint(window_start, position, sums, counts, variance, steps, plan_name)

    def committed(self, batch: int) -> bool:
        """Return whether the batch is part of the state."""
        return bool(self._rows("SELECT 1 FROM batches WHERE batch = ?", batch))

    def next_batch(self) -> int:
        """Return the number of the batch after the last one that is committed."""
        return int(self._rows("SELECT COUNT(*) FROM batches")[0][0])

    def commit(
        self, checkpoint: Checkpoint, results: pd.DataFrame | None, record: IntervalRecord
    ) -> None:
        """Commit the batch, its checkpoint and the results of its finished window durably.

        `results` has the columns of `results()`. OSError when the disk is full or fails; the state
        is then as it was before.
        """
        rows = [] if results is None else [*results.itertuples(index=False)]
        with transaction(self._connection, f"commit batch {record.batch} to") as connection:
            _replace_checkpoint(connection, checkpoint)
            connection.executemany("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?)", rows)
            row = astuple(record)
            connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def results(self) -> pd.DataFrame:
        """Return the windows finished so far, one row per window and sensor, in this order.

        Columns: start, stop: the window has the steps [start, stop); key: the sensor; value: mean
        or sum, NaN when every sample was missing; half_width: of the interval of probability 1 − δ,
        0 when exact; samples: those aggregated, estimated ones included.
        """
        frame = pd.read_sql("SELECT * FROM windows ORDER BY start, key", self._connection)
        return frame.astype({"value": float, "half_width": float})

    def records(self) -> pd.DataFrame:
        """Return the batches committed so far, in order.

        One row per batch with the fields of `IntervalRecord`; tuples: those that were read; and
        total_ms, T_rec of a recovery (D2 eq. (24)).
        """
        derived = "sensors * (stop - start) AS tuples, res_ms + rep_ms + est_ms AS total_ms"
        batches = f"SELECT *, {derived} FROM batches ORDER BY batch"
        return pd.read_sql(batches, self._connection).astype({"recovered": bool})

    def prepare(self, plan: CheckpointPlan) -> str:
        """Compute and store the data that recoveries of a plan need; return the plan's name.

        There is one folder per plan; its name is a hash of the replay sets and of their
        covariances, so that it never serves another plan. Files, because SQLite reads a matrix of
        some megabytes ten times as slowly.
        """
        digest = hashlib.sha256()
        for replay in plan.replay:
            digest.update(np.array([len(replay.sensors), *replay.sensors], dtype=np.int64).data)
            digest.update(np.vstack([replay.factor, replay.variance]).data)
        folder = self.prepared / digest.hexdigest()[:16]
        if not folder.exists():
            with atomic_directory(folder) as scratch:
                for k, replay in enumerate(plan.replay):
                    sensors = np.array(replay.sensors, dtype=np.int64)
                    prepared = PreparedReplay(sensors, replay.gain(), replay.variance)
                    prepared.save(scratch / f"{k}.npy")
        return folder.name

    def load_prepared(self, plan_name: str, interval: int) -> PreparedReplay:
        """Load the preparation of a plan's interval; ValueError when it is gone or damaged."""
        return PreparedReplay.load(self.prepared / plan_name / f"{interval}.npy")

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()


def _replace_checkpoint(connection: sqlite3.Connection, checkpoint: Checkpoint) -> None:
    arrays = np.array([checkpoint.sums, checkpoint.counts, checkpoint.sum_variance], dtype=float)
    steps = (checkpoint.window_start, checkpoint.position)
    plan = (json.dumps(checkpoint.times), checkpoint.plan_name)
    row = (*steps, arrays.tobytes(), *plan)
    connection.execute("REPLACE INTO checkpoint VALUES (1, ?, ?, ?, ?, ?)", row)
