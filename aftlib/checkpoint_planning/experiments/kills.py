"""Drivers killed by SIGKILL, and the times of the processes that recover after them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.driver import driver_command, passed_points, run_process, write_task
from aftlib.checkpoint_planning.experiments.costs import fit_recovery_time
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.state import CheckpointStore
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.faults import Fault
from aftlib.spark.java import short_lived

PHASES = ("python_ms", "open_ms", "recovery_ms", "commit_ms", "plan_ms")
"""From the start of the new process: Python and its imports; opening the state; T_rec itself;
committing the recovered interval; and then planning the rest of the window."""
LEAST_PILOTS = 3
"""Fewest pilot kills for a fit, under each of two queries."""


def restarts(
    query: ReplayQuery,
    log: SensorLog,
    scratch: Path,
    count: int,
    seed: int,
    kind: str = "bare",
) -> pd.DataFrame:
    """Kill drivers by SIGKILL in the middle of a batch; time the processes that recover the batch.

    A driver is killed after it has read the tuples of an interval and before it commits them. The
    next driver starts at once, so the time to detect a failure is not measured. It recovers the
    interval, continues and is killed in the next window. After the log's last window a new stream
    begins. If possible, kills hit intervals in which the plan estimates some sensors, and which
    T_SLA ends before their window ends. "bare" drivers have no Spark, "spark" drivers run the
    stream on Spark; both recover in the same way.

    One row per kill: kind, trial, batch, stop: the interval's last step, window, sensors: those
    replayed, of all `n`, tuples, the milliseconds of `PHASES`, t_sla_ms, total_ms: T_rec, and
    all_ms from the start of the new process to its commit. RuntimeError when a process does not end
    by its SIGKILL. On a cluster the drivers use the cores of this process's session.
    """
    rng, plan, n = np.random.default_rng(seed), query.first_plan, query.model.size
    partial = [k for k, replay in enumerate(plan.replay) if 0 < len(replay.sensors) < n]
    partial = [k for k in partial if plan.times[k + 1] < query.window] or partial
    chain, rows = log.steps // query.window, list[dict[str, float | str]]()
    while len(rows) < count:
        directory, starts = scratch / f"{kind}-{len(rows)}", list[float]()
        write_task(directory, query, log)
        hit = rng.choice(partial or len(plan.replay), min(chain, count - len(rows)))
        faults = [
            Fault("kill", "driver", window * query.window + plan.times[k])
            for window, k in enumerate(hit)
        ]
        for fault in [*faults, Fault("kill", "driver", 0, "planned")]:
            starts.append(killed_driver(directory, kind, fault))
        rows += phase_timings(directory, query, starts[1:])
    frame = pd.DataFrame(rows).assign(kind=kind, n=n, t_sla_ms=query.t_sla_ms)
    return frame.assign(trial=range(count), window=query.window)


def query_from_kills(
    queries: Sequence[ReplayQuery],
    log: SensorLog,
    scratch: Path,
    seed: int,
    tuples: int,
    count: int,
) -> tuple[ReplayQuery, float]:
    """Return a query with the recovery time of new processes, and the ms in which 99 % start.

    Drivers of the first and the last query are killed, at least `count` in all, and (24) is fitted
    to the times of the processes that recover. With fewer pilot kills, several of `count` later
    kills would often be slower than the slowest pilot. T_SLA is the time to replay `tuples` tuples,
    at least those of one step, so that intervals end because of T_SLA.
    """
    pilots = [
        restarts(query, log, scratch / str(i), max(LEAST_PILOTS, -(-count // 2)), seed)
        for i, query in enumerate((queries[0], queries[-1]))
    ]
    recovered = pd.concat(pilots)
    cost = fit_recovery_time(recovered).recovery_time
    start_ms = (recovered["all_ms"] - recovered["total_ms"]).quantile(0.99)
    limit = cost(max(tuples, queries[0].model.size))
    query = replace(queries[0], recovery_time=cost, t_sla_ms=limit)
    return query, float(start_ms)


def phase_timings(
    directory: Path, query: ReplayQuery, starts: Sequence[float]
) -> Iterator[dict[str, float | str]]:
    """Yield phase timings of a stream's processes, except the first; `starts`: start times (s).

    A row has batch, sensors, tuples, the milliseconds of `PHASES`, total_ms and all_ms.
    """
    store = CheckpointStore(directory / "state.sqlite", query.fingerprint)
    records = {record.batch: record for record in store.records()}
    processes = list[dict[str, float]]()
    for point, batch, when in passed_points(directory):
        if point == "loaded":
            processes.append({point: when})
        elif processes[-1].setdefault("batch", batch) == batch:  # its first batch only
            processes[-1][point] = when
    for start, at in zip(starts, processes[1:], strict=True):
        record = records[int(at["batch"])]
        total = record.res_ms + record.rep_ms + record.est_ms
        ends = [start, *(at[p] for p in ("loaded", "estimated", "committed", "planned"))]
        python, until, commit, planning = np.diff(ends) * 1e3
        phases = zip(PHASES, (python, until - total, total, commit, planning), strict=True)
        tuples = record.sensors * (record.stop - record.start)
        about = {"batch": record.batch, "stop": record.stop}
        about |= {"sensors": record.sensors, "tuples": tuples}
        yield about | dict(phases) | {"total_ms": total, "all_ms": python + until + commit}


def killed_driver(directory: Path, kind: str, fault: Fault) -> float:
    """Run a driver that a fault kills; return the driver's start time in s since the epoch."""
    start = time.time()
    command = driver_command(directory, kind, [fault])
    run_process(command, (-signal.SIGKILL,), short_lived())
    return start
