"""Late global merge by servers and tasks (D3 fig. 3), one of each killed: who reads again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.core.windows import Windows
from aftlib.shared_state.servers.stage import Stage
from aftlib.shared_state.servers.supervisor import run_stage
from aftlib.shared_state.stream.parsing import Rules
from aftlib.shared_state.stream.tuplelog import TupleLog
from aftlib.spark.faults import Fault

WINDOWS = Windows(1_000, 500)
PARTITIONS, KEYS, BATCHES = 4, 1_000, 500


def servers_and_tasks_die(directory: Path, tuples: int, seed: int) -> pd.DataFrame:
    """Run two servers of two tasks each, undisturbed and with a task and server 0 killed.

    A server's own store is RocksDB, the global one SQLite. Task 0-0 dies when it has read half of
    its partition, server 0 when its two tasks have merged three quarters of theirs.

    Parameters
    ----------
    directory : Path
        New folder.
    tuples : int
        Of each of four partitions.
    seed : int

    Returns
    -------
    DataFrame
        run, task, joined: how often it began or came back, read_again: tuples that it read a
        second time, seconds: the whole run.

    Raises
    ------
    RuntimeError
        When the two runs put out different windows, or nobody died.
    """
    rng, times = np.random.default_rng(seed), np.arange(tuples) * 10 * WINDOWS.width // tuples
    texts = []
    for _ in range(PARTITIONS):
        columns = times, rng.integers(0, KEYS, tuples), rng.integers(0, 101, tuples)
        texts.append(b"".join(b"%d,%d,%d\n" % row for row in zip(*columns, strict=True)))
    log = TupleLog.write(directory / "log", texts)

    rules, batch = Rules(WINDOWS, WINDOWS.pane), -(-tuples // BATCHES)
    calm = Stage(log, rules, directory / "calm", batch=batch, checkpoint_s=0.05)
    notes, batches = directory / "faults", -(-tuples // batch)
    faults = (
        Fault(notes, "task-0-0 read", -(-batches // 2)),
        Fault(notes, "server-0 merged", -(-batches * 3 // 2)),
    )
    struck = replace(calm, directory=directory / "struck", faults=faults)
    rows = []
    for name, stage in (("calm", calm), ("struck", struck)):
        account = run_stage(stage)
        for task in sorted(account.joined):
            found = {"joined": account.joined[task], "read_again": account.read_again.get(task, 0)}
            rows.append({"run": name, "task": task, **found, "seconds": account.seconds})
    require_alike(calm, struck)
    return pd.DataFrame(rows)


def require_alike(calm: Stage, struck: Stage) -> None:
    """Refuse a run in which not both died, or whose windows differ from the undisturbed run's.

    Raises
    ------
    RuntimeError
    """
    for fault in struck.faults:
        if not fault.fallen:
            who = fault.point.split("-")[0]
            raise RuntimeError(f"no {who} died: take more tuples, so that there is time for it")
    one, other = (
        {path.name: path.read_text() for path in stage.output.iterdir()} for stage in (calm, struck)
    )
    if one != other:
        raise RuntimeError("the run with deaths puts out other windows: report this as a bug")
