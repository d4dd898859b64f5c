"""A driver to be killed: it runs D3's servers on Spark.

python -m tests.crash.sharing_driver DIRECTORY
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from aftlib.documents.shared_state.kills import KILL_DISORDER, KILL_WINDOWS
from aftlib.documents.shared_state.parsing import TupleSource
from aftlib.documents.shared_state.server import Job
from aftlib.documents.shared_state.strategies import run_job
from aftlib.documents.shared_state.table import SqliteTable
from aftlib.documents.shared_state.tuples import TupleLog, TupleStream
from aftlib.spark.session import session

STREAM = TupleStream(1_000_000, 1_000, 1.2, seed=5, disorder=KILL_DISORDER)


def job_in(directory: Path) -> Job:
    """The job of a trial, whose batches are small, so that a kill comes into its middle."""
    source = TupleSource(TupleLog.open(directory / "log"), KILL_WINDOWS, KILL_DISORDER)
    table = partial(SqliteTable, directory / "shared.sqlite")
    return Job(source, directory / "job", table, servers=2, batch=200, checkpoint_s=0.02)


if __name__ == "__main__":
    run_job(session("to be killed"), job_in(Path(sys.argv[1])))
