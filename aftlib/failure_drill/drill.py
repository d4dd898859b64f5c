"""What every scheme is put through: one sensor stream, its true windows, one schedule."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.approximately_once.assignment import Assignment, assign_spread
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.failure_drill.schedule import Strike, drawn

DIGITS = 1000
"""A sensor shows thousandths, so that a sum of whole numbers is exact in every design."""
BLOCKS, COVARIANCE = 3, 0.9
STALLS = "stalls"
"""Folder of the notes of what was stopped, beside those of what was killed."""


@dataclass(frozen=True)
class Drill:
    """A stream of sensors, windows over it, a promise, and when its processes are struck."""

    log: SensorLog
    model: GaussianModel  # of the sensors' values at one step
    windows: Windows  # tumbling
    workers: int
    requirement: Requirement  # ε and δ of a window's mean
    every: int  # steps a micro-batch, whole windows
    away: int  # steps that pass until a substitute that does not read again goes on
    stall_s: float  # how long a process that is stopped stands still
    strikes: tuple[Strike, ...]

    @cached_property
    def assignment(self) -> Assignment:
        """Which worker has which sensors."""
        model = self.model.aggregate(self.windows.width)
        return assign_spread(model, self.workers, self.requirement)

    @cached_property
    def samples(self) -> np.ndarray:
        """All of them, shape (steps, n)."""
        return self.log.read(None, 0, self.log.steps)

    @cached_property
    def truth(self) -> np.ndarray:
        """The windows' true means, shape (windows, n)."""
        due = self.windows.ending_in(0, self.log.steps)
        return self.windows.aggregate(self.samples, 0, due)[0]

    @property
    def rows(self) -> int:
        """Samples of the whole stream."""
        return self.log.steps * self.model.size

    @property
    def kills(self) -> list[Strike]:
        """The strikes that end a process."""
        return [strike for strike in self.strikes if strike.kills]

    @property
    def spared(self) -> np.ndarray:
        """Which kills D1 answers by estimates: of estimable workers, the first of those at once."""
        seen, spared = set[int](), []
        for strike in self.kills:
            first = strike.step not in seen
            seen.add(strike.step)
            spared.append(first and bool(self.assignment.estimable[strike.worker]))
        return np.array(spared, dtype=bool)

    @property
    def in_vain(self) -> np.ndarray:
        """Samples that a process had read of its micro-batch when it was killed, one a kill."""
        keys = self.model.size // self.workers
        return np.array([(s.step % self.every) * keys for s in self.kills], dtype=int)

    def batch_of(self, step: int) -> int:
        """Number of the micro-batch that has a step."""
        return step // self.every


def drill(
    directory: Path,
    *,
    sensors: int,
    workers: int,
    width: int,
    windows: int,
    batch_windows: int,
    calm: float,
    strikes: int,
    epsilon_sd: float,
    delta: float,
    stall_s: float,
    seed: int,
) -> Drill:
    """Draw the stream into a log below the directory, and its schedule.

    `windows` of `width` steps make the stream, `batch_windows` of them a micro-batch; strikes fall
    after the share `calm` of it. ε is `epsilon_sd` standard deviations of a window's mean. Other
    arguments and errors as `Drill`, `block_model` and `schedule.drawn` have them.
    """
    model, steps = block_model(sensors, BLOCKS, covariance=COVARIANCE), windows * width
    every = batch_windows * width
    chosen = drawn(strikes, workers, int(calm * steps), steps, every, seed)
    place = directory / f"drill-n{sensors}-steps{steps}-seed{seed}"
    if not place.exists():
        values = np.round(draw(model, steps, seed) * DIGITS) / DIGITS
        SensorLog.write(place, values, model.names)
    return Drill(
        SensorLog.open(place),
        model,
        Windows(width, width),
        workers,
        Requirement(epsilon_sd / float(np.sqrt(width)), delta),
        every,
        2 * width,
        stall_s,
        chosen,
    )


@dataclass(frozen=True)
class Run:
    """What a scheme left."""

    came: pd.DataFrame  # a row for each value put out: window, sensor (indices), value, estimated
    rows_again: int  # samples read a second time
    fallen: int  # strikes that fell
    kept_bytes: int  # on disk at the end
    more: dict[str, float]  # what the table says of this scheme besides
    # step reached and seconds since the epoch for each micro-batch, beginning with step 0
    progress: list[tuple[int, float]] = field(default_factory=list)
    # a row a kill: number of the event, restart_ms until a process works in the dead one's place,
    # and rework_ms from there until what was lost is out
    recoveries: pd.DataFrame = field(default_factory=pd.DataFrame)
    part: Drill | None = None  # what it went through, where that is not the whole drill


@dataclass(frozen=True)
class Tally:
    """What came out of a scheme, compared with the truth, window by window and sensor by sensor.

    `share_low` … `share_high` is the interval of the share within ε at 95 %, from whole windows:
    the sensors of one err together.
    """

    due: int
    lost: int
    doubled: int
    estimated: int
    wrong: int  # not estimated, and not the truth
    within: float  # share of the estimates off by at most ε; NaN without estimates
    share_low: float
    share_high: float
    largest_error: float  # of all that came, in ε


def tallied(drill: Drill, came: pd.DataFrame, rng: np.random.Generator) -> Tally:
    """Compare what came with the truth: window, sensor (indices), value and estimated, a row each.

    What came more often than once is doubled, which is counted by windows and sensors.
    """
    times = np.zeros(drill.truth.shape, int)
    at = came["window"].to_numpy(int), came["sensor"].to_numpy(int)
    np.add.at(times, at, 1)
    off = np.abs(came["value"].to_numpy(float) - drill.truth[at])
    guessed, epsilon = came["estimated"].to_numpy(bool), drill.requirement.epsilon
    good = off[guessed] <= epsilon
    low = high = float("nan")
    if guessed.any():
        hit, number = np.unique(at[0][guessed], return_inverse=True)
        kept, made = np.bincount(number, good, len(hit)), np.bincount(number, minlength=len(hit))
        again = rng.integers(0, len(hit), (1000, len(hit)))
        low, high = np.quantile(kept[again].sum(1) / made[again].sum(1), [0.025, 0.975])
    return Tally(
        due=times.size,
        lost=int((times == 0).sum()),
        doubled=int((times > 1).sum()),
        estimated=int(guessed.sum()),
        wrong=int((~(off[~guessed] <= 1e-9)).sum()),
        within=float(good.mean()) if guessed.any() else float("nan"),
        share_low=float(low),
        share_high=float(high),
        largest_error=float(off.max(initial=0) / epsilon),
    )


def folder_bytes(paths: Iterable[Path]) -> int:
    """Bytes of files, and of all files in folders; what goes away meanwhile is not counted."""
    total = 0
    for path in paths:
        found = (Path(top, name) for top, _, names in os.walk(path) for name in names)
        for file in [path] if path.is_file() else found:
            with suppress(FileNotFoundError):
                total += file.stat().st_size
    return total
