"""The asynchronous hand-over of a server's complete tables to the global store (D3 section 5.2)."""

from __future__ import annotations

import time
from dataclasses import replace

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.servers.server import BASE, Server
from aftlib.shared_state.stores.tables import Progress, StaleBatch

RETRY_S = 0.1


def hand_over_always(server: Server) -> None:
    """Hand complete tables over while tasks go on merging, for ever.

    Raises
    ------
    ValueError, StaleBatch, OSError
        As `hand_over`.
    """
    while True:
        hand_over(server)
        with server.changed:
            server.changed.wait_for(lambda: server.read_all, server.stage.handover_s)


def hand_over(server: Server) -> None:
    """Wait for a complete table, and merge all that are into the global store, each once.

    The global transaction says where each partition's delta begins, and is refused unless the
    partition stands there. What a process of this server that has died had handed over after all is
    left out (`Server.agreed`). While the global store is out of reach, tables wait in the server's
    own store.

    Raises
    ------
    ValueError
        When the global store does not stand where this server has brought it.
    StaleBatch, OSError
        When it goes on refusing, or stays out of reach.
    """
    with server.changed:
        server.changed.wait_for(lambda: server.complete)
        epochs = list(server.complete)

    nothing = Partials.empty(len(server.stage.function.components))
    until = time.monotonic() + server.stage.patience_s
    while True:
        try:
            handed, stands = server.agreed()
            new = [epoch for epoch in epochs if epoch > handed]
            with server.lock:
                rows = Partials.concat(nothing, *(server.own.read(epoch=e) for e in new))
                progress = server.reached(new)
            delta = {
                p: replace(now, since=stands.get(p, Progress()).offset)
                for p, now in progress.items()
            }
            server.shared.merge(rows, delta, token=(server.name, epochs[-1]))
            break
        except (StaleBatch, OSError):  # a dead process's came between, or nobody answers
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_S)
    server.at("handed")

    with server.changed:
        server.own.merge(nothing, server.reached(epochs), BASE)
        for epoch in epochs:
            server.own.drop(epoch)
            server.complete.remove(epoch)
        server.at("dropped")
        server.changed.notify_all()
