"""Many sensors: time and memory of assignments (10,000) and of a checkpoint plan.

Each is measured in a process of its own, whose peak of resident memory is reported. The plan has
3,000 sensors.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once.assignment import assign_greedy
from aftlib.documents.approximately_once.best import assign_best
from aftlib.documents.checkpoint_planning.plan import DOCUMENT_RECOVERY_TIME, plan_checkpoints
from benchmarks.checkpoints import HALF, scattered
from benchmarks.timing import best_of

KEYS, PLANNED_KEYS, WORKERS, WINDOW = 10_000, 3_000, 100, 1_000


def run() -> dict[str, Any]:
    """All figures, one process after the other."""
    work = {
        "assignment_100_groups": (measure_assignments, "groups"),
        "assignment_scattered": (measure_assignments, "scattered"),
        "plan_scattered": (measure_plans,),
    }
    return {name: alone(*what) for name, what in work.items()}


def alone(work: Callable[..., dict[str, Any]], *given: str) -> dict[str, Any]:
    """Return what a fresh process measures, and the peak of its memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(with_memory, (work, *given))


def with_memory(work: Callable[..., dict[str, Any]], *given: str) -> dict[str, Any]:
    """The figures of some work and this process's peak of resident memory, gigabytes."""
    figures = work(*given)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return figures | {"peak_gigabytes": round(peak / 1e9, 2)}


def measure_assignments(kind: str) -> dict[str, Any]:
    """Seconds of `assign_greedy` and `assign_best`, each with the model's own share before."""
    make = partial(block_model, KEYS, 100) if kind == "groups" else partial(scattered, KEYS)
    begin_s, model = best_of(1, make)
    requirement = Requirement(0.65 if kind == "groups" else 1.3, 0.05)
    precision_s, _ = best_of(1, lambda: model.precision)
    greedy_s, greedy = best_of(1, lambda: assign_greedy(model, WORKERS, requirement))
    best_s, best = best_of(1, lambda: assign_best(model, WORKERS, requirement))
    return {
        "n": KEYS,
        "workers": WORKERS,
        "model_s": begin_s,
        "precision_s": precision_s,
        "greedy_s": greedy_s,
        "best_s": best_s,
        "greedy_estimable": int(greedy.estimable.sum()),
        "best_estimable": int(best.estimable.sum()),
        "bound": best.bound,
    }


def measure_plans() -> dict[str, Any]:
    """Seconds of plans in which a window's beginning replays half of the sensors."""
    begin_s, model = best_of(1, lambda: scattered(PLANNED_KEYS))
    requirement = Requirement(1.959964 * np.sqrt(HALF / WINDOW), 0.05)
    common = model, WINDOW, requirement, DOCUMENT_RECOVERY_TIME, 200.0
    figures: dict[str, Any] = {"n": PLANNED_KEYS, "window": WINDOW, "model_s": begin_s}
    for method in ("proposed", "adaptive"):
        seconds, plan = best_of(1, lambda method=method: plan_checkpoints(*common, method))
        sizes = [len(replay.sensors) for replay in plan.replay]
        figures |= {f"{method}_s": seconds, f"{method}_checkpoints": len(plan.checkpoints)}
        figures[f"{method}_replayed_first_last"] = sizes[0], sizes[-1]
    return figures
