"""The guard: it receives windows in order, and certifies which sensors' windows may be lost."""

from __future__ import annotations

import copy
import dataclasses
import json
import operator
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.checks import (
    items_in_order,
    listed,
    names_in_order,
    require_number,
    require_numbers,
)
from aftlib.core.labels import (
    as_numbers,
    labels_of,
    pack_arrays,
    unpack_arrays,
    values_by_name,
)
from aftlib.guard.accounts import CERTIFIED, slack
from aftlib.guard.prediction import Model
from aftlib.guard.proposal import Risk
from aftlib.guard.rounds import LARGEST, Recovered, Rounds, Rules, State

VERSION = 9
_MOST_HORIZONS, _MOST_ROUNDS = 1000, 2**62 - 1  # for the memory, and for sums of int64


@dataclass(frozen=True)
class History:
    """Decisions and predictions for windows that arrived, as if each had been lost.

    Both arrays have shape (rounds, horizons, n): horizon h is a loss that began h rounds before.
    """

    # 0 not proposed, 1 proposed but blocked by an account, 2 certified, −1 not covered because
    # gaps of other sensors raised the error more than they usually do
    decisions: np.ndarray
    estimate: np.ndarray  # the shadow predictions


def limits_of(epsilon: ArrayLike, sensors: int, names: Sequence[str] | None = None) -> np.ndarray:
    """Return ε of each sensor, shape (n,); ValueError unless each is above 0 and finite.

    Labels, if there are any, must be the sensors' names or numbers; they give the order.
    """
    if labels_of(epsilon, names or ()) is not None:
        epsilon = values_by_name("epsilon", epsilon, names or [*map(str, range(sensors))])
    limits = as_numbers("epsilon", epsilon)
    fits = limits.shape in ((), (1,), (sensors,)) and not isinstance(epsilon, bool | np.bool_)
    if not fits or not (np.isfinite(limits) & (limits > 0)).all():
        raise ValueError(
            f"epsilon must be above 0 and finite, one number or one for each of the {sensors} "
            f"sensors, got {epsilon!r}"
        )
    return np.array(np.broadcast_to(limits, (sensors,)))


def worker_of_each(workers: Any) -> np.ndarray:
    """Return each sensor's worker, (n,); ValueError unless each sensor occurs once."""
    try:
        lists = [[operator.index(sensor) for sensor in worker] for worker in workers]
        whole = not any(isinstance(sensor, bool) for worker in workers for sensor in worker)
    except TypeError:
        lists, whole = [], False
    placed = [sensor for worker in lists for sensor in worker]
    if not whole or not placed or sorted(placed) != list(range(len(placed))):
        raise ValueError(
            "workers must hold each sensor 0 … n − 1 once, as a list per worker such as [[0, 1], "
            f"[2]], got {workers!r:.300}"
        )
    worker = np.zeros(len(placed), np.int64)
    worker[placed] = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    return worker


def require_horizons(horizons: Any) -> None:
    """Refuse what is no number of horizons."""
    require_number("horizons", horizons, least=1, most=_MOST_HORIZONS, whole=True)


def require_measured(windows: np.ndarray) -> None:
    """Refuse values that are too large for measurements; NaN may occur."""
    wild = np.abs(windows) >= LARGEST
    if wild.any():
        raise ValueError(
            f"windows must be below {LARGEST:g} in size, got {windows[wild][0]}: mark gaps by NaN"
        )


