"""The program whose power fails: a store commits batch after batch, and confirms each.

python -m tests.crash.power_workload KIND FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from aftlib.approximately_once.sink import Outage, WindowSink
from aftlib.checkpoint_planning.state import (
    Checkpoint,
    CheckpointStore,
    IntervalRecord,
    WindowResult,
)
from aftlib.core.paths import atomic_directory, atomic_file
from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import SUM, Partials
from aftlib.shared_state.job import Job
from aftlib.shared_state.output import Output
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.stores import open_table
from aftlib.shared_state.stores.tables import Progress
from aftlib.shared_state.tuplelog import TupleLog

BATCHES = 6


def table_of(kind: str, folder: Path) -> Any:
    """A state table of D3."""
    return open_table(f"{kind}:{folder / 'table'}", SUM)


def merge(table: Any, k: int) -> None:
    """Batch k: k at the window 10·k, with its offset."""
    rows = Partials(*(np.array([x]) for x in (10 * k, 0)), np.array([[k]]))
    table.merge(rows, {0: Progress(k, 10 * k)})


def write_sink(folder: Path, k: int) -> None:
    """D1's sink: a window, an outage and the coordinator's state."""
    sink = WindowSink(folder / "sink.sqlite", "query")
    sink.write([(k, k + 1, "X1", float(k), None, 0, 1)], [Outage(k, k, k, 1, 2)], b"%d" % k)


def commit(folder: Path, k: int) -> None:
    """D2's state: sums up to step k, the batch and a window."""
    store = CheckpointStore(folder / "state.sqlite", "stream")
    arrays = np.full(1, float(k)), np.full(1, k), np.zeros(1)
    checkpoint = Checkpoint(0, k, *arrays, (0, k, k + 1), "plan")
    result = WindowResult(k, k + 1, "X1", float(k), 0.0, 1, True)
    store.begin(k, k - 1, "process")
    store.commit(checkpoint, [result], IntervalRecord(k, k - 1, k, False, 1, 0.0, 0.0, 0.0))


def write_file(folder: Path, k: int) -> None:
    """A guard's state, a task's marker file: a file that atomically replaces the last one."""
    with atomic_file(folder / "state.json") as draft:
        draft.write_text("x" * 10_000 + str(k))


def write_folder(folder: Path, k: int) -> None:
    """Logs and prepared replay sets: a folder created atomically."""
    with atomic_directory(folder / f"log-{k}") as draft:
        for part in range(3):
            (draft / f"part-{part}").write_text(str(k))


def output_of(folder: Path) -> tuple[Output, Any]:
    """D3's output task and the table that it deletes from; tumbling windows of 10 ticks."""
    job = Job(TupleLog(folder, 1, 1, {}), Rules(Windows(10, 10)), folder)
    table = open_table(f"sqlite:{folder / 'table'}", SUM)
    return Output(job, table), table


def main(kind: str, place: str) -> None:
    """Commit all batches."""
    folder = Path(place)
    if kind == "output":
        output, table = output_of(folder)
    elif kind in ("sqlite", "rocksdb"):
        table = table_of(kind, folder)
    for k in range(1, BATCHES + 1):
        if kind in ("sqlite", "rocksdb", "output"):
            merge(table, k)
        if kind == "output":
            output.emit()
        if kind in WRITES:
            WRITES[kind](folder, k)
        os.write(1, b"committed\n")
    os._exit(0)  # without exit handlers, which would sync


WRITES = {"sink": write_sink, "state": commit, "file": write_file, "folder": write_folder}

if __name__ == "__main__":
    main(*sys.argv[1:])
