"""A state table whose merges since the last barrier wait in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.stores.memory import MemoryTable
from aftlib.shared_state.stores.tables import Progress, StateTable, check_since, furthest


class BufferedTable(StateTable):
    """Merges at the speed of memory, in front of a store that gets their sums at the barrier.

    What was merged since the last barrier does not survive the process anyway, so the store need
    not see each batch: it gets every row once. Tables go there in the order of their numbers, which
    is the order in which a server's partitions go through them; so even where a store keeps the
    first of two without the other, it holds what its offsets say. A store that fails to write may
    have lost what it took since the last barrier, as its process would have; from then on all calls
    are refused. One process, and in it one thread.

    Parameters
    ----------
    store : StateTable
        Opened with flush="barrier", and used by nobody else.

    Raises
    ------
    ValueError
        When the store flushes every merge.
    OverflowError
        By `merge` when the sums of one barrier leave the 64 bits, by `barrier` and `read` when
        those do that they make together with what the store holds.
    OSError
        By all calls, once the store has failed to write.
    """

    def __init__(self, store: StateTable) -> None:
        if store.flush != "barrier":
            raise ValueError(
                f"store must be opened with flush='barrier', got {store.flush!r}: merges that are "
                "to survive one by one cannot wait in memory"
            )
        super().__init__(store.aggregate, store.flush)
        self._behind = store
        self._failed: OSError | None = None
        self._since = MemoryTable(store.aggregate)
        self._latest = store.progress()

    @property
    def store(self) -> StateTable:
        """The store behind.

        Raises
        ------
        OSError
            When it has failed to write.
        """
        if self._failed is not None:
            raise OSError(
                f"the store failed to write before ({self._failed}); what came since the last "
                "barrier is lost: close the table, open it again, and read on from its progress"
            ) from self._failed
        return self._behind

    def merge(
        self,
        partials: Partials,
        progress: Mapping[int, Progress],
        epoch: int = 0,
        token: tuple[str, int] | None = None,
    ) -> bool:
        """Merge a batch and its offsets; one with a token goes to the store at once."""
        store = self.store
        if token and self.handed().get(token[0], -1) >= token[1]:
            return False
        check_since(progress, self._latest)
        checked = {partition: replace(now, since=None) for partition, now in progress.items()}
        if token:
            self._write(epoch)
            with self._writing():
                store.merge(partials, checked, epoch, token)
        else:
            self._since.merge(partials, checked, epoch)
        for partition, now in checked.items():
            self._latest[partition] = furthest(self._latest.get(partition), now)
        return True

    def read(self, window: int | None = None, epoch: int = 0) -> Partials:
        """Rows of one window, or of all, sorted by window and key."""
        stored, since = self.store.read(window, epoch), self._since.read(window, epoch)
        return self.aggregate.group(Partials.concat(stored, since)) if len(since) else stored

    def windows(self, epoch: int = 0) -> np.ndarray:
        """Windows that hold something, ascending."""
        return np.union1d(self.store.windows(epoch), self._since.windows(epoch))

    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """How far each partition is, at all or as far as the epoch's table brings it."""
        store = self.store
        if epoch is None:
            return dict(self._latest)
        found = store.progress(epoch)
        for partition, now in self._since.progress(epoch).items():
            found[partition] = furthest(found.get(partition), now)
        return found

    def epochs(self) -> tuple[int, ...]:
        """Tables that hold something, ascending."""
        return tuple(sorted({*self.store.epochs(), *self._since.epochs()}))

    def handed(self) -> dict[str, int]:
        """Last epoch that each server handed over to this store."""
        return self.store.handed()

    def barrier(self) -> None:
        """Write what waits into the store, and have it flushed there."""
        self._write()
        with self._writing():
            self.store.barrier()

    def drop(self, epoch: int) -> None:
        """Empty a table."""
        self._write(epoch)  # how far the partitions are is to stay
        with self._writing():
            self.store.drop(epoch)

    def forget(self, window: int, epoch: int = 0) -> None:
        """Drop a window that has been put out."""
        with self._writing():
            self.store.forget(window, epoch)
        self._since.forget(window, epoch)

    def close(self) -> None:
        """Let go of the store; what waits in memory is gone."""
        self._behind.close()

    def _write(self, last: int | None = None) -> None:
        """Merge what waits into the store, up to a table: no offset may overtake earlier rows."""
        store = self.store
        for epoch in self._since.epochs():
            if last is None or epoch <= last:
                rows, progress = self._since.read(epoch=epoch), self._since.progress(epoch)
                with self._writing():
                    store.merge(rows, progress, epoch)
                self._since.drop(epoch)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failed = self._failed or error
            raise
