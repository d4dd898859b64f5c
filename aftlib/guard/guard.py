"""The guard: fed a window at a time, it says which sensors' windows may be lost."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.checks import listed, require_number
from aftlib.core.labels import as_numbers, labels_of, values_by_name
from aftlib.core.query_directory import pack_arrays, unpack_arrays
from aftlib.guard.accounts import BUDGET, POOL_START, START, pool_unit, slack
from aftlib.guard.prediction import Model, new_model
from aftlib.guard.proposal import Risk, new_risk
from aftlib.guard.rounds import LARGEST, Rules, State, advance

FORGET = 1 / 600
"""The model's memory: effectively 600 windows."""
VERSION = 4


@dataclass(frozen=True)
class Recovered:
    """What `Guard.update` says of the sensors that were missing, a row a round.

    Attributes
    ----------
    estimate : ndarray, shape (rounds, n)
        Of windows that are missing; NaN for those that are there, or where nothing is known yet.
    half_width : ndarray, shape (rounds, n)
        1 − δ of the last comparable errors were within it; NaN where too few are known.
    declared : ndarray of bool, shape (rounds, n)
        Whether it was declared, before the loss, that the estimate would be within ε.
    """

    estimate: np.ndarray
    half_width: np.ndarray
    declared: np.ndarray


@dataclass(frozen=True)
class History:
    """What the guard said of windows that were there, as if each had been lost.

    Both arrays have shape (rounds, horizons, n): a loss would have begun so many rounds before.
    """

    said: np.ndarray  # 0 not proposed, 1 proposed but blocked by an account, 2 declared
    estimate: np.ndarray  # the shadow predictions


def limits_of(epsilon: ArrayLike, sensors: int, names: Sequence[str] | None = None) -> np.ndarray:
    """ε of each sensor, shape (n,); ValueError unless each is above 0 and finite.

    Where it has labels, they must be the sensors' names or numbers, whose order it takes.
    """
    numbers = [str(i) for i in range(sensors)]
    if labels_of(epsilon, names or ()) is not None:
        epsilon = values_by_name("epsilon", epsilon, names or numbers)
    limits = as_numbers("epsilon", epsilon)
    if limits.shape not in ((), (1,), (sensors,)) or not (np.isfinite(limits) & (limits > 0)).all():
        raise ValueError(
            f"epsilon must be above 0 and finite, one number or one for each of the {sensors} "
            f"sensors, got {epsilon!r}"
        )
    return np.array(np.broadcast_to(limits, (sensors,)))


def require_measured(windows: np.ndarray) -> None:
    """Refuse what is too large to have been measured; NaN may be there."""
    wild = np.abs(windows) >= LARGEST
    if wild.any():
        raise ValueError(
            f"windows must be below {LARGEST:g} in size, got {windows[wild][0]}: mark gaps by NaN"
        )