class Guard:
    """Certify which sensors' windows could be lost, and for how long, with an error of at most ε.

    While nothing fails, a guard predicts every window as if its worker had failed 1 … `horizons`
    windows ago. It compares the prediction with the window and keeps one account per (horizon,
    sensor). At most a share δ of the guarantees, plus a slack that does not grow with their number,
    is wrong. This holds for every sequence of data and of gaps, by the theorem in `guard.accounts`,
    if a worker's losses come independently of the data and of the other sensors' gaps. Other losses
    must be audited from the log.

    Parameters
    ----------
    workers : sequence of sequences of int
        The sensors 0 … n − 1 of each worker, each sensor once.
    epsilon : float, array_like of shape (n,), Series or dict
        Largest tolerated error ε, in sensor units. Labels must be those of `names`.
    delta : float
        Share δ of the guarantees that may be wrong.
    horizons : int
        H, the largest number of windows of an outage that a guarantee covers, at most 1000.
    seasons : sequence of float
        Known seasonal periods in windows, such as a day, the most important first.
    names : sequence of str, optional
        Names of the sensors 0 … n − 1, by which labelled windows are put in order; by default the
        labels of the first window, if it has any, else the numbers.

    Raises
    ------
    ValueError
        When a sensor is missing or repeated, or a number is outside its range.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> common = rng.normal(size=(400, 1))
    >>> windows = common + 0.1 * rng.normal(size=(400, 3))
    >>> guard = Guard([[0], [1], [2]], epsilon=0.5, delta=0.05)
    >>> _ = guard.update(windows)
    >>> guard.recoverable[0]  # may each sensor's next window be lost?
    array([ True,  True,  True])
    >>> lost = guard.update([np.nan, 0.5, 0.6])
    >>> bool(abs(lost.estimate[0, 0] - 0.55) < 0.2), bool(lost.declared[0, 0])
    (True, True)
    """

    def __init__(
        self,
        workers: Sequence[Sequence[int]],
        epsilon: ArrayLike,
        delta: float,
        horizons: int = 5,
        seasons: Sequence[float] = (),
        names: Sequence[str] | None = None,
    ) -> None:
        require_number("delta", delta, above=0, below=1)
        require_horizons(horizons)
        if seasons := items_in_order("seasons", seasons, "[24]"):
            require_numbers("seasons", seasons, above=0)
        worker = worker_of_each(workers)
        horizons = int(horizons)
        n = worker.size
        self._names = None if names is None else names_in_order(names)
        if self._names is not None and not len(self._names) == len(set(self._names)) == n:
            raise ValueError(f"names must be {n} different ones, one per sensor, got {names!r}")
        # a fit costs O(n³) and a window O(n²), so a guard of many sensors fits less often
        limits = limits_of(epsilon, n, self._names)
        every = max(horizons, n // 3)
        rules = Rules(limits, float(delta), worker, np.array(seasons, float), every)
        self._all = Rounds.begin(rules, horizons)

    def __copy__(self) -> Self:
        """Return a guard with a state of its own."""
        return copy.deepcopy(self)

    @property
    def rounds(self) -> int:
        """Number of windows so far."""
        return self._all.state.rounds

    @property
    def horizons(self) -> int:
        """Largest number H of windows of an outage that a guarantee covers."""
        return self._all.horizons

    @property
    def recoverable(self) -> np.ndarray:
        """Whether window h from now would be recovered if the loss begins now, shape (H, n).

        For a sensor that has been missing for r windows, it is the window h + r after its last one.
        The guarantee covers the usual gaps of other sensors, not rarer ones.
        """
        state, ring = self._all.state, self.horizons + 1
        ahead = np.arange(self.horizons)[:, None] + state.missing
        last = (self.rounds - 1 - state.missing) % ring  # place of each sensor's last window
        decisions = state.decisions[
            last, np.minimum(ahead, self.horizons - 1), np.arange(last.size)
        ]
        return (ahead < self.horizons) & (decisions == CERTIFIED)

    @property
    def outcomes(self) -> np.ndarray:
        """Guarantees N with known outcome, the wrong ones E, and the slack, shape (3, H, n).

        E is at most δN + slack, whatever the data.
        """
        state, delta = self._all.state, self._all.rules.delta
        bound = [slack(self.rounds, delta, h + 1) for h in range(self.horizons)]
        bounds = np.broadcast_to(np.array(bound)[:, np.newaxis], state.number.shape)
        return np.stack([state.number, state.errors, bounds])

    def update(self, windows: Any) -> Recovered:
        """Process one window, shape (n,), or many, shape (rounds, n).

        Windows one by one or all at once lead to the same state. An array is in the order of the
        sensors. A Series or dictionary of one window, or a DataFrame of many, is put in that order
        by its labels, one per sensor.

        A missing value (NaN) is a gap or a loss. It is estimated from the other sensors' values and
        from all values before the gap or loss began.

        Raises
        ------
        ValueError
            When shape or labels do not fit, or a value is infinite or too large. The state stays as
            it was.
        """
        recovered, _ = self._advance(windows, trace=False)
        return recovered

    def skip(self, rounds: int) -> None:
        """Process `rounds` windows in which no sensor sent anything, at the cost of H + 1 windows.

        The state is the same as after that many rows of NaN. ValueError when `rounds` is no whole
        number ≥ 0, or all rounds together come to 2**62.
        """
        require_number("rounds", rounds, least=0, most=_MOST_ROUNDS - self.rounds, whole=True)
        rounds = int(rounds)
        first = min(rounds, self.horizons + 1)  # then all places of the rings are alike
        self.update(np.full((first, self._all.rules.workers.size), np.nan))
        self._all.state.rounds += rounds - first
        self._all.state.missing += rounds - first

    def replay(self, windows: Any) -> History:
        """Process many windows; return decisions and predictions as if each had been lost."""
        _, history = self._advance(windows, trace=True)
        return history

    def _advance(self, windows: Any, trace: bool) -> tuple[Recovered, History]:
        n = self._all.rules.workers.size
        names = self._names
        if (labels := labels_of(windows, self._names or ())) is not None:
            names = self._names_of(labels)
            windows = values_by_name("windows", windows, names)
        rows = np.atleast_2d(as_numbers("windows", windows, self._names or ()))
        if rows.ndim != 2 or rows.shape[1] != n:
            raise ValueError(
                f"windows must have shape ({n},) or (rounds, {n}), got {np.shape(windows)}"
            )
        require_measured(rows)
        self._names = names
        estimate, half_width = np.full((2, *rows.shape), np.nan)
        certified = np.zeros(rows.shape, bool)
        shape = len(rows) if trace else 0, self.horizons, n
        decisions, shadow = np.zeros(shape, np.int64), np.full(shape, np.nan)
        h = np.arange(self.horizons)
        for r, row in enumerate(rows):
            recovered, predicted = self._all.advance(row)
            estimate[r] = recovered.estimate
            half_width[r] = recovered.half_width
            certified[r] = recovered.declared
            if trace:
                slots = (self.rounds - 2 - h) % (self.horizons + 1)  # of h + 1 rounds before
                decisions[r] = self._all.state.decisions[slots, h]
                shadow[r] = predicted
        return Recovered(estimate, half_width, certified), History(decisions, shadow)

    def _names_of(self, labels: list[str]) -> list[str]:
        """Return the names of the sensors in order."""
        numbers = [str(i) for i in range(self._all.rules.workers.size)]
        if self._names is not None or set(labels) == set(numbers):
            return self._names or numbers
        if self.rounds or len(labels) != len(numbers):
            raise ValueError(
                f"windows must go by position, as before, or have a label for each of the "
                f"{len(numbers)} sensors, got {listed(labels)}: pass an array, or give Guard "
                "names=[…]"
            )
        return labels

    @property
    def nbytes(self) -> int:
        """Bytes of the state in memory."""
        return sum(getattr(value, "nbytes", 0) for value in self._fields().values())

    @property
    def shared_nbytes(self) -> int:
        """Bytes that it shares with other guards: none."""
        return 0

    def _fields(self) -> dict[str, Any]:
        """Return the state by name."""
        return {
            f"{type(part).__name__}.{name}": value
            for part in vars(self._all).values()
            for name, value in vars(part).items()
        }

    def to_bytes(self) -> bytes:
        """Return the whole state; the same bytes for the same state."""
        names = np.frombuffer(json.dumps(self._names).encode(), np.uint8)
        return pack_arrays(version=VERSION, names=names, **self._fields())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return a guard that continues exactly as the one that wrote the bytes.

        Raises
        ------
        ValueError
            When the bytes hold no guard, or one of another version.
        """
        try:
            fields = unpack_arrays(data)
            version = int(fields["version"])
        except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"data holds no guard ({error}): start again") from error
        if version != VERSION:
            raise ValueError(
                f"data must be of version {VERSION}, got version {version}: use the version of "
                "aftlib that wrote it, or start again"
            )

        def restored(kind: Any) -> Any:
            values = {}
            for part in dataclasses.fields(kind):
                value = fields[f"{kind.__name__}.{part.name}"]
                values[part.name] = value if value.ndim else value.item()
            return kind(**values)

        guard = cls.__new__(cls)
        try:
            guard._names = json.loads(fields["names"].tobytes())
            parts = [restored(kind) for kind in (Rules, State, Model, Risk)]
        except (KeyError, ValueError) as error:
            raise ValueError(f"data holds no whole guard ({error}): start again") from error
        guard._all = Rounds(*parts)
        return guard
