"""Upfront partitioning as streaming systems run it: senders and receivers of a shuffle at once.

All tasks are one barrier stage. In every round each reads tuples, passes them on to their keys'
tasks, and sums what it is passed; now and then all of them save their sums and offsets together.
When one dies, Spark starts all of them again, and they go on from the last common checkpoint: what
was read since passes the shuffle a second time, which the healthy tasks may not count twice
(D3 fig. 1).
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from aftlib.core.paths import atomic_file
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.strategies.merging import SliceSums, Task, merged
from aftlib.shared_state.strategies.notes import note_try, require_fresh, tries
from aftlib.shared_state.strategies.pipeline import Job
from aftlib.shared_state.stream.parsing import Reading

PATIENCE_S = 60
"""Seconds to wait for a task that Spark takes to be alive."""


@dataclass(frozen=True)
class Checkpoint:
    """Sums of one task by slice and key after a round, and how far it had read by then."""

    sums: Partials
    readings: dict[int, Reading]


@dataclass(frozen=True)
class PipelinedRun:
    """Result of a run, and what every try of every task went through.

    Attributes
    ----------
    sums : Partials
        By slice start and key.
    tries : list of dict
        task, attempt, since: the round it began with, received: tuples, by_round: the same round
        by round, of every try.
    """

    sums: Partials
    tries: list[dict]


def run_pipelined(spark: SparkSession, job: Job, every: int, checkpoint: int) -> PipelinedRun:
    """Sum a log by slice and key behind a pipelined shuffle.

    Parameters
    ----------
    spark : SparkSession
    job : Job
        Its tasks must find room on the cores all at once.
    every : int
        Tuples that a task reads in a round, or a little more.
    checkpoint : int
        Rounds between two checkpoints.

    Raises
    ------
    ValueError
        When the job's folder holds another run's notes: its checkpoints would be taken for ours.
    """
    require_fresh(job.directory)

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                _Member(job, index).work(every, checkpoint)
            yield batch

    members = spark.range(0, job.tasks, 1, job.tasks).mapInArrow(each, "id long", barrier=True)
    members.count()  # not `collect`: Spark starts a barrier stage anew only before an exchange
    last = [_load(job.directory / f"result-{index}") for index in range(job.tasks)]
    return PipelinedRun(merged(part.sums for part in last), tries(job.directory))


class _Member:
    """One task of the barrier stage, sender and receiver in one."""

    def __init__(self, job: Job, index: int) -> None:
        self.job, self.index = job, index
        self.attempt, self.since = self._agreed()
        self.round = self.since
        start = self._restored()
        self.total, self.task = start.sums, Task(job.rules, dict(start.readings))
        self.sums, self.by_round = SliceSums(job.rules.windows.pane), list[int]()

    def work(self, every: int, checkpoint: int) -> None:
        """Rounds until nobody has anything left to read."""
        rounds = self._rounds(every)
        while self._exchange(next(rounds, np.empty((3, 0), np.int64))):
            self.round += 1
            if self.round % checkpoint == 0:
                self._save(self._path(self.round, self.index))
        self._save(self.job.directory / f"result-{self.index}")

    def _exchange(self, mine: np.ndarray) -> bool:
        """Pass tuples on and sum those passed here; whether anybody had anything to pass on."""
        self._pass_on(mine)
        blocks = [self._wait_for(sender) for sender in range(self.job.tasks)]
        if all(last for last, _ in blocks):
            return False
        self._receive([block for _, block in blocks])
        return True

    def _rounds(self, every: int) -> Iterator[np.ndarray]:
        """Tuples of each round."""
        waiting: list[np.ndarray] = []
        for partition in self.job.partitions(self.index):
            for block in self.task.blocks(partition, self.job.log.part(partition)):
                waiting.append(block.copy())
                if sum(part.shape[1] for part in waiting) >= every:
                    yield np.concatenate(waiting, axis=1)
                    waiting = []
        if waiting:
            yield np.concatenate(waiting, axis=1)

    def _pass_on(self, block: np.ndarray) -> None:
        receivers = block[1] % self.job.tasks
        for receiver in range(self.job.tasks):
            mail = block.shape[1] == 0, block[:, receivers == receiver]
            with atomic_file(self._mail(self.index, receiver)) as scratch:
                scratch.write_bytes(pickle.dumps(mail))

    def _wait_for(self, sender: int) -> tuple[bool, np.ndarray]:
        """Mail of this round; Spark ends a wait for a dead sender together with this process."""
        path, until = self._mail(sender, self.index), time.monotonic() + PATIENCE_S
        while not path.exists():
            if time.monotonic() > until:
                raise TimeoutError(
                    f"task {sender} has passed nothing on for {PATIENCE_S} s: "
                    "see its error in Spark's log"
                )
            time.sleep(0.002)
        return pickle.loads(path.read_bytes())

    def _receive(self, blocks: list[np.ndarray]) -> None:
        for block in blocks:
            self.sums.add(block)
        self.by_round.append(sum(block.shape[1] for block in blocks))
        received = sum(self.by_round)
        found = {"since": self.since, "received": received, "by_round": self.by_round}
        note_try(self.job.directory, self.index, self.attempt, **found)
        if self.job.fault is not None:
            self.job.fault.passes(f"task-{self.index}", received)

    def _agreed(self) -> tuple[int, int]:
        """Number of this try, and the last round of which every task has a checkpoint."""
        folder = self.job.directory
        before = len({path.stem.split("-")[2] for path in folder.glob("try-*.json")})
        found = [int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*")]
        whole = [r for r in set(found) if found.count(r) == self.job.tasks]
        mine = json.dumps([before, max(whole, default=0)])
        # takes a second, which is why the rounds themselves meet through their mail
        agreed = [json.loads(each) for each in BarrierTaskContext.get().allGather(mine)]
        return max(each[0] for each in agreed), min(each[1] for each in agreed)

    def _restored(self) -> Checkpoint:
        path = self._path(self.round, self.index)
        return _load(path) if self.round else Checkpoint(merged([]), {})

    def _save(self, path: Path) -> None:
        self.total = merged([self.total, self.sums.take()])
        with atomic_file(path) as scratch:
            scratch.write_bytes(pickle.dumps(Checkpoint(self.total, self.task.readings)))

    def _path(self, round_: int, index: int) -> Path:
        return self.job.directory / f"checkpoint-{round_}-{index}"

    def _mail(self, sender: int, receiver: int) -> Path:
        folder = self.job.directory
        return folder / f"mail-{self.attempt}-{self.round}-{sender}-{receiver}"


def _load(path: Path) -> Checkpoint:
    return pickle.loads(path.read_bytes())
