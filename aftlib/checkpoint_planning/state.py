"""The contract of a checkpoint store: running aggregates and the batch that they stand for."""

from __future__ import annotations

import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_MAGIC = b"aft-checkpoint-1\n"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """c^k: the running aggregates of one window at τ_k (D2 section 3.2).

    Attributes
    ----------
    window : int
        First step t' of the window.
    position : int
        Step τ_k up to which it has aggregated.
    sums : ndarray, shape (n,)
        Sum of each sensor's samples over [window, position), estimated parts included.
    counts : ndarray of int, shape (n,)
        Samples in each sum; an estimated step counts as one.
    variance : ndarray, shape (n,)
        Error variance of each sum; 0 where nothing was estimated.
    times : tuple of int
        Steps τ of the plan in force, from the one it was made at to the window's end.
    """

    window: int
    position: int
    sums: np.ndarray
    counts: np.ndarray
    variance: np.ndarray
    times: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """The checkpoint with a version and a check sum."""
        buffer = io.BytesIO()
        fields = {"head": [self.window, self.position], "times": self.times}
        arrays = {"sums": self.sums, "counts": self.counts, "variance": self.variance}
        np.savez(buffer, allow_pickle=False, **fields, **arrays)
        body = buffer.getvalue()
        return _MAGIC + zlib.crc32(body).to_bytes(4, "big") + body

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """The checkpoint that `to_bytes` gave.

        Raises
        ------
        ValueError
            When the bytes are damaged or of another version.
        """
        start = len(_MAGIC) + 4
        body = data[start:]
        if not data.startswith(_MAGIC) or data[len(_MAGIC) : start] != _sum(body):
            raise ValueError(
                f"data is no intact checkpoint ({len(data)} bytes begin with {data[:16]!r}); "
                "restore the file from a copy, or delete it to start the stream anew"
            )
        with np.load(io.BytesIO(body), allow_pickle=False) as found:
            window, position = map(int, found["head"])
            times = tuple(map(int, found["times"]))
            return cls(window, position, found["sums"], found["counts"], found["variance"], times)


@dataclass(frozen=True)
class WindowResult:
    """A finished window of one sensor.

    Attributes
    ----------
    start, stop : int
        Steps [start, stop).
    key : str
    value : float
        Mean or sum; NaN when every sample was missing.
    half_width : float
        Half-width of the interval of probability 1 − δ; 0 when exact.
    samples : int
        Samples aggregated, estimated ones included.
    """

    start: int
    stop: int
    key: str
    value: float
    half_width: float
    samples: int


@dataclass(frozen=True)
class IntervalRecord:
    """What one batch did.

    Attributes
    ----------
    batch, start, stop : int
        Spark's batch id, and its steps.
    recovered : bool
        Whether the batch had been begun by a process that died.
    sensors : int
        Sensors read.
    res_ms, rep_ms, est_ms : float
        T_res, T_rep, T_est in milliseconds (D2 section 6.1).
    """

    batch: int
    start: int
    stop: int
    recovered: bool
    sensors: int
    res_ms: float
    rep_ms: float
    est_ms: float


class CheckpointStore(ABC):
    """State that survives the process: one writer, any number of readers.

    Invariant: `commit` is one transaction, so the checkpoint, the batch that it stands for and the
    windows that the batch finished are all there or none is.
    """

    @abstractmethod
    def begin(self, batch: int, start: int, run: str) -> bool:
        """Note that process `run` begins a batch; True when another process began it before."""

    @abstractmethod
    def begun_by_another(self, start: int, run: str) -> bool:
        """Whether another process than `run` began a batch at this step."""

    @abstractmethod
    def restore(self) -> Checkpoint | None:
        """The last checkpoint, None before the first.

        Raises
        ------
        ValueError
            When it is damaged.
        """

    @abstractmethod
    def committed(self, batch: int) -> bool:
        """Whether the batch is part of the state."""

    @abstractmethod
    def commit(
        self, checkpoint: Checkpoint, results: Sequence[WindowResult], record: IntervalRecord
    ) -> None:
        """Make the batch, its checkpoint and its windows durable.

        Raises
        ------
        OSError
            When the disk is full or fails; the state is then as it was before.
        """

    @abstractmethod
    def results(self) -> list[WindowResult]:
        """Windows finished so far, by start and key."""

    @abstractmethod
    def records(self) -> list[IntervalRecord]:
        """Batches committed so far, in order."""


def _sum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(4, "big")
