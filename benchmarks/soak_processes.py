"""The processes of a soak: each runs a scheme on a log, injects faults, and scores its results.

python -m benchmarks.soak_processes NAME LOG DIRECTORY SECONDS

What a scheme stores beyond its results lies in ``stored``.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import assign_spread
from aftlib.checkpoint_planning.driver import driver_command, run_process, write_task
from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.checkpoint_planning.state import CheckpointStore
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.exponential_histogram.histogram import ExponentialHistogram
from aftlib.failure_drill.schedule import Drill
from aftlib.failure_drill.schemes_process import TUPLES, emitted_results, shared_state
from aftlib.spark.faults import Fault
from benchmarks import soak_counting as counting
from benchmarks.soak_recoverable import live_heap_mb, run_recoverable

MODEL_SIZE, WORKERS, WIDTH, EVERY = 12, 4, 20, 400
BATCHES, LONGEST, BUDGET, SEGMENT = 4, 32, 48, 4000
"""Micro-batches of D1 for each kill, and between two starts at most; samples that D2 may read
again; steps of a job."""
REQUIREMENT = Requirement(0.8 / float(np.sqrt(WIDTH)), 0.05)
WINDOWS = Windows(WIDTH, WIDTH)
FAULT_S = 2.0
ROOT = Path(__file__).resolve().parents[1]
Score = dict[str, float]


def run_d1(log: SensorLog, place: Path, over: Callable[[], bool]) -> Score:
    """Kill a worker every few micro-batches; now and then the stream ends, and goes on there.

    It is started ever more seldom, as Spark keeps a thread of each stream that reads from Python.
    """
    from aftlib.approximately_once.pipeline import Query, staff
    from aftlib.approximately_once.sink import Outage
    from aftlib.failure_drill.schemes_spark import committed
    from aftlib.spark.session import session
    from aftlib.spark.streams import drain

    spark, model = session("soak"), block_model(MODEL_SIZE, 3).aggregate(WIDTH)
    assignment = assign_spread(model, WORKERS, REQUIREMENT)
    query = Query(log, WINDOWS, model, assignment, REQUIREMENT, EVERY, recover="guard")
    rng, rounds, stop, stored, part = (
        np.random.default_rng(1),
        0,
        0,
        place / "stored",
        BATCHES * EVERY,
    )
    heap_mb = list[float]()  # after each part
    while not (rounds and over()) and stop + part <= log.steps:
        begin, stop, outages = stop, stop + part, []
        for start in range(begin, stop, BATCHES * EVERY):
            at = start + int(rng.integers(EVERY, 3 * EVERY))
            outages.append(Outage(int(rng.integers(WORKERS)), at, at + 2 * WIDTH))
        shutil.rmtree(stored / "messages", ignore_errors=True)
        splits, handler = staff(replace(query, stop=stop), stored, outages)
        drain(splits.stream(spark).writeStream, stored, handler)
        rounds, part = rounds + 1, min(2 * part, LONGEST * EVERY)
        heap_mb.append(live_heap_mb(spark))
    audit = handler.close()  # of the last part; the sink has the windows of all parts
    failures = len([*(stored / "faults").glob("fault-*.json")])
    spark.stop()
    score = score_windows(log, committed(log, WIDTH, handler), stop)
    if audit:
        score |= {"audited": audit.estimates, "wrong_promises": audit.wrong, "bound": audit.bound}
    third = heap_mb[len(heap_mb) // 3]
    score |= {"heap_mb_after_a_third": third, "heap_mb": heap_mb[-1]}
    return {"rounds": rounds, "failures": failures} | score


def run_d2(log: SensorLog, place: Path, over: Callable[[], bool]) -> Score:
    """Start the driver again and again; each is killed some batches on, with its samples read."""
    budget, stored = BUDGET, place / "stored"
    query = ReplayQuery(block_model(MODEL_SIZE, 3), WIDTH, REQUIREMENT, TUPLES, budget, "adaptive")
    write_task(stored, query, log)
    rng, rounds, batch = np.random.default_rng(2), 0, 0
    while not (rounds > 1 and over()):  # one recovers the state of another
        batch += int(rng.integers(30, 120))
        fault = Fault("kill", "driver", batch, "replayed")
        run_process(driver_command(stored, "bare", [fault]), (-signal.SIGKILL,))
        rounds += 1
    store = CheckpointStore(stored / "state.sqlite", query.fingerprint)
    checkpoint = store.restore()
    reached = checkpoint.window if checkpoint else 0
    score = score_windows(log, emitted_results(store, log, WIDTH), reached)
    return {"rounds": rounds, "failures": rounds} | score


def run_d3(log: SensorLog, place: Path, over: Callable[[], bool]) -> Score:
    """Job after job over the next segment, in each of which a task and a server are killed."""
    model, total, rounds = block_model(MODEL_SIZE, 3), Counter[str](), 0
    rng = np.random.default_rng(3)
    while not (rounds and over()) and (rounds + 1) * SEGMENT <= log.steps:
        begin = rounds * SEGMENT
        part = SensorLog.write(place / "part", log.read(None, begin, begin + SEGMENT), log.names)
        victims = rng.permutation(WORKERS)[:2].tolist()
        schedule = tuple(Fault("kill", f"worker-{w}", i, event=i) for i, w in enumerate(victims))
        drill = Drill(part, model, WINDOWS, WORKERS, REQUIREMENT, EVERY, 0, schedule)
        shared = shared_state(drill, place / "stored", compared=False)
        total.update(score_windows(part, shared.emitted, SEGMENT))
        total["failures"] += shared.faults
        rounds += 1
        for folder in ("part", "stored"):
            shutil.rmtree(place / folder)
    return {"rounds": rounds, **total}


def run_d5(log: SensorLog, place: Path, over: Callable[[], bool]) -> Score:
    """Kill the process that counts now and then; its state must be as if undisturbed."""
    stored, rng, failures = place / "stored", np.random.default_rng(4), 0
    stored.mkdir()
    command = [sys.executable, "-m", counting.__name__, str(log.path), str(stored)]
    while not (failures > 1 and over()):  # another process goes on where another one was killed
        before, process = written(stored / "answers.jsonl"), subprocess.Popen(command, cwd=ROOT)
        while process.poll() is None and written(stored / "answers.jsonl") == before:
            time.sleep(0.05)  # it imports and compiles first
        time.sleep(float(rng.exponential(FAULT_S)))
        process.kill()
        failures += process.wait() == -signal.SIGKILL
    return {"rounds": failures, "failures": failures} | score_counts(log, stored)


def score_counts(log: SensorLog, stored: Path) -> Score:
    """Compare answers and state of the process that counts with an undisturbed histogram.

    An answer may be there twice, as a kill after it makes the next process repeat it; it is doubled
    when the two differ.
    """
    lines = (stored / "answers.jsonl").read_text().splitlines()
    answers = [tuple(json.loads(line)) for line in lines]
    distinct = dict(answers)
    due = range(counting.BATCH, max(distinct) + 1, counting.BATCH)
    state = ExponentialHistogram.from_bytes((stored / "state").read_bytes())
    undisturbed = ExponentialHistogram(counting.WINDOW, counting.EPSILON)
    bits = counting.events(log, 0, state.now or 0)
    undisturbed.update(bits)
    sums = np.concatenate([[0], np.cumsum(counting.events(log, 0, max(distinct)))])
    exact = {at: int(sums[at] - sums[max(0, at - counting.WINDOW)]) for at in distinct}
    off = [abs(distinct[at] - exact[at]) > counting.EPSILON * exact[at] for at in distinct]
    return {
        "due": len(due),
        "lost": len(set(due) - set(distinct)),
        "doubled": len(set(answers)) - len(distinct),
        # the histogram's bound is for each answer
        "wrong": int(undisturbed.to_bytes() != state.to_bytes()) + sum(off),
        "estimated": len(distinct), "outside": sum(off),
    }  # fmt: skip


def written(path: Path) -> int:
    """Bytes of a file; 0 when it is not there."""
    return path.stat().st_size if path.exists() else 0


def score_windows(log: SensorLog, emitted: pd.DataFrame, steps: int) -> Score:
    """Compare emitted values with the windows of [0, steps); later ones may come, but once."""
    due, places = WINDOWS.ending_in(0, steps), ["window", "sensor"]
    truth, _ = WINDOWS.aggregate(log.read(None, 0, steps), 0, due)
    inside = emitted[emitted["window"] < len(due)]
    window, sensor = inside[places].to_numpy(int).T
    off = np.abs(inside["value"].to_numpy(float) - truth[window, sensor])
    estimated = inside["estimated"].to_numpy(bool)
    return {
        "due": truth.size,
        "lost": truth.size - len(inside.drop_duplicates(places)),
        "doubled": int(emitted.duplicated(places).sum()),
        "wrong": int((~(off[~estimated] <= 1e-9)).sum()),
        "estimated": int(estimated.sum()),
        "outside": int((~(off[estimated] <= REQUIREMENT.epsilon)).sum()),
    }


SCHEMES: dict[str, Callable[[SensorLog, Path, Callable[[], bool]], Score]] = {
    "D1 by guard": run_d1,
    "D2 adaptive": run_d2,
    "D3 shared state": run_d3,
    "D5 histogram": run_d5,
}
"""These run side by side."""
ALONE = {"recoverable": run_recoverable}


def main(name: str, log: str, directory: str, seconds: str) -> None:
    """Run a scheme until the time is over, then score it."""
    until = time.monotonic() + float(seconds)
    scheme = (SCHEMES | ALONE)[name]
    score = scheme(SensorLog.open(log), Path(directory), lambda: time.monotonic() > until)
    (Path(directory) / "score.json").write_text(json.dumps(score))


if __name__ == "__main__":
    main(*sys.argv[1:])
