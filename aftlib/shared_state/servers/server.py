"""A server: its tasks merge into its own store, whose complete tables go to the global one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.servers.cycle import Cycle, State
from aftlib.shared_state.servers.job import Job
from aftlib.shared_state.servers.source import END
from aftlib.shared_state.stores.tables import Progress, StateTable

TOTAL = 0
"""Table of a server's own store that holds what was handed over already, if keys are apart."""


def nothing_happens(point: str) -> None:
    """Pass a point at which a test may strike."""


class Server:
    """What a server does; `wire` lets tasks call it, `handover` empties its complete tables.

    Whatever its own store held when it starts is complete: the death of a server is a barrier that
    all its tasks have met. Partitions go on where its own store says, or, if that has been lost,
    where the global one does; it is asked when no transaction of the dead server can land there any
    more, unless its tables are here still. Safe to call from several threads.

    Parameters
    ----------
    job : Job
    number : int
    own, shared : StateTable
    at : callable
        Called with the name of each point that is passed.

    Raises
    ------
    ValueError
        When its own store is older than the global one, so not the one that handed over.
    """

    def __init__(
        self,
        job: Job,
        number: int,
        own: StateTable,
        shared: StateTable,
        at: Callable[[str], None] = nothing_happens,
    ) -> None:
        self.job, self.number, self.name = job, number, f"server-{number}"
        self.own, self.shared, self.at = own, shared, at
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        handed = self._fence()
        if job.keys_apart:
            self._restore_total()
        found = [epoch for epoch in own.epochs() if epoch != TOTAL]
        self.complete = found
        self.cycle = Cycle(max([handed, *found]) + 1)
        self._begin = self._furthest()

    @property
    def backup(self) -> int:
        """Table of the global store that this server hands over to."""
        return self.number if self.job.keys_apart else 0

    def join(self, task: str, partitions: list[int]) -> dict[int, Progress]:
        """A task begins; returns where its partitions stand, as far as they have begun."""
        with self.lock:
            self.cycle.join(task)
            stands = self.stands()
            self._look()
            return {p: stands[p] for p in partitions if p in stands}

    def leave(self, task: str) -> None:
        """A task has ended or died."""
        with self.changed:
            self.cycle.leave(task)
            self._look()
            self.changed.notify_all()

    def merge(self, task: str, partials: Partials, progress: Mapping[int, Progress]) -> None:
        """Merge a task's batch into the table that it has to go to.

        Raises
        ------
        OverflowError, StaleBatch, OSError
            As `StateTable.merge`.
        """
        with self.lock:
            before = self.cycle.state
            epoch = self.cycle.meet(task)
            if self.cycle.state is not before:
                self.at("met")
            self.own.merge(partials, progress, epoch)
            self.at("merged")
            self._look()

    def checkpoint(self) -> None:
        """Raise a barrier, if there is anything to flush."""
        with self.lock:
            if self.cycle.epoch in self.own.epochs():
                self.cycle.raise_barrier()
                self._look()

    def stands(self) -> dict[int, Progress]:
        """How far each partition is part of this server's state."""
        with self.lock:
            return {**self._begin, **self.own.progress()}

    @property
    def read_all(self) -> bool:
        """Whether every partition has been read to its end."""
        stands = self.stands()
        mine = self.job.partitions_of(self.number)
        return all(p in stands and stands[p].watermark == END for p in mine)

    @property
    def finished(self) -> bool:
        """Whether all of it has been read and handed over."""
        with self.lock:
            return self.read_all and set(self.own.epochs()) <= {TOTAL}

    def _look(self) -> None:
        """Flush a table that has become complete, and open the next one."""
        if self.cycle.state is not State.COMPLETE:
            return
        self.at("complete")
        self.own.barrier()
        self.at("flushed")
        epoch = self.cycle.finish()
        self.complete.append(epoch)
        self.changed.notify_all()

    def _furthest(self) -> dict[int, Progress]:
        """Where partitions stand by the global store that the server's own, if lost, knows not."""
        own, shared = self.own.progress(), self.shared.progress()
        older = [p for p in own if p in shared and own[p].offset < shared[p].offset]
        if older:
            raise ValueError(
                f"own must know what was handed over, got a store of {self.name} that is older "
                f"than the global one in partitions {older}: remove it, and the server goes on "
                "from the global store"
            )
        return {p: there for p, there in shared.items() if p not in own}

    def _fence(self) -> int:
        """Let nothing of a dead process of this server land from now on; returns the last epoch.

        A transaction of its own with the next number waits for one on its way, or is waited for
        and has that refused. What this store holds keeps its numbers, for it is yet to be handed
        over, and a transaction on its way is of these epochs only (`HandOver` asks anew for them).
        """
        handed = self.shared.handed().get(self.name, TOTAL)
        if self.own.epochs():
            return handed
        nothing = Partials.empty(len(self.job.function.components))
        while not self.shared.merge(nothing, {}, self.backup, (self.name, handed + 1)):
            handed = self.shared.handed()[self.name]
        return handed + 1

    def _restore_total(self) -> None:
        """Take the total from the backup if it is of a later hand-over than what is here."""
        handed = self.shared.handed().get(self.name, TOTAL)
        here = self.own.handed().get(self.name, TOTAL)
        if here < handed and handed not in self.own.epochs():
            rows, progress = self.shared.read(epoch=self.backup), self.shared.progress(self.backup)
            self.own.drop(TOTAL)
            self.own.merge(rows, progress, TOTAL, (self.name, handed))
