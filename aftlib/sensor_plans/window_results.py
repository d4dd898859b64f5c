"""Results of all windows of a table of sensors, and the models of their first half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd

from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.windows import results_of
from aftlib.documents.checkpoint_planning.plan import RecoveryTime
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_checks import refuse_sensors
from aftlib.sensor_plans.sensor_file import SensorTable

#: Share of the variance that a seasonal period must explain to be given to the guard; ours.
LEAST_EXPLAINED = 0.02
#: Interquartile ranges beyond the quartiles from which a number is an outlier.
#: Ours: no window of Beijing's stations and none of a Gaussian lies so far; a typing error does.
OUTLIER = 10
#: Largest share of outliers, or three; ours: numbers that come more often are another state.
RARE = 0.0005
#: Shrinkage of the model of window results; it permits sensors that repeat each other.
SHRINKAGE = 1e-4
#: Most steps, the last before the middle, to which the baseline is fitted: it takes seconds.
MOST_ROWS = 200_000


@dataclass(frozen=True, eq=False)
class Survey:
    """The window results of a table for one question, and the models of the first half."""

    table: SensorTable
    question: Question
    width: int  # steps of a window
    step_s: float | None  # seconds of a step; None where there are no times
    recovery_time: RecoveryTime
    values: np.ndarray  # (N, n) results of the windows
    limits: np.ndarray  # (n,) ε of each sensor
    seasons: list[float]  # seasonal periods in windows, the strongest first
    model: GaussianModel  # of the window results in units of ε, without outliers
    baseline: GaussianModel  # the documents' model Σ/w of the window results, in sensor units

    @classmethod
    def of(cls, table: SensorTable, question: Question) -> Self:
        """Aggregate a table; ValueError when it has too few windows or a sensor does not vary."""
        names = table.names
        steps = len(table.values)
        width = question.width(steps, table.step)
        step_s = None if table.step is None else table.step.total_seconds()
        recovery_time = question.recovery_time(len(names) / step_s if step_s else 0.0)
        values = aggregate(table.values, width, question.query)
        require_results(names, values)
        first = values[: len(values) // 2]
        usual = np.where(outliers(first), np.nan, first)
        limits = question.limits(names, np.nanstd(usual, axis=0))
        recent = table.values[max(0, steps // 2 - MOST_ROWS) : steps // 2]
        return cls(
            table=table,
            question=question,
            width=width,
            step_s=step_s,
            recovery_time=recovery_time,
            values=values,
            limits=limits,
            seasons=find_seasons(first, width, table.step),
            model=fit_model(usual / limits, names),
            baseline=fit_model(recent, names).aggregate(width, question.query),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The n sensors."""
        return self.table.names

    @property
    def scaled_requirement(self) -> Requirement:
        """The requirement of results in units of ε: one is enough for all sensors."""
        return Requirement(1.0, self.question.delta)

    def at(self, window: int) -> str:
        """Start of a window."""
        return str(self.table.at(int(window) * self.width))


def aggregate(samples: np.ndarray, width: int, query: str, begin: int = 0) -> np.ndarray:
    """Results of tumbling windows from their step `begin` on, shape (N, n), of samples (steps, n).

    NaN where too many samples are missing: more than half for a mean, any for another query, whose
    result grows with the number of samples.
    """
    whole = samples[: len(samples) // width * width].reshape(-1, width, samples.shape[1])
    part = whole[:, begin:]
    counts = np.isfinite(part).sum(axis=1)
    sums = np.nansum(part, axis=1)
    enough = 2 * counts >= part.shape[1] if query == "mean" else counts == part.shape[1]
    return np.where(enough, results_of(query, sums, counts), np.nan)


def require_results(names: Sequence[str], values: np.ndarray) -> None:
    """Refuse a sensor with fewer than two windows in a half, or one value in the first."""
    half = len(values) // 2
    few = (np.isfinite(values[:half]).sum(axis=0) < 2) | (np.isfinite(values[half:]).sum(0) < 2)
    still = np.fmax.reduce(values[:half]) == np.fmin.reduce(values[:half])
    refuse_sensors(names, few, "have two windows in each half")
    refuse_sensors(names, still, "vary in the first half, from which the model is made")


def bounds(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers below and above which one lies very far from the others of its column."""
    low, high = np.nanquantile(values, [0.25, 0.75], axis=0)
    limit = np.where(high > low, OUTLIER * (high - low), np.inf)
    return low - limit, high + limit


def outliers(values: np.ndarray) -> np.ndarray:
    """Whether each number lies very far from the others of its column, as few others do."""
    low, high = bounds(values)
    far = (values < low) | (values > high)
    return np.asarray(far & (far.sum(axis=0) <= max(3, RARE * len(values))))


def fit_model(rows: np.ndarray, names: Sequence[str]) -> GaussianModel:
    """Fit a model to rows with gaps, also to fewer rows than sensors."""
    rows = rows[np.isfinite(rows).any(axis=1)]
    shrinkage: float | str = "auto" if len(rows) <= 2 * rows.shape[1] else SHRINKAGE
    frame = pd.DataFrame(rows, columns=list(names))
    return GaussianModel.fit(frame, missing="estimate", shrinkage=shrinkage)


def find_seasons(first: np.ndarray, width: int, step: pd.Timedelta | None) -> list[float]:
    """At most four of day, week, year and their halves, in windows, that explain most variance.

    `first` are the window results of the first half, shape (rows, n); each sensor varies. Without
    times there are no seasons.
    """
    if step is None:
        return []
    z = np.nan_to_num((first - np.nanmean(first, axis=0)) / np.nanstd(first, axis=0))
    explained = dict[float, float]()
    for days in (1, 0.5, 7, 3.5, 365.25, 365.25 / 2):
        period = pd.Timedelta(days=days) / step / width
        if period * width >= 2 and 3 * period <= len(first):
            wave = np.exp(2j * np.pi * np.arange(len(first)) / period)
            explained[period] = float(2 * (np.abs(wave @ z / len(z)) ** 2).mean())
    strongest = sorted(explained, key=lambda period: -explained[period])
    return [period for period in strongest if explained[period] >= LEAST_EXPLAINED][:4]
