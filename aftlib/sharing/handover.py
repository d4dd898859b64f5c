"""The asynchronous hand-over of a server's complete tables to the global store (D3 section 5.2)."""

from __future__ import annotations

import time
from collections.abc import Mapping

from aftlib.aggregates import Partials
from aftlib.sharing.server import TOTAL, Server
from aftlib.statestore.tables import Progress

RETRY_S = 0.1


class HandOver:
    """Takes complete tables one after the other, oldest first, while tasks go on merging.

    The global transaction carries (server, epoch), so whatever dies at whatever point, a table is
    merged once. While the global store is out of reach tables wait in the server's own store.

    Parameters
    ----------
    server : Server
    patience_s : float
        Seconds that the global store may be out of reach.
    """

    def __init__(self, server: Server, patience_s: float = 600.0) -> None:
        self._server = server
        self._patience_s = patience_s

    def run(self) -> None:
        """Hand over, for ever.

        Raises
        ------
        OSError
            When the global store stays out of reach.
        """
        while True:
            self.once()

    def once(self) -> None:
        """Wait for a complete table and hand it over."""
        server = self._server
        with server.changed:
            server.changed.wait_for(lambda: server.complete)
            epoch = server.complete[0]
            rows, progress = server.own.read(epoch=epoch), server.own.progress(epoch)
        self._merge(epoch, rows, progress)
        server.at("handed")
        with server.changed:
            if server.job.keys_apart:
                server.own.merge(rows, progress, TOTAL, (server.name, epoch))
                server.at("folded")
            server.own.drop(epoch)
            server.at("dropped")
            server.complete.remove(epoch)
            server.changed.notify_all()

    def _merge(self, epoch: int, rows: Partials, progress: Mapping[int, Progress]) -> None:
        """Merge into the global store, however often it takes."""
        server, begin = self._server, time.monotonic()
        while True:
            try:
                server.shared.merge(rows, progress, server.backup, (server.name, epoch))
                return
            except OSError:
                if time.monotonic() - begin > self._patience_s:
                    raise
                time.sleep(RETRY_S)
