"""D3's servers and tasks under the schedule: sums in stores that survive whoever merged them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL, SIGSTOP

import numpy as np
import pandas as pd

from aftlib.failure_drill.drill import DIGITS, STALLS, Drill, Run, folder_bytes
from aftlib.shared_state.job import Account, Job
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.supervisor import run_job
from aftlib.shared_state.tuplelog import TupleLog
from aftlib.spark.faults import Fault, woken

SHARED = "D3 shared state"
SERVERS, TASKS = 2, 2
PIECES = 100
"""Batches that each task reads its partition in."""


def share(drill: Drill, directory: Path, compared: bool = True, supervisor: bool = False) -> Run:
    """Run D3's job over the drill's stream, struck as scheduled.

    Every other event strikes the server of the store, a stall always a task. The `supervisor` dies,
    if it is to, as soon as it has started the first of the dead again. Where it is `compared` with
    an undisturbed run, recovery_ms is what a strike adds to the time of that.

    A partition has the sensors of one worker, and a task reads it.
    """
    texts = [partition(drill, keys) for keys in drill.assignment.workers]
    log = TupleLog.write(directory / "log", texts)
    batch = -(-log.tuples // log.partitions // PIECES)
    notes = directory / "strikes"
    above = [Fault(notes, "supervisor restarted", 1)] if supervisor else []
    job = Job(
        log,
        Rules(drill.windows, drill.windows.width),
        directory / "job",
        servers=SERVERS,
        tasks=TASKS,
        batch=batch,
        checkpoint_s=0.05,
        faults=(*faults(drill, notes), *above),
    )
    with woken(notes / STALLS, drill.stall_s):
        account, more = run_again(job), dict[str, float]()
    fallen = len([*notes.rglob("fault-*.json")])
    if compared:
        calm = run_job(replace(job, directory=directory / "calm", faults=()))
        more["recovery_ms"] = 1e3 * (account.seconds - calm.seconds) / max(1, fallen)
    return Run(
        put_out(drill, job.output),
        sum(account.read_again.values()),
        fallen,
        folder_bytes([job.directory]),
        more,
    )


def run_again(job: Job) -> Account:
    """Run a job to its end; when its supervisor falls to a fault, by another one."""
    above = [fault for fault in job.faults if fault.point.startswith("supervisor ")]
    while True:
        fallen = [fault.note.exists() for fault in above]
        try:
            return run_job(job)
        except RuntimeError:
            if fallen == [fault.note.exists() for fault in above]:
                raise


def partition(drill: Drill, keys: tuple[int, ...]) -> bytes:
    """The samples of some sensors as lines ``step,sensor,thousandths``."""
    values = np.rint(drill.samples[:, list(keys)] * DIGITS).astype(int)
    steps, sensors = np.repeat(np.arange(drill.log.steps), len(keys)), [*keys] * drill.log.steps
    rows = zip(steps.tolist(), sensors, values.ravel().tolist(), strict=True)
    return b"".join(b"%d,%d,%d\n" % row for row in rows)


def faults(drill: Drill, notes: Path) -> list[Fault]:
    """The schedule's strikes, a task's or its server's in turn.

    A point is counted by each process anew, so the strikes of one are spread evenly over its work.
    """
    whom = [
        f"server-{s.worker % SERVERS} merged"
        if s.number % 2 and s.kills
        else f"task-{s.worker % SERVERS}-{s.worker // SERVERS % TASKS} read"
        for s in drill.strikes
    ]
    total, so_far, found = Counter(whom), Counter[str](), []
    for point, strike in zip(whom, drill.strikes, strict=True):
        at = PIECES // (2 * total[point] + 2) + so_far[point]
        place, how = (notes, SIGKILL) if strike.kills else (notes / STALLS, SIGSTOP)
        found.append(Fault(place, point, at, how))
        so_far[point] += 1
    return found


def put_out(drill: Drill, output: Path) -> pd.DataFrame:
    """The windows' files in the drill's words: a sum of thousandths becomes a mean."""
    lines = [
        tuple(map(int, line.split(",")))
        for path in sorted(output.glob("window-*.csv"))
        for line in path.read_text().splitlines()
    ]
    start, sensor, total = np.array(lines, dtype=np.int64).reshape(-1, 3).T
    width = drill.windows.width
    return pd.DataFrame(
        {
            "window": start // width,
            "sensor": sensor,
            "value": total / DIGITS / width,
            "estimated": False,
        }
    )
