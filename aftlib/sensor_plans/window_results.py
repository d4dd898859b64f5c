"""From samples to window results, their halves, and the rhythms that they have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from aftlib.core.windows import Windows

CHUNK = 20_000
LEAST_RHYTHM = 0.02
"""Share of the variance that a rhythm must explain to be told to the guard."""


@dataclass(frozen=True)
class WindowResults:
    """The result of every window of every sensor.

    A result is NaN where too many samples are missing: more than half for a mean, any for a sum.
    """

    values: np.ndarray  # (N, n)
    names: tuple[str, ...]
    windows: Windows
    seasons: tuple[float, ...] = ()  # periods of rhythms, in windows, the strongest first

    @property
    def half(self) -> int:
        """Windows of the first half, from which everything is fitted."""
        return len(self.values) // 2


def window_results(
    samples: np.ndarray,
    names: tuple[str, ...],
    windows: Windows,
    step: pd.Timedelta | None,
) -> WindowResults:
    """Aggregate samples, shape (steps, n), over every window, and find the rhythms.

    ValueError when a sensor has less than two different results in a half.
    """
    every = windows.ending_in(0, len(samples))
    parts = []
    for first in range(0, len(every), CHUNK):
        some = every[first : first + CHUNK]
        begin = some[0] * windows.slide
        rows = samples[begin : some[-1] * windows.slide + windows.width]
        parts.append(known(*windows.aggregate(rows, begin, some), windows))
    return finished(np.concatenate(parts), names, windows, step, samples)


def known(results: np.ndarray, count: np.ndarray, windows: Windows) -> np.ndarray:
    """The results of windows with samples enough, NaN for the others."""
    enough = count == windows.width if windows.query == "sum" else 2 * count >= windows.width
    return np.where(enough, results, np.nan)


def finished(
    values: np.ndarray,
    names: tuple[str, ...],
    windows: Windows,
    step: pd.Timedelta | None,
    samples: np.ndarray | None = None,
) -> WindowResults:
    """Window results, shape (N, n), checked and with their rhythms.

    Arguments and errors as `window_results`; samples are only needed where there is no `step`.
    """
    half = len(values) // 2
    for word, part in (("first", values[:half]), ("second", values[half:])):
        few = np.isfinite(part).sum(axis=0) < 2
        if few.any():
            sensor = names[int(few.argmax())]
            raise ValueError(
                f"column {sensor!r} must have windows in the {word} half, got less than two with "
                f"enough samples; leave it out with drop=[{sensor!r}]"
            )
    still = np.nanmin(values[:half], axis=0) == np.nanmax(values[:half], axis=0)
    if still.any():
        sensor = names[int(still.argmax())]
        raise ValueError(
            f"column {sensor!r} must vary in the first half, from which its model is made, got one "
            f"value only; leave it out with drop=[{sensor!r}]"
        )
    return WindowResults(values, names, windows, rhythms(samples, values[:half], windows, step))


def rhythms(
    samples: np.ndarray | None, first: np.ndarray, windows: Windows, step: pd.Timedelta | None
) -> tuple[float, ...]:
    """Periods in windows of the rhythms that explain most, at most four.

    With times these are days, weeks and years and their halves; without, the strongest period of
    the samples. `first` are the window results of the first half, shape (rows, n).
    """
    if step is None:
        periods = [0.0 if samples is None else _strongest(samples[: len(samples) // 2])]
    else:
        periods = [pd.Timedelta(days=days) / step for days in (1, 7, 365.25)]
    found = {}
    deviation = np.nanstd(first, axis=0)
    z = np.nan_to_num((first - np.nanmean(first, axis=0)) / np.where(deviation > 0, deviation, 1))
    for period in (part for whole in periods for part in (whole, whole / 2)):
        if period < 2 or 3 * period > len(first) * windows.slide:
            continue
        angle = 2 * np.pi * np.arange(len(first)) * windows.slide / period
        waves = np.column_stack([np.sin(angle), np.cos(angle)])
        waves -= waves.mean(axis=0)
        fitted = waves @ np.linalg.lstsq(waves, z, rcond=1e-6)[0]
        found[float(period / windows.slide)] = float((fitted**2).sum() / max((z**2).sum(), 1e-12))
    ordered = sorted(found, key=lambda period: -found[period])
    return tuple(period for period in ordered if found[period] >= LEAST_RHYTHM)[:4]


def _strongest(samples: np.ndarray, most: int = 65_536) -> float:
    """Period in steps with the most power, averaged over sensors, of at least six repetitions."""
    part = samples[-most:]
    z = np.nan_to_num(part - np.nanmean(part, axis=0))
    power = (np.abs(np.fft.rfft(z, axis=0)) ** 2 / np.maximum((z**2).sum(axis=0), 1e-12)).sum(1)
    power[:6] = 0
    peak = int(power.argmax())
    return len(part) / peak if peak and power[peak] > 0 else 0.0
