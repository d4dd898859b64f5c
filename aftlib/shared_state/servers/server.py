"""A server: its tasks merge into its own store, whose complete tables go to the global one."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.servers.cycle import Cycle, State
from aftlib.shared_state.servers.stage import Stage
from aftlib.shared_state.stores.tables import END, Progress, StateTable


class Server:
    """What a server does; `wire` lets tasks call it, `handover` empties its complete tables.

    The death of a server counts as a barrier that all its tasks have met. So whatever its own store
    holds when it starts is complete. Partitions go on where its own store says. What that store has
    lost goes on where the global one says. Safe to call from several threads.

    Parameters
    ----------
    stage : Stage
    number : int
    own, shared : StateTable

    Raises
    ------
    ValueError
        When its own store is older than the global one, so not the one that handed over.
    """

    def __init__(self, stage: Stage, number: int, own: StateTable, shared: StateTable) -> None:
        self.stage, self.number, self.name = stage, number, f"server-{number}"
        self.own, self.shared, self.at = own, shared, stage.points(f"server-{number}")
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.complete = [*own.epochs()]
        self.cycle = Cycle(max([self._fence(), *self.complete]) + 1)

        mine, theirs = own.progress(), shared.progress()
        older = [p for p in mine if p in theirs and mine[p].offset < theirs[p].offset]
        if older:
            raise ValueError(
                f"own must know what was handed over, got a store of {self.name} that is older "
                f"than the global one in partitions {older}: remove it, and the server goes on "
                "from the global store"
            )
        self._begin = {p: there for p, there in theirs.items() if p not in mine}

    def _fence(self) -> int:
        """Keep out what a dead process of this server may still be committing; the last epoch.

        Such a transaction carries the number of its last table. Where the tables are still here,
        they keep their numbers: it is seen at the hand-over whether the transaction was committed.
        Where they are lost, this takes the next number in a transaction of its own, after which
        the other one is refused. Either waits for the other if both are on their way.
        """
        handed = self.shared.handed().get(self.name, 0)
        if self.own.epochs():
            return handed
        nothing = Partials.empty(len(self.stage.function.components))
        while not self.shared.merge(nothing, {}, token=(self.name, handed + 1)):
            handed = self.shared.handed()[self.name]
        return handed + 1

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

    def _look(self) -> None:
        """Flush a table that has become complete, and open the next one."""
        if self.cycle.state is not State.COMPLETE:
            return
        self.at("complete")
        self.own.barrier()
        self.at("flushed")
        self.complete.append(self.cycle.finish())
        self.changed.notify_all()

    def stands(self) -> dict[int, Progress]:
        """How far each partition is part of this server's state."""
        with self.lock:
            return {**self._begin, **self.own.progress()}

    @property
    def read_all(self) -> bool:
        """Whether every partition has been read to its end."""
        stands = self.stands()
        mine = self.stage.partitions_of(self.number)
        return all(p in stands and stands[p].watermark == END for p in mine)

    @property
    def finished(self) -> bool:
        """Whether all of it has been read and handed over."""
        with self.lock:
            return self.read_all and not self.own.epochs()
