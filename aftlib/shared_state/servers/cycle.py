"""The states of a local checkpoint: open, checkpointing, complete (D3 section 5.1)."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where a local checkpoint is."""

    OPEN = "open"
    """No task has met the barrier."""
    CHECKPOINTING = "checkpointing"
    """Some have, and merge into the next table already."""
    COMPLETE = "complete"
    """All have: nobody writes into the old table any more, so it can be flushed and handed over."""


class Cycle:
    """Which table each task merges into.

    A task meets the barrier before its next batch. One that has died has met it: nothing of it can
    come into the old table any more, as its substitute begins in the newest one.

    Parameters
    ----------
    epoch : int
        Number of the first table.
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

    @property
    def newest(self) -> int:
        """Table that a task joins."""
        return self.epoch + (self.state is not State.OPEN)

    def join(self, task: str) -> None:
        """A task, or its substitute, begins."""
        self._tables.pop(task, None)
        self._tables[task] = self.newest

    def leave(self, task: str) -> None:
        """A task has ended or died."""
        self._tables.pop(task, None)

    def raise_barrier(self) -> None:
        """Ask for a checkpoint; while one is on its way, it is the one."""
        self._raised = True

    def meet(self, task: str) -> int:
        """Table of the task's next batch, which comes after the barrier if there is one.

        Raises
        ------
        KeyError
            When the task has not joined, or has left.
        """
        if task not in self._tables:
            raise KeyError(f"task {task!r} is not one of {sorted(self._tables)}: join first")
        if self._raised:
            self._tables[task] = self.epoch + 1
        return self._tables[task]

    def finish(self) -> int:
        """Open the next table; returns the number of the one that is complete.

        Raises
        ------
        RuntimeError
            When it is not complete.
        """
        if self.state is not State.COMPLETE:
            raise RuntimeError(
                f"table {self.epoch} is {self.state.value}, not complete: tasks that have not met "
                f"the barrier still write into it; wait for {sorted(self._tables)}"
            )
        self._raised = False
        self.epoch += 1
        return self.epoch - 1
