"""D2's process under kills: it has all sensors, and its replacement reads few of them again.

The exact process takes the same checkpoints, but its replacement reads all sensors again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib import RecoveryTime
from aftlib.approximately_once.worker import FORKS
from aftlib.checkpoint_planning.operator import ReplayQuery, bare_read, prepare
from aftlib.checkpoint_planning.state import CheckpointStore
from aftlib.core.gaussian import GaussianModel
from aftlib.core.sensorlog import SensorLog
from aftlib.does_it_pay.cases import Case, Kill
from aftlib.does_it_pay.workers import PARTS

FORKS.set_forkserver_preload([__name__])
EXACT_PROCESS, PARTIAL = "exact replay, D2's checkpoints", "D2"
SAMPLES = RecoveryTime(0, 1)
"""Counts samples instead of milliseconds: T_SLA is then the number that may be read again."""
_POINTS = ["restored", "replayed", "estimated", "committed"]
_BEFORE, _AFTER = "replayed", "committed"


def replay_query(case: Case) -> ReplayQuery:
    """Return D2's query.

    The model of a step is chosen so that windows have the case's model, even if steps depend on
    each other.
    """
    width, model = case.windows.width, case.model
    step = GaussianModel(model.mean, model.covariance * width, model.names)
    budget = max(model.size, int(case.budget * width * model.size))
    return ReplayQuery(step, width, case.requirement, SAMPLES, budget)


def run(
    pipe: Connection,
    directory: Path,
    log: SensorLog,
    query: ReplayQuery,
    exact: bool,
    kill: tuple[str, int] | None,
    rate: float,
) -> None:
    """Recover the batch of a crashed process at a read rate, then stream the rest of the log.

    At `kill`, a point and a step, it waits to be killed. Sends (point, begin, stop, sensors read,
    time) for each point that a batch passes.
    """
    waits, sensors_read = False, 0

    def passes(point: str, batch: int) -> None:
        here = begin, stop = bounds
        pipe.send((point, *here, sensors_read, time.monotonic()))
        if kill is not None and point == kill[0] and begin <= kill[1] < stop and waits:
            pipe.recv()

    operator = prepare(query, log, directory, passes)
    if exact:
        operator.process_id = "exact"  # a process with the crashed one's id reads all sensors
    read_log = bare_read(log)
    bounds = (0, 0)

    def read(sensors: Sequence[int], begin: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        nonlocal sensors_read
        sensors_read = len(sensors)
        sums = read_log(sensors, begin, stop)
        if not waits:
            time.sleep(len(sensors) * (stop - begin) / rate)
        return sums

    end = log.steps - log.steps % query.window
    unfinished = operator.store.unfinished(operator.checkpoint.position)
    batch = len(operator.store.records()) if unfinished is None else unfinished
    waits = unfinished is None
    while operator.checkpoint.position < end:
        bounds = operator.checkpoint.position, operator.checkpoint.next_boundary
        operator.process(batch, read)
        waits, batch = True, batch + 1
    pipe.send(None)


def recover_partially(
    case: Case, scheme: str, directory: Path, schedule: Sequence[Kill]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Stream a case by D2's process under a schedule of kills; the frames of `recover_workers`.

    It is killed in the interval with most samples to read again, when the interval is read but not
    committed, or after the commit. `scheme` is `PARTIAL` or `EXACT_PROCESS`.
    """
    query, width = replay_query(case), case.windows.width
    log, state = case.write_log(directory / "log"), directory / "state"
    plan = query.first_plan
    worst = plan.times[int(np.argmax(plan.tuples))]
    rows, killed_s, rate = [], np.nan, np.inf
    about: dict[str, float] = {}
    for kill in [*schedule, None]:
        point = None
        if kill is not None:
            point = (_AFTER if kill.emitted else _BEFORE, kill.window * width + worst)
        ours, theirs = FORKS.Pipe()
        arguments = theirs, state, log, query, scheme == EXACT_PROCESS, point, rate
        process = FORKS.Process(target=run, args=arguments)
        process.start()
        theirs.close()
        messages = _receive_until(ours, point)
        if about:
            rows.append(about | _recovery(messages, killed_s, emitted=bool(about["emitted"])))
        rows += _undisturbed(messages[len(_POINTS) :])
        if kill is not None:
            killed_s = time.monotonic()
            process.kill()
            about = {"window": kill.window, "rate": kill.rate, "emitted": kill.emitted}
            rate = kill.rate
        process.join()
        ours.close()
    results = CheckpointStore(state / "state.sqlite", query.fingerprint).results()
    number = {name: i for i, name in enumerate(case.model.names)}
    emitted = [(r.start // width, number[r.key], r.value, r.half_width > 0) for r in results]
    columns = ["window", "sensor", "value", "estimated"]
    return pd.DataFrame(rows), pd.DataFrame(emitted, columns=columns)


Message = tuple[str, int, int, int, float]


def _receive_until(pipe: Connection, kill: tuple[str, int] | None) -> list[Message]:
    """Return the messages of a process until it waits to be killed, or ends."""
    messages = list[Message]()
    while (message := pipe.recv()) is not None:
        if message[0] in _POINTS:
            messages.append(message)
        point, begin, stop = message[:3]
        if kill is not None and point == kill[0] and begin <= kill[1] < stop:
            break
    return messages


def _recovery(messages: Sequence[Message], killed_s: float, emitted: bool) -> dict[str, float]:
    """Return the times of a recovery from the first batch of a replacement."""
    first = messages[: len(_POINTS)]
    clock = [killed_s, *(message[-1] for message in first)]
    parts = dict(zip(PARTS, np.diff(clock).tolist(), strict=True))
    _, begin, stop, sensors, _ = first[1]
    again = 0 if emitted else sensors * (stop - begin)
    return {"seconds": clock[-1] - killed_s, **parts, "again": again}


def _undisturbed(messages: Sequence[Message]) -> list[dict[str, float]]:
    """Return a row for each batch without a failure: the time of its commit."""
    return [
        {"rate": np.nan, "emitted": False, "commit_s": end[-1] - begin[-1]}
        for begin, end in pairwise(messages)
        if end[0] == _AFTER
    ]
