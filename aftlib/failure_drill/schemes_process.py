"""The schemes whose processes need no Spark: D2's driver, D3's servers and tasks, D4's nodes."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.driver import driver_command, passed_points, run_process, write_task
from aftlib.checkpoint_planning.experiments.costs import stream_rates
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME, RecoveryTime
from aftlib.checkpoint_planning.state import CheckpointStore
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.failure_drill.metrics import Run, folder_bytes
from aftlib.failure_drill.schedule import DIGITS, Drill, worker_of
from aftlib.shared_state.job import Account, Job
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.supervisor import run_job
from aftlib.shared_state.tuplelog import TupleLog
from aftlib.spark.faults import Fault, Injector
from aftlib.upstream_backup.closed_form import traffic
from aftlib.upstream_backup.failures import Failure, drawn_phases
from aftlib.upstream_backup.parameters import MS, NODES, Parameters
from aftlib.upstream_backup.processes import deliver
from aftlib.upstream_backup.recursion import Recovery, simulate
from aftlib.upstream_backup.schemes import ACTIVE, PASSIVE, PROPOSED, UPSTREAM, Scheme

METHODS = {"D2 proposed": "proposed", "D2 adaptive": "adaptive"}
SHARED, SUPERVISOR = "D3 shared state", "D3, its supervisor killed"
STANDBY = (PASSIVE, ACTIVE, UPSTREAM, PROPOSED)
REAL = (UPSTREAM, PROPOSED)
"""D4's schemes that run as real processes."""
NO_CHECKPOINTS = "no checkpoints"
D2_WINDOW = 10_000
"""Steps of a window in D2's experiments."""
TUPLES = RecoveryTime(0, 1)
"""Counts tuples instead of milliseconds: T_SLA is then the number that may be read again."""
SERVERS, TASKS = 2, 2
READS = 100
"""Batches in which a task of D3 reads its partition."""
RATE, STEADY_MS = 1000.0, 2000.0
"""Tuples per second of D4's simulated stream, and when it is in its steady state."""
EMITTED = ["window", "sensor", "value", "estimated"]


def run_to_end(
    command: Sequence[str], injector: Injector, env: Mapping[str, str] | None = None
) -> None:
    """Run a process, and restart it after each kill of a schedule, until it ends by itself."""
    with injector.resuming():
        injected = -1
        while injector.count > injected:
            injected = injector.count
            if run_process(command, (0, -signal.SIGKILL), env) == 0:
                return
    raise RuntimeError("driver must be killed by the schedule only, got a SIGKILL from elsewhere")


def partial_replay(drill: Drill, directory: Path, name: str, budget: int) -> Run:
    """Run D2's driver over the drill's log with a method of `METHODS`.

    `budget` is the number of samples that may be read again after a failure. Errors as
    `run_process`.
    """
    width, method = drill.windows.width, METHODS[name]
    query = ReplayQuery(drill.model, width, drill.requirement, TUPLES, budget, method)
    injector = Injector(directory / "faults", drill.aimed(lambda _: "driver"))
    write_task(directory, query, drill.log)
    start = time.time()
    run_to_end(driver_command(directory, "bare", injector.schedule), injector)

    store = CheckpointStore(directory / "state.sqlite", query.fingerprint)
    records, points = store.records(), passed_points(directory)
    again = [r for r in records if r.recovered]
    last = {(point, batch): at for point, batch, at in points}
    stops, committed = np.array([(r.stop, last["committed", r.batch]) for r in records]).T
    marks = np.arange(drill.every, drill.log.steps + 1, drill.every)
    reached = committed[np.searchsorted(stops, marks)]
    return Run(
        emitted=emitted_results(store, drill.log, width),
        read_again=sum(r.sensors * (r.stop - r.start) for r in again),
        faults=injector.count,
        stored_bytes=folder_bytes([*directory.glob("state*"), directory / "prepared"]),
        measures=replay_shares(query, again)
        | checkpoint_time(last, [r.batch for r in records if not r.recovered]),
        progress=[(0, start), *zip(marks.tolist(), reached.tolist(), strict=True)],
        recoveries=driver_recoveries(points),
    )


def replay_shares(query: ReplayQuery, recovered: Sequence) -> dict[str, float]:
    """Return the shares of an exact replay's samples that the plan and the recoveries replay."""
    plan, n = query.first_plan, query.model.size
    planned_by_step = np.repeat([len(r.sensors) for r in plan.replay], np.diff(plan.times))
    steps = [np.arange(r.start, r.stop) % query.window for r in recovered]
    exact = n * sum(map(len, steps))
    planned = sum(int(planned_by_step[s].sum()) for s in steps)
    read = sum(r.sensors * (r.stop - r.start) for r in recovered)
    return {"planned": planned / exact, "read": read / exact}


