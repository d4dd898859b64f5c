"""The stream of the soak: windows with losses and odd rows, sensors and groups that join.

All samples follow from the number of their window, so a score can compute the truth again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from aftlib import Promise

SAMPLES, WORKERS = 20, 6
"""Samples of a window, one per second, and workers of each group."""
EPSILON, DELTA, HORIZONS = 0.25, 0.05, 5
"""The noise of a window's mean is 0.067 in the first group, and at most 0.1 in the others."""
BEGIN = pd.Timestamp("2026-01-01", tz="UTC")
GAP, LONGEST_GAP = 1 / 25, 3
"""Chance that a worker of a group is away from a window on, and the most windows that it stays."""
SILENCE, LONGEST_SILENCE = 1 / 100, 8
"""The same of a whole group. Some silences are longer than the guarantee's horizons."""
JOINING, LAST_TO_JOIN = 1 / 4, 100
"""Share of the groups that join after the first window, and the last window in which one may."""


def names(sensors: int) -> list[str]:
    return [f"s{i}" for i in range(sensors)]


def promise(sensors: int) -> Promise:
    """Return the promise for so many sensors; new ones join the workers in turn."""
    workers = [names(sensors)[i::WORKERS] for i in range(WORKERS)]
    return Promise(
        workers,
        EPSILON,
        DELTA,
        window=f"{SAMPLES}s",
        watermark="60s",
        samples=SAMPLES,
        horizons=HORIZONS,
    )


@dataclass(frozen=True)
class Stream:
    """The stream of some groups; the first one is there in every window.

    Arrays are by window, group, sample, sensor, or by some of these in this order.
    """

    groups: int = 1

    @property
    def before(self) -> int:
        """Sensors of each group until the first driver is killed; many groups have fewer."""
        return 60 if self.groups == 1 else 16

    @property
    def after(self) -> int:
        """Sensors of each group from the second driver on."""
        return self.before + 4

    @cached_property
    def joined_at(self) -> np.ndarray:
        """The first window of each group."""
        rng = np.random.default_rng(6)
        late = rng.random(self.groups) < JOINING
        late[0] = False
        return np.where(late, rng.integers(1, LAST_TO_JOIN + 1, self.groups), 0)

    def samples(self, window: int) -> np.ndarray:
        """Return all samples, also the lost ones, shape (groups, SAMPLES, after).

        A group has a level and a noise of its own, and a part that all of its sensors share.
        """
        rng = np.random.default_rng([7, window])
        group = np.arange(self.groups)[:, None, None]
        time = window + np.arange(SAMPLES)[:, None] / SAMPLES
        common = 3 * np.sin(time / 9 + group) + 0.05 * group + rng.normal(size=group.shape)
        noise = rng.normal(size=(self.groups, SAMPLES, self.after))
        noise *= 0.3 + 0.05 * (group % 4)
        return np.round(common + noise + 0.1 * np.arange(self.after), 9)

    def means(self, window: int) -> np.ndarray:
        """Return the true result of each sensor, shape (groups, after)."""
        return self.samples(window).mean(1)

    def away(self, window: int) -> np.ndarray:
        """Whether each worker of each group is away in a window, shape (groups, WORKERS)."""
        away = np.zeros((self.groups, WORKERS), bool)
        for begin in range(max(0, window - LONGEST_GAP + 1), window + 1):
            rng = np.random.default_rng([8, begin])
            begins = rng.random(self.groups) < GAP
            until = begin + rng.integers(1, LONGEST_GAP + 1, self.groups)
            worker = rng.integers(WORKERS, size=self.groups)
            groups = np.flatnonzero(begins & (until > window))
            away[groups, worker[groups]] = True
        return away

    def sends(self, window: int) -> np.ndarray:
        """Whether each group sends anything in a window, shape (groups,)."""
        sends = self.joined_at <= window
        for begin in range(max(1, window - LONGEST_SILENCE + 1), window + 1):
            rng = np.random.default_rng([10, begin])
            begins = rng.random(self.groups) < SILENCE
            until = begin + rng.integers(1, LONGEST_SILENCE + 1, self.groups)
            sends &= ~(begins & (until > window))
        sends[0] = True
        return sends

    def sent(self, window: int) -> np.ndarray:
        """Whether the stream has the samples of each sensor, shape (groups, after)."""
        lost = self.away(window)[:, np.arange(self.after) % WORKERS]
        return self.sends(window)[:, None] & ~lost

    def rows(self, window: int) -> pd.DataFrame:
        """Return a window's rows: those of the workers that are there, and five odd ones."""
        samples = self.samples(window)
        sent = np.broadcast_to(self.sent(window)[:, None], samples.shape)
        group, sample, sensor = np.nonzero(sent)
        times = BEGIN + pd.to_timedelta(window * SAMPLES + np.arange(SAMPLES), unit="s")
        rows = pd.DataFrame(
            {
                "time": times[sample],
                "site": group,
                "sensor": pd.Categorical.from_codes(sensor, [*names(self.after), "ghost"]),
                "value": samples[group, sample, sensor],
            }
        )
        odd = odd_rows(times[0]).astype(rows.dtypes.to_dict())
        return pd.concat([rows, odd], ignore_index=True)

    def due(self, windows: int, change: int) -> np.ndarray:
        """Whether the result has a row, shape (windows, groups, after).

        From the window `change` on there are all sensors, and the guards have begun anew: they do
        not know of a gap before it.
        """
        sends = np.array([self.sends(window) for window in range(windows)])
        due = np.zeros((windows, self.groups, self.after), bool)
        due[:change, :, : self.before] = due_rounds(sends[:change])[:, :, None]
        due[change:] = due_rounds(sends[change:])[:, :, None]
        return due


def odd_rows(time: pd.Timestamp) -> pd.DataFrame:
    """Return rows that the query must leave out, beside those of a window."""
    future = pd.Timestamp.now("UTC") + pd.Timedelta(days=3650)
    return pd.DataFrame(
        {
            "time": [time, time, time, pd.Timestamp(0, tz="UTC"), future],
            "site": 0,
            "sensor": ["ghost", None, "s0", "s0", "s0"],
            "value": [1.0, 1.0, np.nan, 1.0, 1.0],
        }
    )


def due_rounds(sends: np.ndarray) -> np.ndarray:
    """Whether a group has rows in a window, from whether it sends anything, both (windows, groups).

    Rows begin with the group's first window. A gap has them in as many windows as the guarantee has
    horizons, if a window comes after it.
    """
    window = np.arange(len(sends))[:, None]
    latest = np.maximum.accumulate(np.where(sends, window, -HORIZONS - 1))
    sends_later = np.logical_or.accumulate(sends[::-1])[::-1]
    return (window - latest <= HORIZONS) & sends_later
