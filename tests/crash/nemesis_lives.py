"""One life of a job of the nemesis: it goes on where the last one ended.

python -m tests.crash.nemesis_lives PACKAGE DIRECTORY 'SETTINGS as JSON'
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from aftlib.core.paths import atomic_file
from aftlib.core.sensorlog import SensorLog
from aftlib.exponential_histogram import ExponentialHistogram
from aftlib.spark.faults import schedule_from_json
from tests.crash.nemesis_jobs import Histogram, Standby, bits_of, stage_of

Told = dict[str, Any]


def begin(place: Path) -> None:
    """Say that all is imported, and the work begins."""
    with suppress(OSError):  # of a full disk the job itself must tell
        (place / "began").touch()


def live_shared_state(directory: Path, place: Path, told: Told) -> None:
    from aftlib.shared_state import output, supervisor
    from aftlib.shared_state.aggregates import Partials
    from aftlib.shared_state.server import Server
    from aftlib.shared_state.stores.sql import SqlTable

    if told["broken"] == "trusting":  # each server tells the global store where it stands
        merge = SqlTable.merge

        def merged(table, partials, progress, epoch=0, token=None):  # noqa: ANN001, ANN202
            bare = {p: replace(now, since=None) for p, now in progress.items()}
            return merge(table, partials, bare, epoch, token)

        def agreed(server):  # noqa: ANN001, ANN202
            handed = server.shared.committed().get(server.name, 0)
            with server.lock:
                known = server.reached([0, *(e for e in server.complete if e <= handed)])
            server.shared.merge(Partials.empty(1), known)
            return handed, known

        def link_if_new(draft, path):  # noqa: ANN001, ANN202
            with suppress(FileExistsError):
                os.link(draft, path)

        SqlTable.merge, Server.agreed = merged, agreed
        output.Output.require_files = lambda output: None
        output.os = SimpleNamespace(link=link_if_new, getpid=os.getpid)
    stage = stage_of(directory, place, told)
    supervisor.OTHERS_S = 3.0  # many rivals wait so long
    begin(place)
    supervisor.Supervisor(stage).run()


def live_checkpoint_planning(directory: Path, place: Path, told: Told) -> None:
    from aftlib.checkpoint_planning.pipeline import replay_in_process
    from tests.crash.replay_driver import QUERY

    log = SensorLog.open(directory / "log")
    begin(place)
    replay_in_process(QUERY, log, place, lambda point, batch: time.sleep(0.02))


def live_upstream_backup(directory: Path, place: Path, told: Told) -> None:
    from aftlib.upstream_backup.processes import deliver
    from aftlib.upstream_backup.schemes import PROPOSED, UPSTREAM

    scheme = {"upstream": UPSTREAM, "proposed": PROPOSED}[told["scheme"]]
    schedule = schedule_from_json(told["schedule"])
    begin(place)
    found = deliver(scheme, Standby.tuples, schedule, patience_s=20)
    with atomic_file(place / "released.json") as scratch:
        scratch.write_text(json.dumps({"released": found.released, "faults": found.faults}))


def live_exponential_histogram(directory: Path, place: Path, told: Told) -> None:
    job, state = Histogram, place / "state"
    bits = bits_of(job.batch * job.batches)
    histogram = ExponentialHistogram(job.window, job.epsilon)
    begin(place)
    if state.exists():
        histogram = ExponentialHistogram.from_bytes(state.read_bytes())
    for number in range((histogram.now or 0) // job.batch, job.batches):
        found = histogram.estimates(bits[number * job.batch : (number + 1) * job.batch])
        with atomic_file(place / f"answers-{number}.npy") as scratch:
            np.save(scratch, found)
        time.sleep(0.01)
        with atomic_file(state) as scratch:
            scratch.write_bytes(histogram.to_bytes())
        time.sleep(0.01)


def live_approximately_once(directory: Path, place: Path, told: Told) -> None:
    from pyspark import cloudpickle

    from aftlib.approximately_once import pipeline
    from aftlib.spark.session import session
    from tests.crash import test_approximately_once as d1

    cloudpickle.register_pickle_by_value(d1)
    pipeline.Worker = d1.Slow
    query = d1.query(SensorLog.open(directory / "log"))
    spark = session("nemesis")
    begin(place)
    pipeline.recover_stream(spark, query, place)
    spark.stop()


def main(package: str, directory: str, said: str) -> None:
    """Live once."""
    told = json.loads(said)
    place = Path(told.pop("place"))
    globals()[f"live_{package}"](Path(directory), place, told)


if __name__ == "__main__":
    main(*sys.argv[1:])
