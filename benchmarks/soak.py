"""D1 by guard, D2, D3 and D5 at once on one stream, with faults every few seconds.

python -m benchmarks.soak [SECONDS [recoverable]]

By default for AFT_SOAK_SECONDS, or half an hour. The result goes to ``data/soak.json``. With a
name, that scheme alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import linregress, t

from aftlib.core.generators import block_model, draw
from aftlib.core.intervals import CONFIDENCE
from aftlib.core.paths import atomic_file, data_dir
from aftlib.core.sensorlog import SensorLog
from aftlib.failure_drill.metrics import folder_bytes
from aftlib.failure_drill.schedule import DIGITS
from aftlib.reports.notebook import library_hash
from benchmarks.soak_processes import MODEL_SIZE, REQUIREMENT, ROOT, SCHEMES

SECONDS, SAMPLE_S, GRACE_S = 1800.0, 2.0, 240.0
SETTLED = 1 / 3
"""Share of the time before memory is judged, because caches fill and pools grow."""
HEAP, CODE = "512m", "96m"
"""Of a JVM: its heap, the least that Spark takes, and most compiled code. All of the heap is taken
at the start, or it would grow to that for as long as a soak lasts; the live part is `heap_mb`."""
STEPS_A_SECOND = 1500
"""More steps than any scheme comes through."""
SLACK = 40
"""Wrong estimates that the guard's accounts may begin with, all sensors and horizons together."""


def soak(seconds: float, directory: Path, names: Sequence[str] = (), seed: int = 1) -> dict:
    """Run schemes side by side for some seconds; return results, memory and files of each.

    The `directory` is a new one. The schemes are those of `benchmarks.soak_processes.SCHEMES`, if
    no `names` are given. The result has `seconds` and, for each scheme, `score` (its own account:
    rounds, failures, due, lost, doubled, wrong, estimated, outside: of these, those off by more
    than ε), `memory_mb` and `stored_mb` over `at_s`, and `growth`: the slope of its memory after a
    third of the time with its interval, MB an hour. RuntimeError when one ends with an error, or
    comes to no end.
    """
    model, steps = block_model(MODEL_SIZE, 3), int(max(seconds, 20) * STEPS_A_SECOND)
    samples = np.round(draw(model, steps, seed) * DIGITS) / DIGITS
    log = SensorLog.write(directory / "log", samples, model.names)
    del samples
    processes = dict[str, subprocess.Popen[bytes]]()
    try:
        for name in names or SCHEMES:
            processes[name] = start(name, log, directory, seconds)
        samples_of = watch(processes, directory, seconds)
    finally:
        for process in processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    result: dict = {"seconds": seconds, "library": library_hash(), "schemes": {}}
    for name, process in processes.items():
        if process.returncode:
            output = (directory / f"{name}.log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{name} ended with status {process.returncode}: {output}")
        at, memory_mb, stored_mb = np.array(samples_of[name]).reshape(-1, 3).T
        score = json.loads((directory / name / "score.json").read_text())
        result["schemes"][name] = {
            "score": score,
            "at_s": at.round(1).tolist(),
            "memory_mb": memory_mb.round(1).tolist(),
            "stored_mb": stored_mb.round(3).tolist(),
            "growth": growth(at, memory_mb, seconds),
        }
    return result


def start(name: str, log: SensorLog, directory: Path, seconds: float) -> subprocess.Popen[bytes]:
    """Start a scheme as a process, and a session, of its own."""
    (directory / name).mkdir()
    jvm = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Xms{HEAP} -XX:+AlwaysPreTouch"
    jvm += f" -XX:ReservedCodeCacheSize={CODE}"
    arguments = (name, str(log.path), str(directory / name), str(seconds))
    with (directory / f"{name}.log").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.soak_processes", *arguments],
            stderr=output, stdout=output, start_new_session=True, cwd=ROOT,
            # glibc would otherwise keep freed memory of RocksDB in an arena per thread
            env=os.environ
            | {"AFT_DRIVER_MEMORY": HEAP, "SPARK_SUBMIT_OPTS": jvm, "MALLOC_ARENA_MAX": "2"},
        )  # fmt: skip


