"""A separate driver process that streams a log by partial replay; it can be killed and restarted.

python -m aftlib.checkpoint_planning.driver DIRECTORY {bare,spark} [FAULTS as JSON]

If a fault has `point`, the place in the driver's work at which it hits, its `step` is a batch
number. Otherwise `step` is a step of the stream, and the fault is injected after the samples of
that step's batch are read.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from aftlib.checkpoint_planning.operator import ReplayQuery, prepare
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.state import Checkpoint, CheckpointStore
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.checkpoint import QueryDirectory
from aftlib.spark.faults import Fault, Injector, schedule_from_json, schedule_to_json

KINDS = ("bare", "spark")
_TASK, _PASSED = "task.npz", "passed.jsonl"
PATIENCE_S = 1800.0
"""Longest time that a driver may run, in seconds."""


def write_task(directory: Path, query: ReplayQuery, log: SensorLog) -> None:
    """Write a driver's task into a new directory: the model as arrays, the rest as JSON."""
    directory.mkdir(parents=True)
    rest = query.settings | {"names": query.model.names, "log": str(log.path.absolute())}
    arrays = {"mean": query.model.mean, "covariance": query.model.covariance}
    np.savez(directory / _TASK, allow_pickle=False, rest=np.array(json.dumps(rest)), **arrays)


def read_task(directory: Path) -> tuple[ReplayQuery, SensorLog]:
    """Read the task that `write_task` wrote."""
    with np.load(directory / _TASK, allow_pickle=False) as arrays:
        rest = json.loads(str(arrays["rest"]))
        model = GaussianModel(arrays["mean"], arrays["covariance"], rest.pop("names"))
    log, requirement = SensorLog.open(rest.pop("log")), Requirement(**rest.pop("requirement"))
    cost = RecoveryTime(**rest.pop("recovery_time"))
    return ReplayQuery(model, requirement=requirement, recovery_time=cost, **rest), log


def passed_points(directory: Path) -> list[tuple[str, int, float]]:
    """Points that the drivers in a directory passed: point, batch, seconds since the epoch."""
    lines = (directory / _PASSED).read_text().splitlines()
    return [(point, batch, at) for point, batch, at in map(json.loads, lines)]


def driver_command(directory: Path, kind: str, schedule: Sequence[Fault]) -> list[str]:
    """Command that starts a driver of the kind `kind`, one of `KINDS`, in a directory."""
    module = "aftlib.checkpoint_planning.driver"
    return [sys.executable, "-m", module, str(directory), kind, schedule_to_json(schedule)]


def run_process(
    command: Sequence[str], expected: Sequence[int] = (0,), env: Mapping[str, str] | None = None
) -> int:
    """Run a process and return its exit status.

    RuntimeError, with the end of its stderr, when its exit status is not `expected` or it does not
    end in time.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
    late = ""
    try:
        _, errors = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
        late = f" when it was killed after {PATIENCE_S:g} s"
    if late or process.returncode not in expected:
        raise RuntimeError(
            f"driver must end with status {' or '.join(map(str, expected))}, got "
            f"{process.returncode}{late}; the end of its stderr: "
            f"{errors.decode(errors='replace')[-500:]}"
        )
    return process.returncode


def main(place: str, kind: str, schedule: str = "[]") -> None:
    """Recover the batch of an earlier process, then stream the rest.

    Spark is loaded after the recovery is committed, so that T_rec does not include its start.
    """
    directory = Path(place)
    injector, step = Injector(directory / "faults", schedule_from_json(schedule)), 0
    query, log = read_task(directory)

    def passes(point: str, number: int) -> None:
        nonlocal step
        if point == "begun" and injector.schedule:  # before the time is taken
            store = CheckpointStore(directory / "state.sqlite", query.fingerprint)
            step = cast("Checkpoint", store.restore()).next_boundary - 1
        with (directory / _PASSED).open("a") as file:
            file.write(json.dumps([point, number, time.time()]) + "\n")
        injector.reach("driver", number, point)
        if point == "replayed":
            injector.reach("driver", step)

    passes("loaded", -1)
    with QueryDirectory(directory).locked():
        prepare(query, log, directory, passes).recover()

    from aftlib.checkpoint_planning.pipeline import replay_in_process, replay_stream
    from aftlib.spark.session import session

    if kind == "spark":
        replay_stream(session("partial replay"), query, log, directory, passes)
    else:
        replay_in_process(query, log, directory, passes)


if __name__ == "__main__":
    main(*sys.argv[1:])
