"""Ten thousand sensors: time and memory of assignments and of a checkpoint plan.

Each is measured in a process of its own, whose peak of resident memory is reported. The last
compares what the handler conditions by at n = 2,400: the block of the precision of what is not
whole, or one solve over everything observed.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from aftlib.approximately_once.assignment import assign_greedy
from aftlib.approximately_once.best import assign_best
from aftlib.approximately_once.coordinator import Coordinator
from aftlib.checkpoint_planning.plan import DOCUMENT_RECOVERY_TIME, plan_checkpoints
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows
from benchmarks.checkpoints import HALF, scattered
from benchmarks.timing import best_of

KEYS, WORKERS, WINDOW = 10_000, 100, 1_000


def run() -> dict[str, Any]:
    """All figures, one process after the other."""
    work = {
        "assignment_100_groups": (measure_assignments, "groups"),
        "assignment_scattered": (measure_assignments, "scattered"),
        "plan_scattered": (measure_plans,),
        "master_n2400": (measure_conditioning,),
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
    begin_s, model = best_of(1, lambda: scattered(KEYS))
    requirement = Requirement(1.959964 * np.sqrt(HALF / WINDOW), 0.05)
    common = model, WINDOW, requirement, DOCUMENT_RECOVERY_TIME, 200.0
    figures: dict[str, Any] = {"n": KEYS, "window": WINDOW, "model_s": begin_s}
    for method in ("proposed", "adaptive"):
        seconds, plan = best_of(1, lambda method=method: plan_checkpoints(*common, method))
        sizes = [len(replay.sensors) for replay in plan.replay]
        figures |= {f"{method}_s": seconds, f"{method}_checkpoints": len(plan.checkpoints)}
        figures[f"{method}_replayed_first_last"] = sizes[0], sizes[-1]
    return figures


def measure_conditioning(n: int = 2_400, workers: int = 100, windows: int = 5) -> dict[str, Any]:
    """Milliseconds of windows with a pattern of their own, and how they were once conditioned.

    "other": five workers of the hundred did not send. "gaps": 5 % of the sensors miss samples.
    """
    model, width, rng = scattered(n), 30, np.random.default_rng(3)
    requirement = Requirement(1.5, 0.05)
    assignment = assign_greedy(model, workers, requirement)
    handler = Coordinator(model, assignment, requirement, Windows(width, width))
    rows = []
    for window in range(windows):
        samples = np.full(n, width)
        samples[rng.choice(n, n // 20, replace=False)] = rng.integers(1, width, n // 20)
        for name, absent, counts in (
            ("other", {0, *range(window + 1, window + 5)}, np.full(n, width)),
            ("gaps", {0}, samples),
        ):
            for worker, keys in enumerate(map(list, assignment.workers)):
                if worker not in absent:
                    handler.receive(window, worker, np.zeros(len(keys)), counts[keys])
            handler.expect(window)
            fast, lost = best_of(1, lambda window=window: handler.estimate(window))
            there = ~np.isin(assignment.worker_of, list(absent))
            given = model, list(assignment.workers[0]), np.flatnonzero(there), counts[there], width
            slow, (_, half) = best_of(1, lambda given=given: over_the_complement(*given))
            np.testing.assert_allclose(lost[0].half_width, requirement.half_width(half), rtol=1e-6)
            rows.append((name, fast * 1e3, slow * 1e3 * len(lost)))
    kinds = {
        name: np.median([row[1:] for row in rows if row[0] == name], axis=0) for name in _KINDS
    }
    return {
        "n": n,
        "window_ms_by_precision": {name: float(ms[0]) for name, ms in kinds.items()},
        "window_ms_over_the_complement": {name: float(ms[1]) for name, ms in kinds.items()},
    }


_KINDS = ("other", "gaps")


def over_the_complement(
    model: GaussianModel, keys: list[int], observed: np.ndarray, counts: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Gain and variance by one solve over everything that was observed."""
    sigma = model.covariance
    if (counts == width).all():
        return model.gain(observed, keys), model.posterior_variance(observed)[keys]
    among, across = sigma[np.ix_(observed, observed)], sigma[np.ix_(keys, observed)]
    either, both = np.maximum.outer(counts, counts), np.multiply.outer(counts, counts)
    together = among * (width / either - 1)
    gain = np.linalg.solve(among + together, across.T).T
    explained = np.einsum("ij,ij->i", 2 * across - gain @ among, gain)
    least = np.maximum(0, np.add.outer(counts, counts) - width)
    np.fill_diagonal(least, counts)
    apart = among * (width * least / both - 1)
    noise = [np.maximum(np.outer(g, g) * together, np.outer(g, g) * apart).sum() for g in gain]
    return gain, np.diag(sigma)[keys] - explained + noise
