"""What fault tolerance costs while nothing fails (D1-7): one coordinator, several protections.

Methods take turns on the same windows without kills, and the input is not throttled. They are: no
fault tolerance; exact checkpoints of the running windows, flushed to the disk, at several
intervals; and each scheme that estimates.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from aftlib.core.paths import project_root
from aftlib.recovery_comparison.recoveries import Coordinator, Sink
from aftlib.recovery_comparison.schemes import SCHEMES, Case, SchemeEstimator

UNPROTECTED = "no fault tolerance"
SHARES = (1, 4)
"""Checkpoints per window that are tried, where they divide its steps; and one in each step."""
PORTION = 30
"""Windows of each method in a turn."""


@dataclass(frozen=True)
class Protection:
    """A method of fault tolerance in normal operation."""

    name: str
    checkpoints: int = 0  # per window and worker
    make_estimator: Callable[[Case], SchemeEstimator] | None = None


def protections(width: int) -> list[Protection]:
    """Return the compared methods, for windows of `width` steps."""
    counts = sorted({count for count in SHARES if width % count == 0} | {width})
    exact = [Protection(checkpoints_name(count), count) for count in counts]
    estimating = [Protection(name, make_estimator=make) for name, make in SCHEMES.items()]
    return [Protection(UNPROTECTED), *exact, *estimating]


def checkpoints_name(count: int) -> str:
    """Return the name of a method with exact checkpoints."""
    return f"checkpoints, {count} per window"


def normal_operation(case: Case, directory: Path, turns: int) -> pd.DataFrame:
    """Stream a case under each method without kills, in turns; `directory` must be new.

    In a turn each method gets the same `PORTION` windows, the first half of them for its
    throughput. Of the others the workers read all steps but the last, then the last: that time is
    the latency. One more turn warms up. The case's windows are streamed again and again.

    One row per turn and method: turn, method, checkpoints: per window; per_s: samples per second;
    latency_s: from the last sample until the results are committed, the median.
    """
    directory.mkdir(parents=True)
    case = repeated(case, PORTION * (turns + 1))
    log = case.write_log(directory / "log")
    width = case.windows.width
    methods = protections(width)
    rows = []
    with ExitStack() as stack:
        coordinators = list[Coordinator]()
        for number, method in enumerate(methods):
            folder = directory / str(number)
            folder.mkdir()
            coordinator = Coordinator(
                case,
                log,
                Sink(folder / "results.sqlite"),
                estimator=method.make_estimator(case) if method.make_estimator else None,
                checkpoint_folder=folder if method.checkpoints else None,
                checkpoint_every=width // max(method.checkpoints, 1),
            )
            coordinators.append(stack.enter_context(coordinator))
        for turn in range(turns + 1):
            windows = range(turn * PORTION, (turn + 1) * PORTION)
            first = turn % len(methods)  # so that each method comes first equally often
            for i in [*range(first, len(methods)), *range(first)]:
                per_s, latency_s = time_windows(coordinators[i], windows)
                rows.append((turn, methods[i].name, methods[i].checkpoints, per_s, latency_s))
    columns = ["turn", "method", "checkpoints", "per_s", "latency_s"]
    frame = pd.DataFrame(rows, columns=columns)
    order = {method.name: place for place, method in enumerate(methods)}
    frame = frame[frame["turn"] > 0]
    return frame.sort_values("method", key=lambda names: names.map(order), kind="stable")


def repeated(case: Case, windows: int) -> Case:
    """Return the case with its streamed windows again and again, `windows` of them."""
    learned = case.learned * case.windows.width
    steps = np.arange(windows * case.windows.width) % len(case.streamed)
    return replace(case, values=np.concatenate([case.values[:learned], case.streamed[steps]]))


def time_windows(coordinator: Coordinator, windows: Sequence[int]) -> tuple[float, float]:
    """Return samples per second over the first half of the windows, and the others' latency."""
    half = len(windows) // 2
    begin = time.perf_counter()
    for window in windows[:half]:
        coordinator.process(window)
    seconds = time.perf_counter() - begin
    case = coordinator.case
    latencies = []
    for window in windows[half:]:
        coordinator.read_before_end(window)
        latencies.append(coordinator.process(window)["seconds"])
    return half * case.windows.width * case.model.size / seconds, median(latencies)


@dataclass(frozen=True)
class StoredSpark:
    """The stored speeds of `recoverable` with a known model, as shares of Spark's own query."""

    date: str
    shares: tuple[float, ...]

    @classmethod
    def read(cls) -> StoredSpark | None:
        """Return what ``python -m benchmarks pipeline`` has stored; None if nothing."""
        path = project_root() / "benchmarks" / "results" / "pipeline.json"
        if not path.exists():
            return None
        stored = json.loads(path.read_text())
        shares = tuple(float(run["speed_to_plain_spark"]) for run in stored["known_model"])
        return cls(stored["date"], shares)
