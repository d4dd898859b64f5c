"""Upfront partitioning as in streaming systems: senders and receivers of a shuffle run at once.

All tasks are one barrier stage. In every round each task reads tuples, sends them to the tasks of
their keys, and sums the tuples that it receives. After some rounds all tasks save their sums and
offsets together. When one crashes, Spark restarts all of them from the last common checkpoint.
Tuples read since then pass the shuffle a second time. The healthy tasks would count them twice if
they were not reset (D3 fig. 1).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from aftlib.core.paths import write_whole
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.stores.tables import Progress
from aftlib.shared_state.strategies import LogMerge, read_tries, record_try, require_fresh
from aftlib.shared_state.sums import SliceSums, merge_sums
from aftlib.shared_state.task import (
    Intake,
    pack_message,
    progress_from_json,
    progress_to_json,
    unpack_message,
)
from aftlib.spark.sweep import by_number

PATIENCE_S = 60
"""Seconds to wait for a task's message."""


def read_checkpoint(path: Path) -> tuple[Partials, dict[int, Progress]]:
    """Read a task's sums by slice and key, and the progress of its partitions, after a round."""
    _, stands, sums = unpack_message(path.read_bytes())
    return sums, progress_from_json(stands)


def sum_pipelined(
    spark: SparkSession, job: LogMerge, every: int, checkpoint: int
) -> tuple[Partials, list[dict]]:
    """Sum a log by slice and key behind a pipelined shuffle.

    All tasks need a core at the same time. The folder must have no files of another run, because
    checkpoints in it are used. A task sends at most `every` tuples per round; all tasks save their
    sums every `checkpoint` rounds.

    Return the sums and a record of each try: task, attempt; since: the round in which it started;
    received: tuples; by_round: tuples received in each round.
    """
    require_fresh(job.directory)

    def member(index: int) -> Iterator[pa.RecordBatch]:
        _Member(job, index).work(every, checkpoint)
        yield pa.RecordBatch.from_pydict({"id": [index]})

    members = by_number(spark, job.tasks, member, "id long", barrier=True)
    members.count()  # not `collect`: Spark restarts a barrier stage only before an exchange
    results = [read_checkpoint(job.directory / f"result-{i}") for i in range(job.tasks)]
    return merge_sums(sums for sums, _ in results), read_tries(job.directory)


class _Member:
    """One task of the barrier stage, sender and receiver in one."""

    def __init__(self, job: LogMerge, index: int) -> None:
        self.job, self.index = job, index
        attempts = len({path.stem.split("-")[2] for path in job.directory.glob("try-*.json")})
        rounds = [int(path.name.split("-")[1]) for path in job.directory.glob("checkpoint-*")]
        complete = [r for r in set(rounds) if rounds.count(r) == job.tasks]
        mine = json.dumps([attempts, max(complete, default=0)])
        # takes a second, so the rounds exchange message files instead
        proposals = [json.loads(each) for each in BarrierTaskContext.get().allGather(mine)]
        self.attempt = max(each[0] for each in proposals)
        self.round = self.since = min(each[1] for each in proposals)

        path = self._checkpoint
        self.total, stands = read_checkpoint(path) if self.round else (merge_sums([]), {})
        self.intake = Intake(job.rules, stands)
        self.sums, self.by_round = SliceSums(job.rules.windows.pane), list[int]()

    def work(self, every: int, checkpoint: int) -> None:
        """Exchange tuples round by round until no task has any left; save the result."""
        blocks = (
            block
            for partition in self.job.partitions(self.index)
            for block in self.intake.blocks(partition, self.job.log.part(partition), every)
        )
        while self.exchange(next(blocks, np.empty((3, 0), np.int64))):
            self.round += 1
            if self.round % checkpoint == 0:
                self._save(self._checkpoint)
        self._save(self.job.directory / f"result-{self.index}")

    def exchange(self, mine: np.ndarray) -> bool:
        """Send tuples and sum the received ones; return whether any task sent tuples."""
        receivers = mine[1] % self.job.tasks
        # Nothing is synced: messages do not outlive a run, and a name always has the same content.
        for receiver in range(self.job.tasks):
            rows = Partials(*mine[:, receivers == receiver])
            path = self._message_file(self.index, receiver)
            scratch = path.with_name(
                f".{path.name}-{uuid4().hex}"
            )  # an older attempt may still run
            scratch.write_bytes(pack_message("tuples", mine.size > 0, rows))
            scratch.replace(path)

        messages = [self._receive(sender) for sender in range(self.job.tasks)]
        if not any(more for _, more, _ in messages):
            return False
        for _, _, rows in messages:
            self.sums.add(np.stack([rows.windows, rows.keys, rows.values[:, 0]]))
        self.by_round.append(sum(len(rows) for _, _, rows in messages))
        record_try(
            self.job.directory,
            self.index,
            self.attempt,
            since=self.since,
            received=sum(self.by_round),
            by_round=self.by_round,
        )
        self.job.passes(self.index, sum(self.by_round))
        return True

    def _receive(self, sender: int) -> tuple[str, bool, Partials]:
        """Wait for a task's message of this round."""
        path, until = self._message_file(sender, self.index), time.monotonic() + PATIENCE_S
        while not path.exists():  # when the sender crashes, Spark ends this process
            if time.monotonic() > until:
                raise TimeoutError(
                    f"task {sender} has sent nothing for {PATIENCE_S} s: see its error in Spark's "
                    "log"
                )
            time.sleep(0.002)
        return unpack_message(path.read_bytes())

    def _save(self, path: Path) -> None:
        self.total = merge_sums([self.total, self.sums.take()])
        progress = progress_to_json(self.intake.progress)
        write_whole(path, pack_message("sums", progress, self.total))

    @property
    def _checkpoint(self) -> Path:
        return self.job.directory / f"checkpoint-{self.round}-{self.index}"

    def _message_file(self, sender: int, receiver: int) -> Path:
        name = f"message-{self.attempt}-{self.round}-{sender}-{receiver}"
        return self.job.directory / name
