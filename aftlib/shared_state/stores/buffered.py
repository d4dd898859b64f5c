"""A state table whose merges since the last barrier wait in memory."""

from __future__ import annotations

from collections.abc import Iterable

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.stores.memory import MemoryTable
from aftlib.shared_state.stores.tables import Output, Progress, StateTable, Token, further


class BufferedTable(StateTable):
    """Merges at the speed of memory, in front of a store that gets their sums at the barrier.

    What was merged since the last barrier need not survive the process, so the store does not see
    each batch: it gets every row once. Tables go there in the order of their numbers, which is the
    order in which a server's partitions go through them; so even where a store has the first of two
    without the other, it holds what its offsets say. What it could not write goes on waiting.
    Nobody else uses the store: one process, and in it one thread.

    An OverflowError comes from `merge` when the sums of one barrier leave the 64 bits, from
    `barrier` and `read` when those do that they make together with what the store holds.
    """

    flush = "barrier"

    def __init__(self, store: StateTable) -> None:
        super().__init__(store.aggregate)
        self.store, self._since = store, MemoryTable(store.aggregate)
        self._latest = store.progress()

    def _merge(
        self, rows: Partials, progress: dict[int, Progress], epoch: int, token: Token | None
    ) -> None:
        if token:  # goes to the store at once
            self.barrier()
            self.store.merge(rows, progress, epoch, token)
        else:
            self._since.merge(rows, progress, epoch)
        self._latest = further(self._latest, progress)

    def read(self, window: int | None = None, epoch: int = 0) -> Partials:
        """Rows of the store and those that wait."""
        both = self.store.read(window, epoch), self._since.read(window, epoch)
        return self.aggregate.group(Partials.concat(*both))

    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """How far each partition is, with what waits."""
        if epoch is None:
            return dict(self._latest)
        return further(self.store.progress(epoch), self._since.progress(epoch))

    def epochs(self) -> tuple[int, ...]:
        """Tables that hold something, there or here."""
        return tuple(sorted({*self.store.epochs(), *self._since.epochs()}))

    def handed(self) -> dict[str, int]:
        """Last epoch of each server in the store."""
        return self.store.handed()

    def barrier(self) -> None:
        """Write what waits into the store."""
        self._write(self._since.epochs())

    def drop(self, epoch: int) -> None:
        """Empty a table, there and here."""
        # how far the partitions are is to stay, and no offset may overtake earlier rows
        self._write(e for e in self._since.epochs() if e <= epoch)
        self.store.drop(epoch)

    def forget(self, *windows: int, output: Output | None = None) -> None:
        """Drop windows, there and here."""
        self.store.forget(*windows, output=output)
        self._since.forget(*windows)

    def outputs(self) -> dict[int, int]:
        """Windows that were emitted, as the store recorded them."""
        return self.store.outputs()

    def close(self) -> None:
        """Let go of the store; what waits in memory is gone."""
        self.store.close()

    def _write(self, epochs: Iterable[int]) -> None:
        for epoch in epochs:
            self.store.merge(self._since.read(epoch=epoch), self._since.progress(epoch), epoch)
            self._since.drop(epoch)
