"""A driver to be killed: streams a log by partial replay, and strikes itself where it is told.

python tests/crash/replay_driver.py DIRECTORY {bare,spark} {sound,split} [POINT BATCH]
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aftlib.checkpoint_planning import pipeline as partial_replay
from aftlib.checkpoint_planning.operator import Preparation, ReplayQuery
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.sqlite import SqliteCheckpoints
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog

MODEL = block_model(8, 2, 4.0, 3.0, mean=5.0)
WINDOW, WINDOWS = 60, 3
QUERY = ReplayQuery(MODEL, WINDOW, Requirement(0.3, 0.05), RecoveryTime(1.0, 0.01), 1.5)
BATCHES = WINDOWS * len(QUERY.first_plan.replay)


def write_log(directory: Path) -> SensorLog:
    """The log that all drivers of a trial stream."""
    return SensorLog.write(directory / "log", draw(MODEL, WINDOW * WINDOWS, 2), MODEL.names)


def striking(point: str | None, batch: int) -> Callable[[str, int], None]:
    """SIGKILL this very process when it passes a point of a batch."""

    def at(passed: str, number: int) -> None:
        if (passed, number) == (point, batch):
            os.kill(os.getpid(), signal.SIGKILL)

    return at


class SplitStore(SqliteCheckpoints):
    """A broken control: sums in one transaction, the batch that they stand for in the next."""

    at = staticmethod(striking(None, 0))

    def commit(self, checkpoint, results, record) -> None:  # noqa: ANN001
        before = self.restore()
        if before is not None and before.window == checkpoint.window:
            behind = replace(checkpoint, position=before.position, times=before.times)
            with self._connection as connection:
                self._write_state(connection, behind, [])
            self.at("split", record.batch)
        super().commit(checkpoint, results, record)


def main(place: str, kind: str, store: str, point: str | None = None, batch: str = "0") -> None:
    """Stream what is left of the log."""
    directory, at = Path(place), striking(point, int(batch))
    log = SensorLog.open(directory / "log")
    if store == "split":
        SplitStore.at = staticmethod(at)
        partial_replay.SqliteCheckpoints = SplitStore
    if kind == "spark":
        from aftlib.spark.session import session

        partial_replay.run(session("crash"), QUERY, log, directory, at)
    else:
        partial_replay.run_bare(QUERY, log, directory, at)


if __name__ == "__main__":
    assert Preparation  # imported before any strike
    main(*sys.argv[1:])
