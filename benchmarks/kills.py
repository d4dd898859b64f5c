"""Long series of kills: of D3's tasks and servers, which claim D3-8 reads, and of D2's drivers.

python -m benchmarks kills
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from aftlib.core.generators import block_model, draw
from aftlib.core.processes import preload
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.documents.checkpoint_planning import drivers, state
from aftlib.documents.checkpoint_planning.operator import PartialReplay, ReplayQuery
from aftlib.documents.checkpoint_planning.plan import RecoveryTime
from aftlib.documents.checkpoint_planning.state import Checkpoint, CheckpointStore, IntervalRecord
from aftlib.documents.shared_state import kills
from aftlib.spark.session import session

TURNS = int(os.environ.get("AFT_KILL_TURNS", "50"))
"""Kills of a server or a driver at each point; four times as many of a task."""
TUPLES = 1_000_000
"""Of D3's stream: so many that a server has a second checkpoint on a busy machine, too."""
MODEL = block_model(8, 2, 4.0, 3.0, mean=5.0)
QUERY = ReplayQuery(MODEL, 60, Requirement(0.3, 0.05), RecoveryTime(1.0, 0.01), 1.5)
POINTS = ("begun", "restored", "replayed", "estimated", "written", "committed", "planned")
"""Points of a driver's batch; at "written" the transaction has the checkpoint, and is open."""
COMMIT = PartialReplay._commit
preload(__name__)


def run() -> dict[str, Any]:
    """Return for each point the kills, and how many of them did harm."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        return {"drivers": kill_drivers(place / "drivers"), "kills": kill_servers(place)}


def kill_servers(place: Path) -> list[dict[str, Any]]:
    """Count kills that left wrong sums or disturbed a task (D3)."""
    spark = session("benchmark")
    every = kills.run_kills(spark, place / "every", TUPLES, seed=11, turns=TURNS)
    # servers have four points, tasks have one
    with mock.patch.object(kills, "CASES", (kills.CASES[0], kills.CASES[-1])):
        tasks = kills.run_kills(spark, place / "tasks", TUPLES, seed=12, turns=3 * TURNS)
    frame = pd.concat([every, tasks], ignore_index=True)
    harmed = (frame[["wrong", "disturbed"]] > 0).assign(kills=1)
    points = harmed.groupby([frame["killed"], frame["point"]], sort=False).sum()
    return points.reset_index().to_dict("records")


def kill_drivers(place: Path) -> list[dict[str, Any]]:
    """Kill one driver after another, each in a window of its own; count windows with harm (D2).

    A recovering driver is the one that reads again what the driver before it, killed as well, had
    read. The broken controls are killed between the two transactions that they commit.
    """
    log = SensorLog.write(place / "log", draw(MODEL, TURNS * QUERY.window, 2), MODEL.names)
    cases = [*product(["driver", "driver recovering"], POINTS, [commit_in_steps])]
    controls = {"sums": sums_first, "position": position_first}
    cases += [(f"driver, {name} first", "between", commit) for name, commit in controls.items()]
    rng, rows = np.random.default_rng(13), []
    for killed, point, commit in cases:
        folder = place / f"{killed}, {point}"
        with mock.patch.object(drivers, "drive", partial(drive, commit)):
            for window in range(TURNS):
                step = window * QUERY.window  # a control is killed in the first interval
                if point != "between":
                    step += int(rng.integers(QUERY.window))
                if killed == "driver recovering":
                    drivers.run_driver(folder, QUERY, log, ("replayed", step))
                drivers.run_driver(folder, QUERY, log, (point, step))
            drivers.run_driver(folder, QUERY, log, None)
        results = CheckpointStore(folder).results()
        rows.append({"killed": killed, "point": point, "kills": TURNS} | count_harm(results, log))
    return rows


def count_harm(results: pd.DataFrame, log: SensorLog) -> dict[str, int]:
    """Count windows in which a sensor is lost, has samples twice or is wrong, or is estimated.

    An exact value must be the log's mean; an estimate must be within five of its standard errors.
    """
    means = log.read(None, 0, log.steps).reshape(TURNS, QUERY.window, -1).mean(axis=1)
    starts = pd.RangeIndex(0, log.steps, QUERY.window, name="start")
    due = pd.DataFrame(means, starts, log.names).reset_index().melt("start", None, "key", "true")
    rows = due.merge(results, "outer", ["start", "key"])
    off = (rows["value"] - rows["true"]).abs() - 5 * rows["half_width"] / QUERY.requirement.z
    extra = rows["samples"].fillna(0) - QUERY.window
    harm = {"lost": extra < 0, "doubled": extra > 0, "wrong": (extra == 0) & ~(off <= 1e-9)}
    harm["estimated"] = rows["half_width"] > 0
    return pd.DataFrame(harm).groupby(rows["start"]).any().sum().to_dict()


def drive(commit: Any, *arguments: Any) -> None:
    """Be a driver process that commits its batches in this way."""
    PartialReplay._commit = commit
    drivers.drive(*arguments)


def commit_in_steps(self: PartialReplay, checkpoint: Checkpoint, record: IntervalRecord) -> None:
    """Commit as the library does, and pass a point inside the transaction."""
    write_checkpoint = state._replace_checkpoint

    def write(*arguments: Any) -> None:
        write_checkpoint(*arguments)
        self.passes("written", record.batch)

    with mock.patch.object(state, "_replace_checkpoint", write):
        COMMIT(self, checkpoint, record)


def sums_first(self: PartialReplay, checkpoint: Checkpoint, record: IntervalRecord) -> None:
    """The broken control that doubles: an interval's sums are stored before its position."""
    self.store.save(replace(checkpoint, position=record.start))
    self.passes("between", record.batch)
    COMMIT(self, checkpoint, record)


def position_first(self: PartialReplay, checkpoint: Checkpoint, record: IntervalRecord) -> None:
    """The broken control that loses: an interval's position is stored before its sums."""
    self.store.save(replace(self.checkpoint, position=checkpoint.position))
    self.passes("between", record.batch)
    COMMIT(self, checkpoint, record)
