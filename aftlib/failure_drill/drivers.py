"""D2's processes under the schedule: one adds up all sensors, dies, and a new one goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from itertools import takewhile
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.driver import passed, write_task
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.checkpoint_planning.state import CheckpointStore
from aftlib.core.sensorlog import SensorLog
from aftlib.failure_drill.drill import Drill, Run, folder_bytes
from aftlib.failure_drill.schedule import Strike

PROPOSED, ADAPTIVE = "D2 proposed", "D2 adaptive"
METHODS = {PROPOSED: "proposed", ADAPTIVE: "adaptive"}
POINTS = ("begun", "restored", "estimated", "committed", "planned")
PATIENCE_S = 300.0
TUPLES = RecoveryTime(0, 1)
"""Counts tuples instead of milliseconds: T_SLA is then how many may be read again."""
COMMAND = (sys.executable, "-m", "aftlib.checkpoint_planning.driver")


def replay(drill: Drill, name: str, budget: int, directory: Path) -> Run:
    """Run D2's processes over the drill's log by a method of `METHODS`, struck as scheduled.

    A failure may make `budget` samples be read again at most. Two workers at once are the one
    process that there is, struck once. RuntimeError when a process ends otherwise than by its
    signal, or does not come to its end.
    """
    query = ReplayQuery(
        drill.model, drill.windows.width, drill.requirement, TUPLES, budget, METHODS[name]
    )
    write_task(directory, query, drill.log)
    began, fallen, parts = time.time(), 0, list[dict]()
    strikes = list({strike.step: strike for strike in drill.strikes}.values())
    pending: tuple[Strike, int, float] | None = None  # the last death: its batch, and when
    while strikes or pending:
        stalls = list(takewhile(lambda s: not s.kills, strikes))
        kill = strikes[len(stalls)] if len(stalls) < len(strikes) else None
        strikes = strikes[len(stalls) + 1 :]
        batch = batch_at(query, directory, kill.step) if kill else 0
        at = [batch_at(query, directory, s.step) for s in stalls]
        life = begun(directory, "replayed" if kill else "", batch)
        fallen += sum(stalled(life, directory, number, drill.stall_s) for number in at)
        ended(life, -signal.SIGKILL if kill else 0)
        if pending:
            parts.append(cold(directory, *pending))
        pending = (kill, batch, time.time()) if kill else None
        fallen += kill is not None
    return judged(drill, query, directory, began, fallen, pd.DataFrame(parts))


def batch_at(query: ReplayQuery, directory: Path, step: int) -> int:
    """Number of the batch that will aggregate a step, as far as plans tell."""
    state = directory / "state.sqlite"
    store = CheckpointStore(state, query.fingerprint) if state.exists() else None
    found = store.restore() if store else None
    done, at = (len(store.records()) if store else 0), found.position if found else 0
    times = query.first_plan.times
    if found and found.position > found.window:
        rest = [t for t in found.times if t > at] or [found.window + query.window]
        if step < rest[-1]:
            return done + sum(t <= step for t in rest)
        done, at = done + len(rest), rest[-1]
    whole, within = divmod(max(step - at, 0), query.window)
    return done + whole * (len(times) - 1) + sum(t <= within for t in times[1:])


def begun(directory: Path, point: str = "", batch: int = 0) -> subprocess.Popen[bytes]:
    """A new process, that kills itself at a point of a batch; or at none."""
    command = [*COMMAND, str(directory), "bare", *([point, str(batch)] if point else [])]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def ended(process: subprocess.Popen[bytes], status: int) -> None:
    """Wait for a process; RuntimeError with its last words when it ended otherwise."""
    late = ""
    try:
        _, said = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
        late = f" when it was killed after {PATIENCE_S:g} s"
    if late or process.returncode != status:
        raise RuntimeError(
            f"driver must end with status {status}, got {process.returncode}{late}; its last "
            f"words: {said.decode(errors='replace')[-500:]}"
        )


def stalled(process: subprocess.Popen[bytes], directory: Path, batch: int, seconds: float) -> bool:
    """Stop a process for a while once a batch is committed; False when it had ended by then."""
    notes, until = directory / "passed.jsonl", time.monotonic() + PATIENCE_S
    mark = f'["committed", {batch},'
    while process.poll() is None and time.monotonic() < until:
        if notes.exists() and mark in notes.read_text():
            process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            process.send_signal(signal.SIGCONT)
            return True
        time.sleep(0.002)
    return False


def cold(directory: Path, strike: Strike, batch: int, died: float) -> dict[str, float]:
    """The parts of a recovery: until the new process has loaded, until what was lost is out."""
    at = passed(directory)
    loaded, done = at["loaded", -1], at.get(("committed", batch), 0.0)
    parts = {"number": strike.number, "restart_ms": 1e3 * (loaded - died)}
    return parts | {"rework_ms": 1e3 * (done - loaded) if done > loaded else float("nan")}


def judged(
    drill: Drill,
    query: ReplayQuery,
    directory: Path,
    began: float,
    fallen: int,
    recoveries: pd.DataFrame,
) -> Run:
    """What is in the store, and in the notes of the points that were passed.

    Of the struck intervals' samples, `planned` is the share that the plan of an undisturbed window
    has read again, `read` the share that was; `overhead` is the time of checkpoints over that of
    the work, in the other intervals, `checkpoint_ms` the median of the former.
    """
    store = CheckpointStore(directory / "state.sqlite", query.fingerprint)
    records, at, n = store.records(), passed(directory), drill.model.size
    times, sets = query.first_plan.times, [len(r.sensors) for r in query.first_plan.replay]
    planned_by_step = np.repeat(sets, np.diff(times))
    again = [r for r in records if r.recovered]
    steps = [np.arange(r.start, r.stop) % query.window for r in again]
    planned = sum(int(planned_by_step[s].sum()) for s in steps)
    read, full = sum(r.sensors * (r.stop - r.start) for r in again), n * sum(map(len, steps))

    calm = [r.batch for r in records if not r.recovered]
    laps = {point: np.array([at[point, batch] for batch in calm]) for point in POINTS}
    work = laps["estimated"] - laps["restored"]
    keeping = laps["restored"] - laps["begun"] + laps["planned"] - laps["estimated"]
    stops, committed = np.array([(r.stop, at["committed", r.batch]) for r in records]).T
    marks = np.arange(drill.every, drill.log.steps + 1, drill.every)
    reached = committed[np.searchsorted(stops, marks)]
    progress = [(0, began), *zip(marks.tolist(), reached.tolist(), strict=True)]
    kept = folder_bytes([*directory.glob("state*"), directory / "prepared"])
    more = {"planned": planned / full, "read": read / full, "overhead": keeping.sum() / work.sum()}
    more["checkpoint_ms"] = 1e3 * float(np.median(keeping))
    came = results_of(store, drill.log, query.window)
    return Run(came, read, fallen, kept, more, progress, recoveries)


def results_of(store: CheckpointStore, log: SensorLog, width: int) -> pd.DataFrame:
    """The store's results in the drill's words."""
    place = {name: i for i, name in enumerate(log.names)}
    rows = [(r.start // width, place[r.key], r.value, r.half_width > 0) for r in store.results()]
    return pd.DataFrame(rows, columns=["window", "sensor", "value", "estimated"])