def checkpoint_time(last: Mapping[tuple[str, int], float], calm: Sequence[int]) -> dict[str, float]:
    """Median time of a checkpoint in ms over undisturbed batches, from the recorded points."""

    def between(begin: str, end: str) -> np.ndarray:
        return np.array([last[end, batch] - last[begin, batch] for batch in calm])

    checkpoints = between("begun", "restored") + between("estimated", "planned")
    return {"checkpoint_ms": 1e3 * float(np.median(checkpoints))}


def long_windows(directory: Path, seed: int, turns: int = 20) -> pd.DataFrame:
    """Elapsed times of a window of D2's experiment while nothing fails, in `stream_rates`' form.

    A window has 100 sensors × 10,000 steps, ε = 0.12, δ = 0.05, T_SLA = 50 ms. In this process,
    each of `METHODS`, and a run without checkpoints inside the window, take turns.
    """
    model = block_model(100, 5, variance=60, covariance=30)
    log = SensorLog.write(directory / "log", draw(model, D2_WINDOW, seed), model.names)
    common = model, D2_WINDOW, Requirement(0.12, 0.05)
    queries = {NO_CHECKPOINTS: ReplayQuery(*common, TUPLES, D2_WINDOW * model.size)}
    for name, method in METHODS.items():
        queries[name] = ReplayQuery(*common, DOCUMENT_RECOVERY_TIME, 50.0, method)
    return stream_rates(queries, log, directory, repeats=turns)


def driver_recoveries(points: Sequence[tuple[str, int, float]]) -> pd.DataFrame:
    """Times of D2's recoveries: from the kill until a process has loaded, then to its commit."""
    starts = [i for i, (point, _, _) in enumerate(points) if point == "loaded"]
    rows = []
    for begin in starts[1:]:
        _, batch, killed = points[begin - 1]
        loaded = points[begin][2]
        committed = (at for *point, at in points[begin:] if point == ["committed", batch])
        done = next(committed, float("nan"))
        rows.append({"restart_ms": 1e3 * (loaded - killed), "rework_ms": 1e3 * (done - loaded)})
    return pd.DataFrame(rows)


