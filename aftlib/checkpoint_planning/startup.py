"""A driver's start: the operator over the state in a directory, with or without the guard."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

from aftlib.checkpoint_planning.operator import PartialReplay, ReplayQuery
from aftlib.checkpoint_planning.state import CheckpointStore, Preparation
from aftlib.core.sensorlog import SensorLog


def prepare(
    query: ReplayQuery,
    log: SensorLog,
    directory: Path | str,
    passes: Callable[[str, int], None] = lambda point, batch: None,
) -> PartialReplay:
    """The operator over the state in a directory, under a new name of this process.

    ValueError when the log's keys are not the model's, or the state belongs to another stream: of
    another query, or over another log.
    """
    if log.names != query.model.names:
        gone = sorted(set(query.model.names) - set(log.names))
        new = sorted(set(log.names) - set(query.model.names))
        raise ValueError(
            f"log must have the model's {query.model.size} keys in their order, got "
            f"{len(log.names)} (missing {gone[:5]}, new {new[:5]}); fit the model on these sensors"
        )
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    store, kind = CheckpointStore(directory / "state.sqlite", query.fingerprint), PartialReplay
    own = json.dumps(log.identity, sort_keys=True).encode()
    begun = store.memory("log")  # not there when the stream is new, or an earlier release's
    if not begun:
        store.remember({"log": own})
    elif begun != own:
        raise ValueError(
            f"log must be the one that the stream in {str(directory)!r} began with, "
            f"{begun.decode()}, got {own.decode()}: go on with that one, or start again in another "
            "directory"
        )
    if query.recover == "guard":  # which others need not load
        from aftlib.checkpoint_planning.guarded_replay import GuardedReplay

        kind = GuardedReplay
    return kind(query, log, store, Preparation(directory / "prepared"), uuid.uuid4().hex, passes)
