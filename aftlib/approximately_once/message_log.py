"""The message log: windows that a worker has sent, and the proof that it crashed (D1 §4.2)."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_PROCESS, _MESSAGE = struct.Struct("<q"), struct.Struct("<qqq")
_END = -1
Send = Callable[[int, range, np.ndarray, np.ndarray], None]
"""Sends the step that was reached, and finished windows: values and samples (windows, keys)."""


@dataclass(frozen=True)
class SentMessages:
    """The messages of one attempt at a split."""

    pid: int
    reached: int  # step up to which it has taken in its input
    finished: bool  # or raised an error: it did not crash
    windows: dict[int, tuple[np.ndarray, np.ndarray]]  # aggregates and samples, shape (keys,)


@dataclass(frozen=True)
class MessageLog:
    """A folder with one file for each attempt at a split; all machines of a cluster share it.

    A file is locked while its writer runs. The kernel frees the lock of a crashed process. So a
    file without a lock and without an end message proves a crash; a second attempt proves none.
    """

    folder: Path  # new for each start of a stream, so that no older file is read

    @contextmanager
    def writing(self, worker: int, start: int, attempt: int, begin: int) -> Iterator[Send]:
        """Yield a function that sends messages of one attempt; the messages end with the block."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._path(worker, start, attempt).open("wb", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(_PROCESS.pack(os.getpid()))

            def send(reached: int, windows: range, values: np.ndarray, samples: np.ndarray) -> None:
                message = _MESSAGE.pack(reached, windows.start, len(windows))
                message += values.tobytes() + samples.astype(np.int64).tobytes()
                at, sent = file.tell(), 0
                try:
                    while sent < len(message):
                        sent += file.write(message[sent:])
                except OSError:  # a part of a message would hide the next one
                    file.truncate(at)
                    file.seek(at)
                    raise

            send(begin, range(0), np.empty((0, 0)), np.empty((0, 0)))
            try:
                yield send
            finally:
                file.write(_MESSAGE.pack(_END, 0, 0))

    def read(self, worker: int, start: int, attempt: int, keys: int) -> SentMessages | None:
        """Messages of an attempt so far; None when it has not started."""
        path = self._path(worker, start, attempt)
        data = path.read_bytes() if path.exists() else b""
        if len(data) < _PROCESS.size + _MESSAGE.size:
            return None
        pid, at = _PROCESS.unpack_from(data)[0], _PROCESS.size
        reached, windows = 0, dict[int, tuple[np.ndarray, np.ndarray]]()
        while at + _MESSAGE.size <= len(data):
            step, first, count = _MESSAGE.unpack_from(data, at)
            if step == _END:
                return SentMessages(pid, reached, True, windows)
            at, size = at + _MESSAGE.size, count * keys
            if at + 16 * size > len(data):
                break  # torn by a full disk
            values = np.frombuffer(data, float, size, at).reshape(count, keys)
            samples = np.frombuffer(data, np.int64, size, at + 8 * size).reshape(count, keys)
            windows |= {first + i: (values[i], samples[i]) for i in range(count)}
            at, reached = at + 16 * size, step
        return SentMessages(pid, reached, False, windows)

    def crash(
        self, worker: int, start: int, attempt: int, keys: int, patience_s: float = 1.0
    ) -> SentMessages | None:
        """Messages of an attempt whose process crashed; None when that is not proven.

        It waits up to `patience_s` for the end of a process that still holds its lock.
        """
        path, deadline = self._path(worker, start, attempt), time.monotonic() + patience_s
        while path.exists():
            with path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    if time.monotonic() > deadline:
                        return None
                    time.sleep(0.01)
                    continue
            sent = self.read(worker, start, attempt, keys)
            return None if sent is None or sent.finished else sent
        return None

    def claim(self, worker: int, start: int) -> bool:
        """Whether this worker is the first to be estimated in the micro-batch from step `start`.

        A second worker would have fewer results to estimate from, so it reads its input again.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"estimated-{start}"
        try:
            with path.open("x") as file:
                file.write(str(worker))
        except FileExistsError:
            return path.read_text() == str(worker)
        return True

    def _path(self, worker: int, start: int, attempt: int) -> Path:
        return self.folder / f"worker-{worker}-{start}-{attempt}"
