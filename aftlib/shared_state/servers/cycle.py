"""Which table each task merges into while checkpoints are taken (D3 section 5.1)."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where a local checkpoint is."""

    OPEN = "open"  # no task has met the barrier
    CHECKPOINTING = "checkpointing"  # some have; they merge into the next table already
    COMPLETE = "complete"  # all have; nobody writes into the old table any more: it can be flushed


class Cycle:
    """The course of local checkpoints: open, checkpointing, complete, and open again.

    A task meets the barrier just before its next batch. A task that has died counts as having met
    it. Its substitute begins in the newest table, so nothing more comes into the old one. `epoch`
    is the number of the table, at first given.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._raised = False
        self._tables: dict[str, int] = {}

    @property
    def state(self) -> State:
        """Where the checkpoint of the table `epoch` is."""
        if not self._raised:
            return State.OPEN
        behind = [table for table in self._tables.values() if table == self.epoch]
        if not behind:
            return State.COMPLETE
        return State.CHECKPOINTING if len(behind) < len(self._tables) else State.OPEN

    def join(self, task: str) -> None:
        """A task, or its substitute, begins in the newest table."""
        self._tables.pop(task, None)
        self._tables[task] = self.epoch + (self.state is not State.OPEN)

    def leave(self, task: str) -> None:
        """A task has ended or died."""
        self._tables.pop(task, None)

    def raise_barrier(self) -> None:
        """Ask for a checkpoint, unless one is on its way."""
        self._raised = True

    def meet(self, task: str) -> int:
        """Table of the task's next batch. If there is a barrier, the batch comes after it."""
        if task not in self._tables:
            raise KeyError(f"task {task!r} is not one of {sorted(self._tables)}: join first")
        if self._raised:
            self._tables[task] = self.epoch + 1
        return self._tables[task]

    def finish(self) -> int:
        """Open the next table; returns the number of the one that is complete."""
        if self.state is not State.COMPLETE:
            raise RuntimeError(
                f"table {self.epoch} is {self.state.value}, not complete: tasks that have not met "
                f"the barrier still write into it; wait for {sorted(self._tables)}"
            )
        self._raised = False
        self.epoch += 1
        return self.epoch - 1
