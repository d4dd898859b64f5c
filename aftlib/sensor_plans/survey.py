"""The question that a plan answers, and the window results from which it is made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME, RecoveryTime
from aftlib.core.checks import refuse_columns, require_choice, require_number
from aftlib.core.sensortable import SensorTable
from aftlib.core.timecolumns import duration
from aftlib.core.windows import Windows
from aftlib.sensor_plans.sensor_file import Inventory, pieces_of

QUERIES = ("mean", "sum")
CHUNK = 20_000
"""Windows that are aggregated from slices at a time."""
LEAST_PERIOD = 0.02
"""Share of the variance that a seasonal period must explain to be given to the guard."""
MOST_ROWS = 200_000
"""Most steps, the last ones before the middle, to which the baseline model is fitted."""
LEAST_WINDOWS = 8


@dataclass(frozen=True)
class Question:
    """The requirement that a plan must meet.

    Parameters
    ----------
    epsilon : float or mapping of str to float, optional
        Largest error ε of a window's result, one for all sensors or one per sensor, in their units.
    epsilon_sd : float, optional
        ε in standard deviations of each sensor's window results in the first half of the file.
        Exactly one of the two is given.
    delta : float
        Share δ of the guarantees that may be wrong.
    t_sla_ms : float
        T_SLA, the longest recovery permitted, in milliseconds.
    window, slide : int or str
        Number of samples, or a duration such as "6h" if the file has times. By default slide is the
        window's width.
    query : {"mean", "sum"}
        Aggregate of a window.
    workers : int, optional
        m machines that share the sensors; by default one per sensor.
    horizons : int
        Length in windows of the longest outage with guarantees.
    recovery_time : RecoveryTime
        Milliseconds as a function of the tuples read again; by default document D2's measurement.

    Raises
    ------
    ValueError
        When an argument is out of range; the message has its name, its value and the fix.
    """

    epsilon: float | Mapping[str, float] | None = None
    epsilon_sd: float | None = None
    delta: float = 0.05
    t_sla_ms: float = 2000.0
    window: int | str = 10
    slide: int | str | None = None
    query: str = "mean"
    workers: int | None = None
    horizons: int = 5
    recovery_time: RecoveryTime = DOCUMENT_RECOVERY_TIME

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.epsilon_sd is None):
            raise ValueError(
                f"epsilon or epsilon_sd must be given, and not both, got {self.epsilon!r} and "
                f"{self.epsilon_sd!r}; epsilon is in the sensors' units, epsilon_sd in standard "
                "deviations of each sensor's window results"
            )
        limits: dict[str, Any] = {"epsilon": self.epsilon, "epsilon_sd": self.epsilon_sd}
        if isinstance(self.epsilon, Mapping):
            limits = {f"epsilon of {name!r}": value for name, value in self.epsilon.items()}
        for name, value in ({"t_sla": self.t_sla_ms} | limits).items():
            if value is not None:
                require_number(name, value, above=0)
        require_number("delta", self.delta, above=0, below=1)
        require_number("horizons", self.horizons, least=1, most=50, whole=True)
        for name in ("workers", "window", "slide"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                require_number(name, value, least=1, whole=True)
        require_choice("query", self.query, QUERIES)

    @classmethod
    def of(cls, *, t_sla: str, fixed_ms: float, per_tuple_ms: float, **others: Any) -> Self:
        """The question from command-line options or notebook parameters; errors name these."""
        t_sla_ms = duration("t_sla", t_sla) / pd.Timedelta(1, "ms")
        recovery_time = RecoveryTime(fixed_ms, per_tuple_ms)
        return cls(t_sla_ms=t_sla_ms, recovery_time=recovery_time, **others)

    def steps(self, step: pd.Timedelta | None) -> tuple[int, int]:
        """Window and slide in steps of the file.

        ValueError when a duration is given for a file without times or is no multiple of its step,
        or the slide is longer than the window.
        """
        window = _in_steps("window", self.window, step)
        slide = window if self.slide is None else _in_steps("slide", self.slide, step)
        if slide > window:
            raise ValueError(
                f"slide must be at most window = {window} steps, got {slide}; a larger one would "
                "leave samples out of every window"
            )
        return window, slide

    def windows(self, names: Sequence[str], steps: int, step: pd.Timedelta | None) -> Windows:
        """The windows over `steps` steps of a file.

        ValueError when there are too few windows, or fewer sensors than workers.
        """
        windows = Windows(*self.steps(step), self.query)
        count = len(windows.ending_in(0, steps))
        if count < LEAST_WINDOWS:
            raise ValueError(
                f"window must leave at least {LEAST_WINDOWS} windows, got {count} of "
                f"{windows.width} steps in {steps} steps; give more rows or a smaller window"
            )
        if (self.workers or 1) > len(names):
            raise ValueError(
                f"workers must be at most the {len(names)} sensors, got {self.workers!r}"
            )
        return windows

    def limits(self, names: tuple[str, ...], deviations: np.ndarray) -> np.ndarray:
        """ε of each sensor, shape (n,).

        `deviations` are the standard deviations of the sensors' window results in the first half.
        ValueError when a sensor has no ε, or ε names a sensor that is not in the file.
        """
        if self.epsilon_sd is not None:
            return self.epsilon_sd * deviations
        epsilon: Any = self.epsilon
        if not isinstance(epsilon, Mapping):
            return np.full(len(names), float(epsilon))
        without = [name for name in names if name not in epsilon]
        unknown = [name for name in epsilon if name not in names]
        if without or unknown:
            raise ValueError(
                f"epsilon must have one value per sensor, got none for {without[:8]} and one for "
                f"{unknown[:8]}, which is no sensor of the file"
            )
        return np.array([epsilon[name] for name in names], float)


def _in_steps(name: str, width: int | str, step: pd.Timedelta | None) -> int:
    if isinstance(width, int) or re.fullmatch(r"\s*\d+\s*", width):
        require_number(name, int(width), least=1, whole=True)
        return int(width)
    if step is None:
        raise ValueError(
            f"{name} must be a number of samples where the file has no times, got {width!r}"
        )
    steps = duration(name, width) / step
    if steps < 1 or steps % 1:
        raise ValueError(f"{name} must be a multiple of the file's step {step}, got {width!r}")
    return int(steps)


def epsilon_of(text: str) -> float | dict[str, float]:
    """ε as a number, or one per sensor from a file: JSON {sensor: ε}, or CSV lines `sensor,ε`.

    ValueError when it is neither a number nor such a file.
    """
    try:
        return float(text)
    except ValueError:
        path = Path(text)
    if not path.is_file():
        raise ValueError(f"epsilon must be a number or a file of one per sensor, got {text!r}")
    try:
        if path.suffix == ".json":
            rows = json.loads(path.read_text(), object_pairs_hook=list)
        else:
            rows = pd.read_csv(path, header=None, dtype=str, keep_default_na=False).to_numpy()
            rows = rows[int(tuple(rows[0]) == ("sensor", "epsilon")) :]
        epsilon: dict[str, float] = {}
        for name, limit in rows:
            if name in epsilon:
                raise ValueError(f"{name!r} is there twice")
            epsilon[name] = float(limit)
        return epsilon
    except (ValueError, TypeError, AttributeError, OSError) as error:
        raise ValueError(
            f"epsilon must be a JSON file {{sensor: ε}} or a CSV file of lines 'sensor,ε', got "
            f"{text!r} ({str(error).splitlines()[0]})"
        ) from error


@dataclass(frozen=True, eq=False)
class Survey:
    """The windows' results of a file of sensors, from which a plan is made.

    A result is NaN where too many samples are missing: more than half for a mean, any for a sum.
    """

    inventory: Inventory
    windows: Windows
    values: np.ndarray  # (N, n) results of the N windows
    seasons: tuple[float, ...]  # seasonal periods, in windows, the strongest first
    recent: np.ndarray  # (at most MOST_ROWS, n) samples, the last ones of the first half

    @classmethod
    def of(
        cls,
        inventory: Inventory,
        windows: Windows,
        values: np.ndarray,
        recent: np.ndarray,
        samples: np.ndarray | None = None,
    ) -> Self:
        """Check the results, and find seasonal periods: by times, or without these in `samples`.

        ValueError when a sensor has less than two different results in a half.
        """
        first = values[: len(values) // 2]
        _require_results(inventory.names, first, values[len(first) :])
        seasons = find_seasons(samples, first, windows, inventory.step)
        return cls(inventory, windows, values, seasons, recent)

    @property
    def names(self) -> tuple[str, ...]:
        """The n sensors."""
        return self.inventory.names

    @property
    def half(self) -> int:
        """Number of windows of the first half, to which everything is fitted."""
        return len(self.values) // 2


def survey_table(table: SensorTable, inventory: Inventory, question: Question) -> Survey:
    """Survey of a table in memory; ValueError when it has too few windows."""
    values = table.values
    windows = question.windows(table.names, inventory.steps, inventory.step)
    results = aggregate_windows(pieces_of(values), windows)
    return Survey.of(inventory, windows, results, values[recent_rows(inventory.steps)], values)


def aggregate_windows(pieces: Iterable[np.ndarray], windows: Windows) -> np.ndarray:
    """Results of all windows, shape (N, n); samples (steps, n) come in consecutive pieces."""
    slices = []
    rest: np.ndarray | None = None
    for rows in pieces:
        rest = rows if rest is None else np.concatenate([rest, rows])
        whole = len(rest) - len(rest) % windows.pane
        slices.append(windows.slices(rest[:whole]))
        rest = rest[whole:]
    sums, counts = (np.concatenate(parts) for parts in zip(*slices, strict=True))
    starts = np.array(windows.ending_in(0, len(sums) * windows.pane), np.intp)
    starts *= windows.slide // windows.pane
    parts = [sums[:0]]
    for begin in range(0, len(starts), CHUNK):
        results, count = windows.joined(sums, counts, starts[begin : begin + CHUNK])
        enough = count == windows.width if windows.query == "sum" else 2 * count >= windows.width
        parts.append(np.where(enough, results, np.nan))
    return np.concatenate(parts)


def _require_results(names: Sequence[str], first: np.ndarray, second: np.ndarray) -> None:
    """Refuse a sensor with fewer than two windows in a half, or one value in the first."""
    for word, part in (("first", first), ("second", second)):
        few, wanted = np.isfinite(part).sum(axis=0) < 2, f"have windows in the {word} half"
        refuse_columns(names, few, wanted, "less than two with enough samples")
    still = np.nanmin(first, axis=0) == np.nanmax(first, axis=0)
    wanted = "vary in the first half, from which its model is made"
    refuse_columns(names, still, wanted, "one value only")


def find_seasons(
    samples: np.ndarray | None, first: np.ndarray, windows: Windows, step: pd.Timedelta | None
) -> tuple[float, ...]:
    """At most four seasonal periods, in windows, that explain most of the variance.

    With times the candidates are days, weeks, years and their halves; without, the strongest period
    of the samples and its half. `first` are the window results of the first half, shape (rows, n).
    """
    if step is None:
        periods = [0.0 if samples is None else _strongest_period(samples[: len(samples) // 2])]
    else:
        periods = [pd.Timedelta(days=days) / step for days in (1, 7, 365.25)]
    explained = {}
    deviation = np.nanstd(first, axis=0)
    z = np.nan_to_num((first - np.nanmean(first, axis=0)) / np.where(deviation > 0, deviation, 1))
    for period in (part for whole in periods for part in (whole, whole / 2)):
        if period < 2 or 3 * period > len(first) * windows.slide:
            continue
        angle = 2 * np.pi * np.arange(len(first)) * windows.slide / period
        waves = np.column_stack([np.sin(angle), np.cos(angle)])
        waves -= waves.mean(axis=0)
        fitted = waves @ np.linalg.lstsq(waves, z, rcond=1e-6)[0]
        share = (fitted**2).sum() / max((z**2).sum(), 1e-12)
        if share >= LEAST_PERIOD:
            explained[float(period / windows.slide)] = float(share)
    return tuple(sorted(explained, key=lambda period: -explained[period]))[:4]


def _strongest_period(samples: np.ndarray, most: int = 65_536) -> float:
    """Period in steps with the most power, averaged over sensors, and six repetitions or more."""
    part = samples[-most:]
    z = np.nan_to_num(part - np.nanmean(part, axis=0))
    power = (np.abs(np.fft.rfft(z, axis=0)) ** 2 / np.maximum((z**2).sum(axis=0), 1e-12)).sum(1)
    power[:6] = 0
    peak = int(power.argmax())
    return len(part) / peak if peak and power[peak] > 0 else 0.0


def recent_rows(steps: int) -> slice:
    """The last steps of the first half, to which the baseline model is fitted."""
    return slice(max(0, steps // 2 - MOST_ROWS), steps // 2)
