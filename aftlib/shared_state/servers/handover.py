"""The asynchronous hand-over of a server's complete tables to the global store (D3 section 5.2)."""

from __future__ import annotations

import time
from dataclasses import replace

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.servers.server import Server
from aftlib.shared_state.stores.tables import Progress, StaleBatch, furthest

RETRY_S = 0.1
_NOWHERE = -1
"""Where a partition stands of which the global store has not heard."""


class HandOver:
    """Takes complete tables while tasks go on merging, and merges each into the global store once.

    The global transaction carries the server, the number of its last table, and where each
    partition stood. It is refused if a process of this server that has died had handed over any of
    these tables after all. While the global store is out of reach, tables wait in the server's own
    store.

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
                server.changed.wait_for(lambda: server.read_all, server.stage.handover_s)

    def once(self) -> None:
        """Wait for a complete table, and hand over all that are."""
        server = self._server
        with server.changed:
            server.changed.wait_for(lambda: server.complete)
            epochs = list(server.complete)

        until = time.monotonic() + self._patience_s
        while True:
            try:
                self._merge(epochs)
                break
            except (StaleBatch, OSError):  # a dead process's was committed, or nobody answers
                if time.monotonic() > until:
                    raise
                time.sleep(RETRY_S)
        server.at("handed")

        with server.changed:
            for epoch in epochs:
                server.own.drop(epoch)
                server.complete.remove(epoch)
            server.at("dropped")
            server.changed.notify_all()

    def _merge(self, epochs: list[int]) -> None:
        """Merge what the global store does not have yet, in one transaction."""
        server = self._server
        handed = server.shared.handed().get(server.name, 0)
        stands = server.shared.progress()

        tables = [Partials.empty(len(server.stage.function.components))]
        progress: dict[int, Progress] = {}
        with server.lock:
            for epoch in (epoch for epoch in epochs if epoch > handed):
                tables.append(server.own.read(epoch=epoch))
                for partition, now in server.own.progress(epoch).items():
                    progress[partition] = furthest(progress.get(partition), now)

        begun = {
            p: replace(now, since=stands[p].offset if p in stands else _NOWHERE)
            for p, now in progress.items()
        }
        server.shared.merge(Partials.concat(*tables), begun, token=(server.name, epochs[-1]))
