"""A driver to be killed: streams a log by partial replay, and kills itself at a given point.

python -m tests.crash.replay_driver DIRECTORY {bare,spark} {sound,split} [POINT BATCH]
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.documents.checkpoint_planning import operator, pipeline
from aftlib.documents.checkpoint_planning.operator import ReplayQuery
from aftlib.documents.checkpoint_planning.plan import RecoveryTime
from aftlib.documents.checkpoint_planning.state import CheckpointStore
from aftlib.spark.faults import Fault, Injector

MODEL = block_model(8, 2, 4.0, 3.0, mean=5.0)
WINDOW = 60
WINDOWS = 3
QUERY = ReplayQuery(MODEL, WINDOW, Requirement(0.3, 0.05), RecoveryTime(1.0, 0.01), 1.5)
BATCHES = WINDOWS * len(QUERY.first_plan.replay)


def write_log(directory: Path, windows: int = WINDOWS) -> SensorLog:
    """The log that all drivers of a trial stream."""
    return SensorLog.write(directory / "log", draw(MODEL, WINDOW * windows, 2), MODEL.names)


class SplitStore(CheckpointStore):
    """A broken control: sums in one transaction, the batch that they stand for in the next."""

    passes = staticmethod(lambda point, batch: None)

    def commit(self, checkpoint, results, record) -> None:
        before = self.restore()
        if before is not None and before.window_start == checkpoint.window_start:
            behind = replace(checkpoint, position=before.position, times=before.times)
            self.save(behind)
            self.passes("split", record.batch)
        super().commit(checkpoint, results, record)


def main(place: str, kind: str, store: str, point: str = "", batch: str = "0") -> None:
    """Stream what is left of the log; SIGKILL this process at a point of a batch."""
    directory = Path(place)
    fault = Fault(step=int(batch), point=point)
    injector = Injector(Path(tempfile.mkdtemp(dir=directory)), (fault,))

    def reach(point: str, batch: int) -> None:
        injector.reach("driver", batch, point)

    log = SensorLog.open(directory / "log")
    if store == "split":
        SplitStore.passes = staticmethod(reach)
        operator.CheckpointStore = SplitStore
    if kind == "spark":
        from aftlib.spark.session import session

        pipeline.replay_stream(session("crash"), QUERY, log, directory, reach)
    else:
        with operator.driver(QUERY, log, directory, reach) as replay:
            replay.finish(operator.bare_read(log))


if __name__ == "__main__":
    main(*sys.argv[1:])
