"""A small job of each package that works on Spark; run as a program, on a cluster with faults.

python -m tests.spark.cluster_jobs DIRECTORY POSTGRES_URL

Writes the result of each job, and the killed processes, to the directory's `results.json`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession

from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.pipeline import Query, recover_stream
from aftlib.approximately_once.sink import Outage
from aftlib.checkpoint_planning.experiments.kills import restarts
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.pipeline import replay_stream
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.exponential_histogram.operator import HistogramQuery
from aftlib.exponential_histogram.pipeline import run
from aftlib.exponential_histogram.source import BitEvents
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.stores.postgres import PostgresTable
from aftlib.shared_state.strategies import merge_log
from aftlib.shared_state.sums import SUMS
from aftlib.shared_state.tuplelog import TupleStream, write_tuples
from aftlib.spark.faults import Fault, Injector
from aftlib.spark.sweep import write_samples

STOP = Fault("pause", "task-0", 10_000)
"""Pause of the task of D3 whose executor is then killed."""
Inject = Callable[[Path], None]


def _inject_none(markers: Path) -> None:
    """Inject no fault."""


def approximately_once(spark: SparkSession, place: Path) -> Any:
    """D1: three workers on a drawn log, one of which is lost and estimated."""
    model, windows, requirement = block_model(6, 2), Windows(100, 50), Requirement(1.0, 0.05)
    log = write_samples(spark, model, 8_000, 4, place / "log")
    of_windows = model.aggregate(windows.width)
    assignment = assign_spread(of_windows, 3, requirement)
    query = Query(log, windows, of_windows, assignment, requirement, every=4_000)
    done = recover_stream(spark, query, place / "d1", [Outage(1, 5_010, 5_400)])
    lost = [(o.worker, o.failure, o.recovery) for o in done.outages]
    return {"windows": done.windows.to_dict("list"), "outages": lost}


def checkpoint_planning(spark: SparkSession, place: Path, killed: str = "spark") -> Any:
    """D2: a window with planned checkpoints, and another driver killed in it and started again.

    The killed driver streams on Spark, or without Spark if `killed` is "bare".
    """
    model = block_model(8, 2, 4.0, 3.0, mean=5.0)
    log = SensorLog.write(place / "log", draw(model, 60, 2), model.names)
    query = ReplayQuery(model, 60, Requirement(0.3, 0.05), RecoveryTime(1.0, 0.01), 2.0)

    done = replay_stream(spark, query, log, place / "d2")
    restarted = restarts(query, log, place / "killed", 1, 1, kind=killed)
    results = [[r.start, r.key, r.value, r.half_width, r.samples] for r in done.results]
    return results, restarted[["batch", "sensors"]].to_dict("list")


def shared_state(spark: SparkSession, place: Path, url: str, inject: Inject = _inject_none) -> Any:
    """D3: tasks merge into one PostgreSQL, one of them stopped in the middle to be killed."""
    log = write_tuples(spark, TupleStream(60_000, keys=500, skew=1.2), 4, place / "tuples")
    fault = None if inject is _inject_none else STOP
    injector = Injector(place / "d3" / "faults")
    table = partial(PostgresTable, url, SUMS, schema=f"aft_{place.name.replace('-', '_')}")
    with after(lambda: not fault or injector.injected(fault), lambda: inject(place)):
        done = merge_log(
            spark, log, Rules(Windows(100, 40), delay=10), "late global", 2, place / "d3",
            table, every=2_000, fault=fault,
        )  # fmt: skip
    return [getattr(done.sums, name).tolist() for name in ("windows", "keys", "values")]


def exponential_histogram(spark: SparkSession, place: Path, inject: Inject = _inject_none) -> Any:
    """D5: one histogram per key over two micro-batches; a fault may follow the first."""
    events = BitEvents(0.3, None, 7, 4, 1_000, 500, 2).stream(spark)
    commits = place / "d5" / "checkpoint" / "commits"
    with after(lambda: (commits / "0").exists(), lambda: inject(place)):
        table = run(spark, events, HistogramQuery(400, 0.1), place / "d5", partitions=2)
    frame = table.toPandas().sort_values(["key", "at"])
    return frame.to_dict("list") | {"key": frame["key"].astype(str).tolist()}


@contextmanager
def after(ready: Callable[[], object], act: Callable[[], None]) -> Iterator[None]:
    """Act as soon as `ready` returns true, while the block runs."""
    over = threading.Event()

    def wait() -> None:
        while not ready():
            if over.wait(0.01):
                return
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def family(pid: int) -> list[tuple[int, str]]:
    """Return the process id and command of each descendant of a process."""
    listing = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
    known, descendants = {pid}, list[tuple[int, str]]()
    for _ in range(8):
        more = [(int(p), a[0] if a else "") for p, q, *a in rows if int(q) in known]
        descendants += [each for each in more if each[0] not in known]
        known |= {p for p, _ in more}
    return descendants


def listening(pids: Iterable[int]) -> Iterator[str]:
    """Addresses, as the kernel writes them in hexadecimal, on which processes listen."""
    inodes = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(entry)))
            except OSError:  # closed in the meantime
                continue
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[i] for i in (1, 3, 9))
            if state == "0A" and inode in inodes:
                yield local.split(":")[0]


LOOPBACKS = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def main(folder: str, url: str) -> None:
    """Run all jobs, with an executor killed in D3, and a worker in D5."""
    from aftlib.spark.cluster import LocalCluster
    from aftlib.spark.session import session

    place, kills = Path(folder), list[str]()

    def kill(pid: int, what: str) -> None:
        os.kill(pid, signal.SIGKILL)
        kills.append(what)

    with LocalCluster(workers=2, cores=1) as cluster:
        os.environ.update(cluster.environment)
        short = os.environ.get("SPARK_SUBMIT_OPTS", "")
        spark = session("cluster", **{"spark.executor.extraJavaOptions": short})

        def executor_of_the_stopped(place: Path) -> None:
            """Kill the JVM that waits for the stopped task, and then that task itself."""
            stopped = Injector(place / "d3" / "faults").injected(STOP)["pid"]
            of = {p: w.pid for w in cluster.workers for p, _ in family(w.pid)}
            executor = next(p for p, a in family(of[stopped]) if "CoarseGrained" in a)
            kill(executor, "executor in D3")
            os.kill(stopped, signal.SIGKILL)

        def worker(place: Path) -> None:  # noqa: ARG001
            kill(cluster.workers[1].pid, "worker in D5")

        jobs: dict[str, Callable[[Path], Any]] = {
            "D1": lambda at: approximately_once(spark, at),
            "D3": lambda at: shared_state(spark, at, url, executor_of_the_stopped),
            "D2": lambda at: checkpoint_planning(spark, at),
            "D5": lambda at: exponential_histogram(spark, at, worker),
        }
        results: dict[str, Any] = {}
        for name, job in jobs.items():
            at = time.time()
            (place / f"cluster-{name}").mkdir()
            results[name] = job(place / f"cluster-{name}")
            print(name, round(time.time() - at, 1), kills, flush=True)
        applications = {app.name for app in cluster.folder.glob("worker-*/app-*")}
        results |= {"kills": kills, "shipped": shipped(spark), "applications": len(applications)}
        spark.stop()
    (place / "results.json").write_text(json.dumps(results))


def shipped(spark: SparkSession) -> list[str]:
    """Return the files from which tasks import aftlib."""

    def look(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import aftlib.core.windows

        for _ in frames:
            yield pd.DataFrame({"at": [aftlib.core.windows.__file__]})

    return sorted({row.at for row in spark.range(4).mapInPandas(look, "at string").collect()})


if __name__ == "__main__":
    main(*sys.argv[1:])