def emitted_results(store: CheckpointStore, log: SensorLog, width: int) -> pd.DataFrame:
    """Results of D2's store in the form of `Run.emitted`."""
    number = {name: i for i, name in enumerate(log.names)}
    results = store.results()
    rows = [(r.start // width, number[r.key], r.value, r.half_width > 0) for r in results]
    return pd.DataFrame(rows, columns=EMITTED)


def shared_state(
    drill: Drill, directory: Path, compared: bool = True, supervisor: bool = False
) -> Run:
    """Run D3's job over the drill's stream; a task reads the sensors of one worker.

    With `supervisor`, the supervisor is killed once it has restarted the first failed process. With
    `compared`, an undisturbed job runs afterwards, and recovery_ms is the time that a fault adds.
    """
    texts = [partition(drill, keys) for keys in drill.assignment.workers]
    log = TupleLog.write(directory / "log", texts)
    above = (Fault("kill", "supervisor", 1, "restarted"),) if supervisor else ()
    job = Job(
        log,
        Rules(drill.windows, drill.windows.width),
        directory / "job",
        servers=SERVERS,
        tasks=TASKS,
        batch=-(-log.tuples // log.partitions // READS),
        checkpoint_s=0.05,
        faults=(*faults_of_job(drill), *above),
    )
    with job.injector.resuming():
        account = run_until_done(job)
    measures = dict[str, float]()
    if compared:
        undisturbed = run_job(replace(job, directory=directory / "undisturbed", faults=()))
        added = account.seconds - undisturbed.seconds
        measures["recovery_ms"] = 1e3 * added / max(1, job.injector.count)
    return Run(
        emitted=emitted_sums(drill, job.output),
        read_again=sum(account.read_again.values()),
        faults=job.injector.count,
        stored_bytes=folder_bytes([job.directory]),
        measures=measures,
    )


def killed_supervisor(drill: Drill, directory: Path) -> Run:
    """Run D3's job; a task is killed, and then the supervisor that has restarted it."""
    return shared_state(replace(drill, schedule=(drill.kills[0],)), directory, supervisor=True)


def run_until_done(job: Job) -> Account:
    """Run a job to its end; when a fault kills its supervisor, start another one."""
    above = tuple(fault for fault in job.faults if fault.target == "supervisor")
    injector = Injector(job.injector.directory, above)
    while True:
        injected = injector.count
        try:
            return run_job(job)
        except RuntimeError:
            if injector.count == injected:
                raise


def faults_of_job(drill: Drill) -> tuple[Fault, ...]:
    """The schedule for D3's processes: a worker's task, or its server for kills of odd events.

    A restarted process counts its steps from 0, so the faults of one process are spread over its
    work.
    """
    faults = list[Fault]()
    for fault in drill.schedule:
        server, worker = worker_of(fault) % SERVERS, worker_of(fault)
        task = f"task-{server}-{worker // SERVERS % TASKS}"
        at_server = fault.event % 2 and fault.kind == "kill"
        target, point = (f"server-{server}", "merged") if at_server else (task, "read")
        faults.append(replace(fault, target=target, point=point))
    total, earlier = Counter(fault.target for fault in faults), Counter[str]()
    for i, fault in enumerate(faults):
        step = READS // (2 * total[fault.target] + 2) + earlier[fault.target]
        faults[i] = replace(fault, step=step)
        earlier[fault.target] += 1
    return tuple(faults)


def partition(drill: Drill, keys: Sequence[int]) -> bytes:
    """The samples of some sensors as lines ``step,sensor,thousandths``."""
    values = np.rint(drill.samples[:, list(keys)] * DIGITS).astype(int)
    steps, sensors = np.repeat(np.arange(drill.log.steps), len(keys)), [*keys] * drill.log.steps
    rows = zip(steps.tolist(), sensors, values.ravel().tolist(), strict=True)
    return b"".join(b"%d,%d,%d\n" % row for row in rows)


def emitted_sums(drill: Drill, output: Path) -> pd.DataFrame:
    """Read D3's window files in the form of `Run.emitted`: their fixed-point sums become means."""
    names, width = ["start", "sensor", "total"], drill.windows.width
    files = [pd.read_csv(path, header=None, names=names) for path in output.glob("window-*.csv")]
    sums = pd.concat([pd.DataFrame(columns=names, dtype=int), *files], ignore_index=True)
    emitted = sums.assign(
        window=sums["start"] // width, value=sums["total"] / DIGITS / width, estimated=False
    )
    return emitted[EMITTED]


def standby(drill: Drill, scheme: Scheme) -> Run:
    """Send one tuple per step through D4's real processes; faults of worker w hit node w mod 2."""
    schedule = drill.aimed(lambda worker: NODES[worker % 2])
    delivery = deliver(scheme, drill.log.steps, schedule)
    counts = np.bincount(delivery.released, minlength=drill.log.steps)
    width = drill.windows.width
    windows = counts[: len(counts) // width * width].reshape(-1, width)
    detected = [r for r in delivery.requests if r.unnoticed_ms is not None]
    recoveries = {
        "restart_ms": [r.unnoticed_ms for r in detected],
        "rework_ms": [r.recovery_ms for r in detected],
    }
    return standby_run(
        drill,
        tuples=drill.log.steps,
        lost=int((windows == 0).any(axis=1).sum()),
        doubled=int((windows > 1).any(axis=1).sum()),
        read_again=sum(len(r.resent) for r in delivery.requests),
        faults=delivery.faults,
        recoveries=pd.DataFrame(recoveries, dtype=float),
    )


def simulated_standby(drill: Drill, scheme: Scheme, seed: int) -> Run:
    """Simulate D4: the primary fails once per kill of the schedule, each in a stream of its own."""
    kills, parameters = drill.kills, Parameters(rate=RATE)
    recoveries, lost = list[Recovery](), 0
    for fault, phase in zip(kills, drawn_phases(len(kills), seed), strict=True):
        at = STEADY_MS + 2000.0 * fault.step / drill.log.steps
        stream = simulate(replace(parameters, phases=phase), scheme, [Failure(at)])
        recoveries += stream.recoveries
        lost += int((stream.copies == 0).sum())
    times = {
        "restart_ms": [(r.downtime.detected - r.downtime.crash) / MS for r in recoveries],
        "rework_ms": [r.caught_up_ms for r in recoveries],
    }
    return standby_run(
        drill,
        tuples=round(len(kills) * (STEADY_MS + 2000.0) * RATE / 1000),
        lost=lost,
        doubled=0,
        read_again=sum(len(r.resent) for r in recoveries),
        faults=len(kills),
        recoveries=pd.DataFrame(times, dtype=float),
        basis="simulated",
        overhead=float(traffic(parameters, scheme).relative),
    )


def standby_run(
    drill: Drill,
    *,
    tuples: int,
    lost: int,
    doubled: int,
    read_again: int,
    faults: int,
    recoveries: pd.DataFrame,
    **measures: object,
) -> Run:
    """Return a run of D4; a window is lost or doubled for all sensors at once."""
    n = drill.model.size
    counts: dict = {"due": tuples // drill.windows.width * n, "rows": tuples * n}
    counts |= {"lost": lost * n, "doubled": doubled * n, "estimated": 0, "wrong": 0}
    return Run(
        emitted=None,
        read_again=read_again * n,
        faults=faults,
        stored_bytes=float("nan"),
        measures=counts | measures,
        recoveries=recoveries,
    )
