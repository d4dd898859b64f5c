"""The guard: it receives windows in order, and certifies which sensors' windows may be lost."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.checks import listed, names_in_order, require_number
from aftlib.core.labels import as_numbers, labels_of, values_by_name
from aftlib.core.storage import pack_arrays, unpack_arrays
from aftlib.guard.estimator import History, Recovered, Rules, require_measured
from aftlib.guard.guards import Guards, row_type
from aftlib.guard.learned import Learned
from aftlib.guard.predictor import STORED, Predictor, require_methods

VERSION = 13
"""Version of the bytes of a guard."""
_MOST_ROUNDS = 2**62 - 1  # for sums of int64


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
    predictor : Predictor, optional
        An object with the methods ``predict(windows)`` and ``learn(window)`` of
        `aftlib.guard.predictor.Predictor`, in place of the guard's own prediction. The bound holds
        for every predictor. `to_bytes` needs its methods ``to_bytes`` and ``from_bytes``, too.

    Raises
    ------
    ValueError
        When a sensor is missing or repeated, a number is outside its range, or a predictor lacks a
        method.

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
    >>> bool(abs(lost.estimate[0, 0] - 0.55) < 0.2), bool(lost.certified[0, 0])
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
        predictor: Predictor | None = None,
    ) -> None:
        if predictor is not None:
            require_methods(predictor, "predict", "learn")
        self._names = None if names is None else names_in_order(names)
        rules = Rules.check(workers, epsilon, delta, horizons, seasons, self._names)
        self._guards = Guards.begin(rules, predictors=[] if predictor is None else [predictor])

    @classmethod
    def of_guards(cls, guards: Guards, names: list[str] | None) -> Self:
        """Return the only guard of a set; its parameters are checked already."""
        guard = cls.__new__(cls)
        guard._guards = guards
        guard._names = names
        return guard

    def learned(self, names: Sequence[str], terms: Mapping[str, Any]) -> Learned:
        """Return what this guard learned; `names` has its sensors in order."""
        return Learned.of(self._guards, names, terms)

    def __copy__(self) -> Self:
        """Return a guard with a state of its own."""
        return copy.deepcopy(self)

    @property
    def rounds(self) -> int:
        """Number of windows so far."""
        return int(self._guards.state.rounds[0])

    @property
    def horizons(self) -> int:
        """Largest number H of windows of an outage that a guarantee covers."""
        return self._guards.rules.horizons

    @property
    def _size(self) -> int:
        """Number n of sensors."""
        return self._guards.rules.workers.size

    @property
    def recoverable(self) -> np.ndarray:
        """Whether window h from now would be certified if the loss begins now, shape (H, n).

        For a sensor that has been missing for r windows, it is the window h + r after its last one.
        The guarantee covers the usual gaps of other sensors, not rarer ones.
        """
        return np.asarray(self._guards.recoverable[0])

    @property
    def outcomes(self) -> np.ndarray:
        """Guarantees N with known outcome, the wrong ones E, and the slack, shape (3, H, n).

        E is at most δN + slack, whatever the data.
        """
        return self._guards.outcomes[:, 0]

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
            When shape or labels do not fit, or a value is infinite or too large; then the state
            stays as it was. An error of a predictor leaves the windows before it processed.
        """
        rows = self._arranged(windows)
        recovered = Recovered.empty(rows.shape)
        for r, row in enumerate(rows):
            part, _ = self._guards.advance(row[np.newaxis])
            recovered.put(slice(r, r + 1), part)
        return recovered

    def skip(self, rounds: int) -> None:
        """Process `rounds` windows in which no sensor sent anything, at the cost of H + 1 windows.

        The state is the same as after that many rows of NaN. ValueError when `rounds` is no whole
        number ≥ 0, or all rounds together come to 2**62.
        """
        require_number("rounds", rounds, least=0, most=_MOST_ROUNDS - self.rounds, whole=True)
        self._guards.skip(np.array([rounds]), np.array([0]))

    def replay(self, windows: Any) -> History:
        """Process many windows; return decisions and predictions as if each had been lost."""
        rows = self._arranged(windows)
        shape = (len(rows), self.horizons, self._size)
        history = History(np.zeros(shape, np.int64), np.full(shape, np.nan))
        for r, row in enumerate(rows):
            _, part = self._guards.advance(row[np.newaxis])
            history.decisions[r] = part.decisions[0]
            history.estimate[r] = part.estimate[0]
        return history

    def _arranged(self, windows: Any) -> np.ndarray:
        """Return windows in the order of the sensors, (rounds, n); ValueError if they do not fit.

        The first labels are remembered as the sensors' names.
        """
        names = self._names
        labels = labels_of(windows, names or ())
        if labels is not None:
            names = self._names_of(labels)
            windows = values_by_name("windows", windows, names)
        rows = np.atleast_2d(as_numbers("windows", windows, self._names or ()))
        if rows.ndim != 2 or rows.shape[1] != self._size:
            raise ValueError(
                f"windows must have shape ({self._size},) or (rounds, {self._size}), got "
                f"{np.shape(windows)}"
            )
        require_measured(rows)
        self._names = names
        return rows

    def _names_of(self, labels: list[str]) -> list[str]:
        """Return the names of the sensors in order."""
        numbers = [str(i) for i in range(self._size)]
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
        """Bytes of the state in memory, with those that a predictor counts as its `nbytes`."""
        predictors = self._guards.predictors
        return self._guards.rows.nbytes + sum(getattr(each, "nbytes", 0) for each in predictors)

    def to_bytes(self) -> bytes:
        """Return the whole state; the same bytes for the same state.

        ValueError when the guard has a predictor without the methods to_bytes and from_bytes.
        """
        fields: dict[str, Any] = vars(self._guards.rules) | {"rows": self._guards.rows}
        fields["names"] = np.frombuffer(json.dumps(self._names).encode(), np.uint8)
        predictors: Any = self._guards.predictors
        for predictor in predictors:
            require_methods(predictor, *STORED)
            fields["predictor"] = np.frombuffer(predictor.to_bytes(), np.uint8)
        return pack_arrays(version=VERSION, **fields)

    @classmethod
    def from_bytes(cls, data: bytes, predictor: Any = None) -> Self:
        """Return a guard that continues exactly as the one that wrote the bytes.

        A guard with a predictor needs one, whose method ``from_bytes`` returns the stored one.

        Raises
        ------
        ValueError
            When the bytes hold no guard, or one of another version, or a predictor is missing.
        """
        try:
            fields: dict[str, Any] = dict(unpack_arrays(data))
            if fields["version"] != VERSION:
                raise ValueError(f"version {fields['version']}")
            names = json.loads(fields["names"].tobytes())
            # numbers are arrays without axes, of which [()] is the number
            parts = {each.name: fields[each.name][()] for each in dataclasses.fields(Rules)}
            rules = Rules(**parts)
            rows = fields["rows"].astype(row_type(rules), casting="no")
        except Exception as error:  # damaged bytes raise what zipfile, tokenize and others raise
            raise ValueError(
                f"data holds no guard of version {VERSION}, got {error}: use the version of aftlib "
                "that wrote it, or start again"
            ) from error
        if ("predictor" in fields) != (predictor is not None):
            raise ValueError(
                f"predictor must be given if and only if the stored guard has one, got {predictor}:"
                " pass one of the same kind, or start again"
            )
        predictors = []
        if predictor is not None:
            require_methods(predictor, *STORED)
            predictors = [predictor.from_bytes(fields["predictor"].tobytes())]
        return cls.of_guards(Guards(rules, rows, predictors), names)