class Guard:
    """Says which sensors' windows could be lost, for how long, with an error of at most ε.

    While nothing fails it predicts every window as if its worker had died 1 … `horizons` windows
    ago, compares, and keeps an account a (horizon, sensor), so that of the promises it makes at
    most a share δ, and a slack that does not grow with their number, is wrong: for every sequence
    of data, by the theorem in `guard.accounts`. It holds for losses of one worker at a time that
    come independently of the data; losses that do not are to be audited from the log.

    Parameters
    ----------
    workers : sequence of sequences of int
        The sensors 0 … n − 1 of each worker, each sensor once.
    epsilon : float, array_like of shape (n,), Series or dict
        Largest error ε that is tolerated, in sensor units. Labels must be those of `names`.
    delta : float
        Share δ of the promises that may be wrong.
    horizons : int
        H, most windows that an outage may last for a promise to be made.
    seasons : sequence of float
        Periods of known rhythms in windows, such as a day, the most important first.
    names : sequence of str, optional
        Names of the sensors 0 … n − 1, by which labelled windows are put in order; by default the
        labels of the first window, if it has any, else the numbers.

    Raises
    ------
    ValueError
        When a sensor is missing or there twice, or a number is outside its range.

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
        require_number("horizons", horizons, least=1, whole=True)
        for season in seasons:
            require_number("each of seasons", season, above=0)
        placed = sorted(sensor for worker in workers for sensor in worker)
        if not placed or placed != list(range(len(placed))):
            raise ValueError(
                f"workers must hold each sensor 0 … n − 1 once, got {[list(w) for w in workers]}"
            )
        n = len(placed)
        self._names = None if names is None else [str(name) for name in names]
        if self._names is not None and not len(self._names) == len(set(self._names)) == n:
            raise ValueError(f"names must be {n} different ones, one per sensor, got {names!r}")
        of = np.zeros(n, np.int64)
        for number, worker in enumerate(workers):
            of[list(worker)] = number
        every = max(int(horizons), n // 3)
        periods = np.array(seasons, float)
        self._rules = Rules(
            limits_of(epsilon, n, self._names), float(delta), of, periods, FORGET, every
        )
        self._model = new_model(n, horizons, periods.size, every)
        self._risk = new_risk(n, horizons)
        ring, here = (horizons + 1, n), (horizons, n)
        accounts, pools = np.zeros((*here, 4)), np.zeros((horizons, 4))
        accounts[..., BUDGET], pools[:, BUDGET] = START, POOL_START * pool_unit(n)
        self._state = State(
            clock=np.zeros(1, np.int64),
            level=np.zeros((2, n)),
            windows=np.full(ring, np.nan),
            filled=np.full(ring, np.nan),
            levels=np.zeros(ring),
            missing=np.zeros(n, np.int64),
            said=np.zeros((horizons + 1, *here), np.int64),
            accounts=accounts,
            pools=pools,
            counts=np.zeros((*here, 3)),
        )

    @property
    def rounds(self) -> int:
        """Windows taken in so far."""
        return int(self._state.clock[0])

    @property
    def horizons(self) -> int:
        """H."""
        return len(self._state.accounts)

    @property
    def recoverable(self) -> np.ndarray:
        """Whether a loss that begins now would be recovered h windows later, shape (H, n)."""
        if not self.rounds:
            return np.zeros(self._state.accounts.shape[:2], bool)
        return self._state.said[(self.rounds - 1) % (self.horizons + 1)] == 2

    @property
    def kept(self) -> np.ndarray:
        """Promises whose outcome is known, those of them that were wrong, and the slack.

        Shape (3, H, n): E is at most δN + slack, whatever the data.
        """
        declared, wrong, _ = np.moveaxis(self._state.counts, -1, 0)
        bound = [slack(self.rounds, self._rules.delta, h + 1) for h in range(self.horizons)]
        return np.stack([declared, wrong, np.broadcast_to(np.array(bound)[:, None], wrong.shape)])

    def update(self, windows: Any) -> Recovered:
        """Take in one window, shape (n,), or many, shape (rounds, n); the state is the same.

        An array goes by position. A Series or dictionary of one window and a DataFrame of many are
        put in the order of the sensors by their labels, of which each sensor must have one.

        A missing value (NaN) is a gap or a loss: it is estimated from what is there, and from what
        was known before it began.

        Raises
        ------
        ValueError
            When shape or labels do not fit or a value is infinite or near; the state stays as it
            was.
        """
        recovered, _ = self._advance(windows, trace=False)
        return recovered

    def replay(self, windows: Any) -> History:
        """Take in many windows, and tell what was said of each as if it had been lost."""
        _, history = self._advance(windows, trace=True)
        return history

    def _advance(self, windows: Any, trace: bool) -> tuple[Recovered, History]:
        n, names = self._rules.workers.size, self._names
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
        recovered = np.empty((len(rows), n, 3))
        shape = (len(rows) if trace else 0, self.horizons, n)
        said, shadow = np.zeros(shape, np.int64), np.full(shape, np.nan)
        rows = np.ascontiguousarray(rows)
        advance(self._state, self._model, self._risk, self._rules, rows, recovered, said, shadow)
        estimate, half_width, declared = np.moveaxis(recovered, -1, 0)
        return Recovered(estimate, half_width, declared == 1), History(said, shadow)

    def _names_of(self, labels: list[str]) -> list[str]:
        """Names of the sensors by which labelled windows are put in order."""
        numbers = [str(i) for i in range(self._rules.workers.size)]
        if self._names is not None or set(labels) == set(numbers):
            return self._names or numbers
        if self.rounds or len(labels) != len(numbers):
            raise ValueError(
                f"windows must be labelled by the {len(numbers)} sensors of this guard, which have "
                f"no names yet, got {listed(labels)}: give Guard names=[…], or pass an array to go "
                "by position"
            )
        return labels

    def to_bytes(self) -> bytes:
        """The whole state, to be committed with the batch; the same bytes for the same state."""
        fields = {"version": np.array(VERSION), "horizons": np.array(self.horizons)}
        fields["names"] = np.frombuffer(json.dumps(self._names).encode(), np.uint8)
        for part in (self._rules, self._state, self._model, self._risk):
            named = part._asdict()
            fields |= {f"{type(part).__name__}.{name}": np.asarray(named[name]) for name in named}
        return pack_arrays(**fields)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Rebuild a guard that goes on exactly as the one that wrote the bytes.

        Raises
        ------
        ValueError
            When the bytes are no guard's, or of another version.
        """
        try:
            fields = unpack_arrays(data)
            version = int(fields["version"])
        except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"data holds no guard ({error}): begin anew") from error
        if version != VERSION:
            raise ValueError(f"data is of version {version}, this library's is {VERSION}")
        of = fields["Rules.workers"]
        workers = [np.flatnonzero(of == number).tolist() for number in range(of.max() + 1)]
        self = cls(
            workers,
            fields["Rules.epsilon"],
            float(fields["Rules.delta"]),
            int(fields["horizons"]),
            fields["Rules.seasons"].tolist(),
            json.loads(fields["names"].tobytes()),
        )
        for kind, attribute in ((State, "_state"), (Model, "_model"), (Risk, "_risk")):
            parts = {name: fields[f"{kind.__name__}.{name}"] for name in kind._fields}
            for name, fresh in getattr(self, attribute)._asdict().items():
                if parts[name].shape != fresh.shape or parts[name].dtype != fresh.dtype:
                    raise ValueError(f"data holds no guard: {name} does not fit; begin anew")
            setattr(self, attribute, kind(**parts))
        return self

    def __repr__(self) -> str:
        declared, wrong, _ = self.kept
        return (
            f"Guard of {self._rules.workers.size} sensors after {self.rounds} windows: "
            f"{int(declared.sum())} promises, {int(wrong.sum())} wrong"
        )
