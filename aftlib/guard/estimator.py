"""The interface of an estimator of lost windows: its parameters, methods and results.

`Guard` learns from the windows and `KnownModel` knows their distribution. Both check the same
`Rules`, and answer by the methods of `Estimator`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.checks import items_in_order, require_number, require_numbers
from aftlib.core.labels import as_numbers, labels_of, values_by_name

LARGEST = 1e100
"""Limit on the size of windows and of values that fill gaps; its square is still finite."""
_MOST_HORIZONS = 1000  # for the memory


@dataclass(frozen=True)
class Recovered:
    """Estimates of the missing windows, one row per round.

    Attributes
    ----------
    estimate : ndarray, shape (rounds, n)
        Estimates of the missing windows; NaN for the others, before there are enough windows, and
        once no sensor has come for H windows. A guard may estimate 0 of a sensor that never came;
        it certifies neither.
    half_width : ndarray, shape (rounds, n)
        Half-width of this one estimate, within which about a share 1 − δ of the last comparable
        errors were. Of T shadow predictions, a guard's half-widths miss at most δT + 200 δ + 1,
        whatever the data. A half-width may be above ε, which is a limit for all certified estimates
        together. NaN where too few errors are known; infinite after too many misses.
    certified : ndarray of bool, shape (rounds, n)
        Whether an error of at most ε was guaranteed before the loss.
    """

    estimate: np.ndarray
    half_width: np.ndarray
    certified: np.ndarray

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Self:
        """Return arrays in which nothing is estimated yet."""
        return cls(np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, bool))

    def put(self, rounds: slice, part: Self) -> None:
        """Put the estimates of some of the rounds in their places."""
        self.estimate[rounds] = part.estimate
        self.half_width[rounds] = part.half_width
        self.certified[rounds] = part.certified


@dataclass(frozen=True)
class History:
    """Decisions and predictions for windows that arrived, as if each had been lost.

    Both arrays have shape (rounds, horizons, n): horizon h is a loss that began h rounds before.
    """

    # 0 not proposed, 1 proposed but blocked by an account, 2 certified, −1 not covered because
    # gaps of other sensors raised the error more than they usually do
    decisions: np.ndarray
    estimate: np.ndarray  # the shadow predictions


class Estimator(Protocol):
    """An estimator of n sensors, which receives windows in order and estimates the lost ones."""

    @property
    def horizons(self) -> int:
        """Largest number H of windows of an outage that a guarantee covers."""

    @property
    def recoverable(self) -> np.ndarray:
        """Whether window h of a loss that begins now would be certified, bool, shape (H, n)."""

    @property
    def outcomes(self) -> np.ndarray:
        """Guarantees with a known outcome, the wrong ones, and a slack, (3, H, n) or (3, 1, n).

        Of a guard, the second is at most δ times the first, plus the slack. A known model has no
        such bound.
        """

    def update(self, windows: ArrayLike, /) -> Recovered:
        """Process one window (n,) or many (rounds, n); NaN is missing and is estimated."""


@dataclass(frozen=True)
class Rules:
    """The checked parameters of an estimator of n sensors."""

    epsilon: np.ndarray  # (n,) largest error ε of each sensor
    delta: float  # share δ of the guarantees that may be wrong
    workers: np.ndarray  # (n,) number of each sensor's worker
    horizons: int  # H
    seasons: np.ndarray  # periods in windows

    @classmethod
    def check(
        cls,
        workers: Sequence[Sequence[int]],
        epsilon: ArrayLike,
        delta: float,
        horizons: int,
        seasons: Sequence[float] = (),
        names: Sequence[str] | None = None,
    ) -> Self:
        """Return the rules with ε as an array; ValueError when a parameter is outside its range."""
        require_number("delta", delta, above=0, below=1)
        require_number("horizons", horizons, least=1, most=_MOST_HORIZONS, whole=True)
        periods = items_in_order("seasons", seasons, "[24]")
        if periods:
            require_numbers("seasons", periods, above=0)
        worker_of = worker_of_each(workers)
        if names is not None and not len(names) == len({*names}) == worker_of.size:
            raise ValueError(
                f"names must be {worker_of.size} different ones, one per sensor, got {names!r}"
            )
        return cls(
            epsilon=limits_of(epsilon, worker_of.size, names),
            delta=float(delta),
            workers=worker_of,
            horizons=int(horizons),
            seasons=np.array(periods, float),
        )


def limits_of(epsilon: ArrayLike, sensors: int, names: Sequence[str] | None = None) -> np.ndarray:
    """Return ε of each sensor, shape (n,); ValueError unless each is above 0 and finite.

    Labels, if there are any, must be the sensors' names or numbers; they give the order.
    """
    if labels_of(epsilon, names or ()) is not None:
        epsilon = values_by_name("epsilon", epsilon, names or [*map(str, range(sensors))])
    limits = as_numbers("epsilon", epsilon)
    fits = limits.shape in ((), (1,), (sensors,))
    if not fits or not (np.isfinite(limits) & (limits > 0)).all():
        raise ValueError(
            f"epsilon must be above 0 and finite, one number or one for each of the {sensors} "
            f"sensors, got {epsilon!r}"
        )
    return np.array(np.broadcast_to(limits, (sensors,)))


def worker_of_each(workers: Any) -> np.ndarray:
    """Return each sensor's worker, (n,); ValueError unless each sensor occurs once."""
    try:
        placed = sorted(
            (-1 if isinstance(sensor, bool) else operator.index(sensor), number)
            for number, worker in enumerate(workers)
            for sensor in worker
        )
    except TypeError:
        placed = []
    if not placed or [sensor for sensor, _ in placed] != list(range(len(placed))):
        raise ValueError(
            "workers must hold each sensor 0 … n − 1 once, as a list per worker such as [[0, 1], "
            f"[2]], got {workers!r:.300}"
        )
    return np.array([number for _, number in placed], np.int64)


def require_measured(windows: np.ndarray) -> None:
    """Refuse values that are too large for measurements; NaN may occur."""
    wild = np.abs(windows) >= LARGEST
    if wild.any():
        raise ValueError(
            f"windows must be below {LARGEST:g} in size, got {windows[wild][0]}: mark gaps by NaN"
        )
