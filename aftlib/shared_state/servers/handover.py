"""The asynchronous hand-over of a server's complete tables to the global store (D3 section 5.2)."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.servers.server import TOTAL, Server
from aftlib.shared_state.stores.tables import Progress, StaleBatch, furthest

RETRY_S = 0.1
_NOWHERE = -1
"""Where a partition stands of which the global store has not heard."""


class HandOver:
    """Takes the complete tables while tasks go on merging, and merges them globally once.

    The global transaction carries (server, epoch) and where each partition stood, so it is refused
    if the server, before it died, had handed over any of these tables after all. Tables that died
    with it are of epochs that the substitute has fenced off (`Server`). While the global store is
    out of reach tables wait in the server's own store.

    Parameters
    ----------
    server : Server
    patience_s : float
        Seconds that the global store may be out of reach, or refuse.
    """

    def __init__(self, server: Server, patience_s: float = 600.0) -> None:
        self._server = server
        self._patience_s = patience_s

    def run(self) -> None:
        """Hand over, for ever.

        Raises
        ------
        StaleBatch, OSError
            When the global store goes on refusing, or stays out of reach.
        """
        server = self._server
        while True:
            self.once()
            with server.changed:
                server.changed.wait_for(lambda: server.read_all, server.job.handover_s)

    def once(self) -> None:
        """Wait for a complete table, and hand over all that are."""
        server = self._server
        with server.changed:
            server.changed.wait_for(lambda: server.complete)
            epochs = list(server.complete)
        self._merge(epochs)
        server.at("handed")
        if server.job.keys_apart:
            self._fold(epochs)
            server.at("folded")
            with suppress(OSError):  # the next hand-over does it
                self._forget()
        with server.changed:
            for epoch in epochs:
                server.own.drop(epoch)
                server.complete.remove(epoch)
            server.at("dropped")
            server.changed.notify_all()

    def _merge(self, epochs: list[int]) -> None:
        """Merge into the global store, however often it takes."""
        begin = time.monotonic()
        while True:
            try:
                self._try(epochs)
                return
            except (StaleBatch, OSError):  # a dead process's was committed, or nobody answers
                if time.monotonic() - begin > self._patience_s:
                    raise
                time.sleep(RETRY_S)

    def _try(self, epochs: list[int]) -> None:
        server = self._server
        handed = server.shared.handed().get(server.name, TOTAL)
        stands = server.shared.progress(server.backup)
        rows, progress = self._delta(epochs, handed)
        begun = {
            p: replace(now, since=stands[p].offset if p in stands else _NOWHERE)
            for p, now in progress.items()
        }
        server.shared.merge(rows, begun, server.backup, (server.name, epochs[-1]))

    def _fold(self, epochs: list[int]) -> None:
        """Merge into the server's own total, which the global store has the backup of."""
        server = self._server
        with server.lock:
            rows, progress = self._delta(epochs, server.own.handed().get(server.name, TOTAL))
            server.own.merge(rows, progress, TOTAL, (server.name, epochs[-1]))

    def _forget(self) -> None:
        """Drop from the backup what the total, of the same tuples, has put out."""
        server = self._server
        with server.lock:
            held = server.own.windows(TOTAL)
        for out in np.setdiff1d(server.shared.windows(server.backup), held).tolist():
            server.shared.forget(out, server.backup)

    def _delta(self, epochs: list[int], after: int) -> tuple[Partials, dict[int, Progress]]:
        """Tables above an epoch, merged into one."""
        server, progress = self._server, dict[int, Progress]()
        tables = [Partials.empty(len(server.job.function.components))]
        with server.lock:
            for epoch in (epoch for epoch in epochs if epoch > after):
                tables.append(server.own.read(epoch=epoch))
                for partition, now in server.own.progress(epoch).items():
                    progress[partition] = furthest(progress.get(partition), now)
        return Partials.concat(*tables), progress
