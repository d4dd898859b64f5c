"""Upfront partitioning as streaming systems run it: senders and receivers of a shuffle at once.

All tasks are one barrier stage. In every round each reads tuples, passes them on to their keys'
tasks, and sums what it is passed; now and then all of them save their sums and offsets together.
When one crashes, Spark starts all of them again, and they go on from the last common checkpoint.
What was read since passes the shuffle a second time, and the healthy tasks may not count it twice
(D3 fig. 1).
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

from aftlib.core.paths import atomic_file
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.intake import Intake
from aftlib.shared_state.stores.tables import (
    Progress,
    pack_message,
    progress_from_json,
    progress_to_json,
    unpack_message,
)
from aftlib.shared_state.strategies import LogMerge, note_try, require_fresh, tries
from aftlib.shared_state.sums import SliceSums, merged
from aftlib.spark.sweep import by_number

PATIENCE_S = 60
"""Seconds to wait for a task that Spark takes to be alive."""


def saved(path: Path) -> tuple[Partials, dict[int, Progress]]:
    """Sums of a task by slice and key after a round, and how far it had read by then."""
    _, stands, sums = unpack_message(path.read_bytes())
    return sums, progress_from_json(stands)


def pipelined(
    spark: SparkSession, given: LogMerge, every: int, checkpoint: int
) -> tuple[Partials, list[dict]]:
    """Sum a log by slice and key behind a pipelined shuffle.

    Its tasks must find room on the cores all at once, and the folder be without another run's
    notes: its checkpoints would be taken for ours. A task passes on `every` tuples at most in a
    round, and all save their sums every `checkpoint` rounds. Of every try are given task, attempt,
    since: the round it began with, received: tuples, and by_round: the same round by round.
    """
    require_fresh(given.directory)

    def member(index: int) -> Iterator[pa.RecordBatch]:
        _Member(given, index).work(every, checkpoint)
        yield pa.RecordBatch.from_pydict({"id": [index]})

    members = by_number(spark, given.tasks, member, "id long", barrier=True)
    members.count()  # not `collect`: Spark starts a barrier stage anew only before an exchange
    last = [saved(given.directory / f"result-{index}") for index in range(given.tasks)]
    return merged(sums for sums, _ in last), tries(given.directory)


class _Member:
    """One task of the barrier stage, sender and receiver in one."""

    def __init__(self, given: LogMerge, index: int) -> None:
        self.given, self.index = given, index
        before = len({path.stem.split("-")[2] for path in given.directory.glob("try-*.json")})
        found = [int(path.name.split("-")[1]) for path in given.directory.glob("checkpoint-*")]
        whole = [r for r in set(found) if found.count(r) == given.tasks]
        mine = json.dumps([before, max(whole, default=0)])
        # takes a second, which is why the rounds themselves meet through their mail
        agreed = [json.loads(each) for each in BarrierTaskContext.get().allGather(mine)]
        self.attempt = max(each[0] for each in agreed)
        self.round = self.since = min(each[1] for each in agreed)

        self.total, stands = saved(self._checkpoint) if self.round else (merged([]), {})
        self.intake = Intake(given.rules, stands)
        self.sums, self.by_round = SliceSums(given.rules.windows.pane), list[int]()

    def work(self, every: int, checkpoint: int) -> None:
        """Rounds until nobody has anything left to read."""
        blocks = (
            block
            for partition in self.given.partitions(self.index)
            for block in self.intake.blocks(partition, self.given.log.part(partition), every)
        )
        while self.exchange(next(blocks, np.empty((3, 0), np.int64))):
            self.round += 1
            if self.round % checkpoint == 0:
                self._save(self._checkpoint)
        self._save(self.given.directory / f"result-{self.index}")

    def exchange(self, mine: np.ndarray) -> bool:
        """Pass tuples on and sum those passed here; whether anybody had anything to pass on."""
        receivers = mine[1] % self.given.tasks
        # Nothing is synced: mail does not outlive a run, and of one name it is the same.
        for receiver in range(self.given.tasks):
            rows = Partials(*mine[:, receivers == receiver])
            path = self._message_file(self.index, receiver)
            scratch = path.with_name(f".{path.name}-{uuid4().hex}")  # an older attempt may live yet
            scratch.write_bytes(pack_message("mail", mine.size > 0, rows))
            scratch.replace(path)

        blocks, until = list[np.ndarray](), time.monotonic() + PATIENCE_S
        anything = False
        for sender in range(self.given.tasks):
            path = self._message_file(sender, self.index)
            while not path.exists():  # Spark ends a wait for a crashed sender with this process
                if time.monotonic() > until:
                    raise TimeoutError(
                        f"task {sender} has passed nothing on for {PATIENCE_S} s: "
                        "see its error in Spark's log"
                    )
                time.sleep(0.002)
            _, more, rows = unpack_message(path.read_bytes())
            anything |= more
            blocks.append(np.stack([rows.windows, rows.keys, rows.values[:, 0]]))
        if not anything:
            return False

        for block in blocks:
            self.sums.add(block)
        self.by_round.append(sum(block.shape[1] for block in blocks))
        received = sum(self.by_round)
        found = {"since": self.since, "received": received, "by_round": self.by_round}
        note_try(self.given.directory, self.index, self.attempt, **found)
        self.given.passes(self.index, received)
        return True

    def _save(self, path: Path) -> None:
        self.total = merged([self.total, self.sums.take()])
        with atomic_file(path) as scratch:
            scratch.write_bytes(
                pack_message("sums", progress_to_json(self.intake.progress), self.total)
            )

    @property
    def _checkpoint(self) -> Path:
        return self.given.directory / f"checkpoint-{self.round}-{self.index}"

    def _message_file(self, sender: int, receiver: int) -> Path:
        folder = self.given.directory
        return folder / f"mail-{self.attempt}-{self.round}-{sender}-{receiver}"
