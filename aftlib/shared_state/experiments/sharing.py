"""Late global merge by servers and tasks (D3 fig. 3), one of each killed: who reads again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.windows import Windows
from aftlib.shared_state.servers.driver import run
from aftlib.shared_state.servers.job import Job
from aftlib.shared_state.servers.journal import Account
from aftlib.shared_state.servers.source import ArraySource, Block
from aftlib.shared_state.stores.buffered import BufferedTable
from aftlib.shared_state.stores.rocksdb import RocksTable
from aftlib.shared_state.stores.tables import Progress, StateTable

WINDOWS = Windows(1_000, 500)
PARTITIONS, KEYS = 4, 1_000
BARRIER = 2
"""Barrier of server 0 before which it dies."""


@dataclass(frozen=True)
class _DoomedSource(ArraySource):
    """The task that has read half of partition 0 dies, once."""

    doomed: bool = False

    def batches(
        self, partition: int, progress: Progress | None, rows: int
    ) -> Iterator[tuple[Block, Progress]]:
        half = len(np.load(self.path / "0.npy", mmap_mode="r")) // 2
        for block, now in super().batches(partition, progress, rows):
            if self.doomed and partition == 0 and now.offset >= half:
                _die_once(Path("task.killed"))
            yield block, now


class _DoomedTable(BufferedTable):
    """Dies with its server when what it holds is to be made durable, once."""

    barriers = 0

    def barrier(self) -> None:
        self.barriers += 1
        if self.barriers == BARRIER:
            _die_once(Path("server.killed"))
        super().barrier()


@dataclass(frozen=True)
class _DoomedJob(Job):
    doomed: bool = False

    def open_own(self, server: int) -> StateTable:
        if not self.doomed or server:
            return super().open_own(server)
        place = self.directory / f"server-{server}.rocksdb"
        return _DoomedTable(RocksTable(place, self.function, "barrier"))


def _die_once(note: Path) -> None:
    """End this process by SIGKILL unless the note, in the job's folder, says that one has."""
    if not note.exists():
        note.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)


def servers_and_tasks_die(directory: Path, tuples: int, seed: int) -> pd.DataFrame:
    """Run two servers of two tasks each, undisturbed and with a task and server 0 killed.

    A server's own store is RocksDB, the global one SQLite.

    Parameters
    ----------
    directory : Path
        New folder.
    tuples : int
        Of each of four partitions.
    seed : int

    Returns
    -------
    DataFrame
        run, task, joined: how often it began or came back, read_again: tuples that it read a
        second time, seconds: the whole run.

    Raises
    ------
    RuntimeError
        When the two runs put out different windows, or nobody died.
    """
    rng = np.random.default_rng(seed)
    logs = [_tuples(rng, tuples) for _ in range(PARTITIONS)]
    written = ArraySource.write(directory / "log", logs, WINDOWS.pane, delay=WINDOWS.pane)
    source = _DoomedSource(written.path, written.pane, written.delay)
    calm = _DoomedJob(source, directory / "calm", WINDOWS, batch=2_000, checkpoint_s=0.05)
    struck = replace(
        calm, source=replace(source, doomed=True), directory=directory / "struck", doomed=True
    )
    frames = [_rows(name, job, run(job)) for name, job in (("calm", calm), ("struck", struck))]
    require_alike(calm, struck)
    return pd.concat(frames, ignore_index=True)


def _tuples(rng: np.random.Generator, number: int) -> np.ndarray:
    """Timestamps in order, about ten windows of them; keys and values uniform."""
    times = np.arange(number) * 10 * WINDOWS.width // number
    return np.column_stack([times, rng.integers(0, KEYS, number), rng.integers(0, 101, number)])


def _rows(name: str, job: Job, account: Account) -> pd.DataFrame:
    rows = []
    for task in sorted(account.joined):
        found = {"joined": account.joined[task], "read_again": account.read_again.get(task, 0)}
        rows.append({"run": name, "task": task, **found, "seconds": account.seconds})
    return pd.DataFrame(rows)


def require_alike(calm: Job, struck: Job) -> None:
    """Refuse a run in which not both died, or whose windows differ from the undisturbed run's.

    Raises
    ------
    RuntimeError
    """
    for who in ("task", "server"):
        if not (struck.directory / f"{who}.killed").exists():
            raise RuntimeError(f"no {who} died: take more tuples, so that there is time for it")
    one, other = (_windows(job.output) for job in (calm, struck))
    if one != other:
        raise RuntimeError("the run with deaths puts out other windows: report this as a bug")


def _windows(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}
