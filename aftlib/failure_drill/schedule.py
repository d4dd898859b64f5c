"""The drill: a stream of sensors, and a schedule of faults that is the same for every scheme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

import numpy as np

from aftlib.approximately_once.assignment import Assignment, assign_spread
from aftlib.core.checks import require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.faults import Fault

KILLS = ("single", "repeated", "simultaneous")
"""One worker is killed; one is killed in two micro-batches in a row; two are killed at once."""
PATTERNS = (*KILLS, "pause")
"""All patterns of faults; after a pause the worker continues."""
DIGITS = 1000
"""Samples are whole thousandths, so that their sums are exact in every scheme."""
BLOCKS, COVARIANCE = 3, 0.9


def draw_schedule(
    faults: int, workers: int, begin: int, steps: int, every: int, pause_s: float, seed: int
) -> tuple[Fault, ...]:
    """Draw a seeded schedule over the micro-batches of `every` steps in [begin, steps).

    The patterns take turns, workers and moments are random, and a micro-batch without faults
    follows each event. There may be more than `faults` faults, because the last event is complete.
    ValueError if the stream is too short for the faults, or there is only one worker.
    """
    require_number("workers", workers, least=2)  # one fails, and one survives
    rng = np.random.default_rng(seed)
    schedule = list[Fault]()
    batch, event = -(-begin // every), 0
    while len(schedule) < faults:
        pattern = PATTERNS[event % len(PATTERNS)]
        batches = 2 if pattern == "repeated" else 1
        if (batch + batches + 1) * every > steps:
            raise ValueError(
                f"faults must fit between step {begin} and {steps}, got {faults}: give more "
                "steps, fewer faults or smaller micro-batches"
            )
        targets = rng.permutation(workers)[: 2 if pattern == "simultaneous" else 1]
        for later in range(batches):
            # not at the edges: some samples are lost, and some follow
            step = (batch + later) * every + int(rng.integers(every // 4, 3 * every // 4))
            for worker in targets:
                kind, lasts_s = ("kill", 0.0) if pattern in KILLS else (pattern, pause_s)
                fault = Fault(kind, f"worker-{worker}", step, lasts_s=lasts_s, event=event)
                schedule.append(fault)
        batch += batches + 1
        event += 1
    return tuple(schedule)


def worker_of(fault: Fault) -> int:
    """Number of the worker that a fault of the schedule hits."""
    return int(fault.target.removeprefix("worker-"))


def pattern_of(event: list[Fault]) -> str:
    """Pattern of the faults of one event."""
    if event[0].kind != "kill":
        return event[0].kind
    if len(event) == 1:
        return "single"
    return "simultaneous" if len({fault.step for fault in event}) == 1 else "repeated"


@dataclass(frozen=True)
class Drill:
    """A stream of sensors, windows over it, a guarantee, and a schedule of faults at workers."""

    log: SensorLog
    model: GaussianModel  # of the sensors' values at one step
    windows: Windows  # tumbling
    workers: int
    requirement: Requirement  # ε and δ of a window's mean
    every: int  # steps of a micro-batch, whole windows
    away: int  # steps after which a replacement continues if it does not read again
    schedule: tuple[Fault, ...]

    @cached_property
    def assignment(self) -> Assignment:
        """Sensors of each worker."""
        model = self.model.aggregate(self.windows.width)
        return assign_spread(model, self.workers, self.requirement)

    @cached_property
    def samples(self) -> np.ndarray:
        """All samples, shape (steps, n)."""
        return self.log.read(None, 0, self.log.steps)

    @cached_property
    def truth(self) -> np.ndarray:
        """True means of the windows, shape (windows, n)."""
        due = self.windows.ending_in(0, self.log.steps)
        return self.windows.aggregate(self.samples, 0, due)[0]

    @property
    def rows(self) -> int:
        """Number of samples in the stream."""
        return self.log.steps * self.model.size

    @property
    def kills(self) -> list[Fault]:
        """Faults that end a process."""
        return [fault for fault in self.schedule if fault.kind == "kill"]

    @property
    def events(self) -> list[list[Fault]]:
        """Faults of each event."""
        return [list(event) for _, event in groupby(self.schedule, key=lambda f: f.event)]

    @property
    def event_batches(self) -> list[tuple[int, int]]:
        """First and last micro-batch of each event."""
        return [(self.batch_of(e[0].step), self.batch_of(e[-1].step)) for e in self.events]

    @property
    def estimated_kills(self) -> np.ndarray:
        """Whether D1 estimates each kill's loss: a step's first one, if its worker is estimable."""
        steps = [fault.step for fault in self.kills]
        first = [steps.index(step) == i for i, step in enumerate(steps)]
        estimable = [self.assignment.estimable[worker_of(fault)] for fault in self.kills]
        return np.array(first, bool) & np.array(estimable, bool)

    @property
    def wasted_samples(self) -> np.ndarray:
        """Samples of the micro-batch that the killed worker had read, one number per kill."""
        keys = self.model.size // self.workers
        return np.array([(fault.step % self.every) * keys for fault in self.kills], dtype=int)

    def batch_of(self, step: int) -> int:
        """Number of the micro-batch of a step."""
        return step // self.every

    def aimed(self, target: Callable[[int], str]) -> tuple[Fault, ...]:
        """The schedule with processes other than workers as targets, one fault per step."""
        by_step = {fault.step: fault for fault in self.schedule}
        return tuple(replace(f, target=target(worker_of(f))) for f in by_step.values())


def draw_drill(
    directory: Path,
    *,
    sensors: int,
    workers: int,
    width: int,
    windows: int,
    batch_windows: int,
    calm: float,
    faults: int,
    epsilon_sd: float,
    delta: float,
    pause_s: float,
    seed: int,
) -> Drill:
    """Draw the stream into a log below the directory, and its schedule.

    The stream has `windows` windows of `width` steps, a micro-batch has `batch_windows` windows.
    Faults come after the share `calm` of the stream. ε is `epsilon_sd` standard deviations of a
    window's mean. Errors as `block_model` and `draw_schedule`.
    """
    model, steps = block_model(sensors, BLOCKS, covariance=COVARIANCE), windows * width
    every = batch_windows * width
    schedule = draw_schedule(faults, workers, int(calm * steps), steps, every, pause_s, seed)
    place = directory / f"drill-n{sensors}-steps{steps}-seed{seed}"
    if not place.exists():
        values = np.round(draw(model, steps, seed) * DIGITS) / DIGITS
        SensorLog.write(place, values, model.names)
    requirement = Requirement(epsilon_sd / float(np.sqrt(width)), delta)
    return Drill(
        SensorLog.open(place),
        model,
        Windows(width, width),
        workers,
        requirement,
        every,
        away=2 * width,
        schedule=schedule,
    )