def watch(
    processes: Mapping[str, subprocess.Popen[bytes]], directory: Path, seconds: float
) -> dict[str, list[tuple[float, float, float]]]:
    """Wait until all have ended; return time, memory and stored MB of each, every `SAMPLE_S`."""
    samples: dict[str, list[tuple[float, float, float]]] = {name: [] for name in processes}
    began = time.monotonic()
    while running := [name for name, each in processes.items() if each.poll() is None]:
        now, memory = time.monotonic() - began, session_memory_mb()
        if now > seconds + GRACE_S:
            raise RuntimeError(f"{', '.join(running)} came to no end within {GRACE_S:g} s")
        for name in running:
            if now < seconds:
                stored = folder_bytes([directory / name / "stored"]) / 1e6
                samples[name].append((now, memory.get(processes[name].pid, 0.0), stored))
        time.sleep(SAMPLE_S)
    return samples


def session_memory_mb() -> dict[int, float]:
    """Memory by process session, MB: what each has for itself, and its share of the rest."""
    memory: dict[int, float] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            group = os.getsid(int(place.name))
            lines = (place / "smaps_rollup").read_text().splitlines()
        except OSError:  # it has just ended, or is another user's
            continue
        pss = next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
        memory[group] = memory.get(group, 0.0) + pss / 1024
    return memory


def growth(at_s: np.ndarray, memory_mb: np.ndarray, seconds: float) -> dict[str, float] | None:
    """Slope of memory once it has settled, MB an hour, and its interval; None of few samples.

    Samples hang together, so the interval counts only as many as the autocorrelation of the
    residuals at one sample leaves: n (1 − r) / (1 + r).
    """
    late = at_s >= SETTLED * seconds
    hours, memory = at_s[late] / 3600, memory_mb[late]
    if len(hours) < 8:
        return None
    line = linregress(hours, memory)
    rest = memory - line.intercept - line.slope * hours
    r = float(np.clip(np.corrcoef(rest[1:], rest[:-1])[0, 1], 0, 0.99)) if rest.any() else 0.0
    counted = max(4.0, len(hours) * (1 - r) / (1 + r))
    widened = np.sqrt((len(hours) - 2) / max(counted - 2, 1))
    half = float(t.ppf((1 + CONFIDENCE) / 2, counted - 2) * line.stderr * widened)
    bounds = {"slope": line.slope, "low": line.slope - half, "high": line.slope + half}
    return {name: float(bound) for name, bound in bounds.items()}


def broken(result: Mapping) -> list[str]:
    """Return a sentence for each guarantee that a scheme of the soak broke.

    Nothing may be lost, doubled or wrong. Of the estimates a share δ may be off by more than ε,
    beside the slack of the guard's theorem and five standard deviations of one independent estimate
    per window, because the sensors of a window go together.
    """
    harm = []
    for name, one in result["schemes"].items():
        own = one["score"]
        kinds = [what for what in ("lost", "doubled", "wrong") if own[what]]
        harm += [f"{name}: {own[what]} {what}" for what in kinds]
        share, count = REQUIREMENT.delta, own["estimated"]
        spread = np.sqrt(MODEL_SIZE * count * share * (1 - share))
        if own["outside"] > (most := share * count + 5 * spread + SLACK):
            estimates = f"{own['outside']} estimates off by more than ε"
            harm.append(f"{name}: {estimates}, at most {most:.0f}")
        if own.get("wrong_promises", 0) > own.get("bound", 0):
            harm.append(f"{name}: {own['wrong_promises']} wrong guarantees, at most {own['bound']}")
    return harm


def main(seconds: str = "", *names: str) -> None:
    """Soak, store the result in ``data/soak.json``, and print a summary."""
    lasts = float(seconds or os.environ.get("AFT_SOAK_SECONDS") or SECONDS)
    with tempfile.TemporaryDirectory(prefix="aft-soak-") as scratch:
        result = soak(lasts, Path(scratch), names)
    data_dir().mkdir(exist_ok=True)
    with atomic_file(data_dir() / "soak.json") as file:
        file.write_text(json.dumps(result))
    for name, one in result["schemes"].items():
        sys.stdout.write(f"{name}: {one['score']}, memory {one['growth']} MB an hour\n")
    if harm := broken(result):
        sys.exit("\n".join(harm))


if __name__ == "__main__":
    main(*sys.argv[1:])
