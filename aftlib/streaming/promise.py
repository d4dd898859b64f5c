"""The guarantee for a stream: its sensors, its windows, and the errors of estimates."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from aftlib.core.checks import listed, require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.planfile import StreamPlan
from aftlib.core.windows import AGGREGATES
from aftlib.guard.estimator import Rules
from aftlib.guard.guard import Guard
from aftlib.guard.guards import Guards
from aftlib.guard.known import KnownModel
from aftlib.guard.learned import Learned
from aftlib.guard.predictor import new_predictor

_OF_INPUT = ("watermark", "ahead", "behind")
"""Parameters that decide which rows enter a window, and may change between runs of a query."""
_OF_GUARDS = ("workers", "epsilon", "delta", "model", "predictor", "learned")
"""Parameters that may change as well. If the sensors stay, each guard keeps what it learned."""
MOST_LEARNED = 900_000
"""Longest text of what was learned with which a stream begins. Spark broadcasts code of 1 MB, which
its keyed state in Python then cannot load (BROADCAST_VARIABLE_NOT_LOADED, pyspark 4.3)."""


@dataclass(frozen=True)
class Promise:
    """The guarantee for a stream: its sensors, its windows, and the errors of estimates.

    Parameters
    ----------
    workers : sequence of sequences of str
        The sensors of each worker, which are lost together. Each sensor once.
    epsilon : float or dict of str to float
        Largest error ε of an estimated window, in sensor units; one for all, or each sensor's by
        its name (also a Series, or a list in the order of `workers`).
    delta : float
        Share δ of the estimated windows whose error may be larger than ε.
    window, slide : str
        Durations as pandas reads them, such as "10min", or timedeltas; by default windows tumble.
    watermark : str
        How far one sensor may be behind another. A window ends when a sample comes whose time is at
        least this much after the window's end.
    query : str
        "mean", "sum", or an SQL aggregate of a window's samples `value` that is a number, such as
        "max(value)", "percentile_approx(value, 0.95)" or "count(value)". Estimates are of this
        number. It must be the same for the same samples in any order.
    samples : int
        Number of one sensor's samples in a whole window.
    share : float
        Least share of these samples in a window that is used; a window with fewer counts as
        missing. For mean and sum the default is half of them, as in ``aft plan``. An SQL aggregate
        needs whole windows, so 1, because the maximum of a part says little of the whole.
    horizons : int
        H, the largest number of windows of an outage that a guarantee covers.
    seasons : sequence of str
        Known seasonal periods, such as "24h", the most important first.
    model : GaussianModel, optional
        Known model of the windows' results, such as ``model.aggregate(samples, query)``, with the
        sensors as names. Then estimates are those of D1, and the guarantee holds if the model does
        (`guard.known`). By default a guard learns from the stream. An SQL aggregate has none.
    predictor : str, optional
        A class "module:Class", whose objects predict in place of the guards, one per group
        (`aftlib.guard.predictor`). Each Python process of Spark must be able to import it.
    ahead : str
        Rows later than the time of the micro-batch by more than this are rejected, because one of
        them would move the watermark past all others.
    behind : str
        Rows before this point in time are rejected. The default rejects clocks that were never set,
        which begin in 1970.
    learned : str, optional
        What the guard of a plan learned, with which each group's guard begins; `from_plan` reads
        it. The sensors, windows and seasons must be the plan's.

    Raises
    ------
    ValueError
        When a duration cannot be read, a sensor occurs twice, or a number is outside its range.

    Examples
    --------
    >>> promise = Promise([["a"], ["b", "c"]], epsilon=0.5, delta=0.05, window="10min")
    >>> promise.sensors, promise.width
    (['a', 'b', 'c'], 600000000)
    """

    workers: Sequence[Sequence[str]]
    epsilon: ArrayLike
    delta: float
    window: str | timedelta
    slide: str | timedelta | None = None
    watermark: str | timedelta = "0s"
    query: str = "mean"
    samples: int = 1
    share: float = None  # type: ignore[assignment]  # then set by `query`
    horizons: int = 5
    seasons: Sequence[str | timedelta] = ()
    model: GaussianModel | None = None
    predictor: str | None = None
    ahead: str | timedelta = "1h"
    behind: str = "1971-01-01"
    learned: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.share is None:
            object.__setattr__(self, "share", 0.5 if self.query in [*AGGREGATES] else 1.0)
        require_number("samples", self.samples, least=1, whole=True)
        require_number("share", self.share, above=0, most=1)
        if self.query not in [*AGGREGATES]:
            self._require_aggregate()
        if not self.width:
            raise ValueError(f"window must be above 0, got {self.window!r}: give '10min' or so")
        if not 0 < self.step <= self.width:
            raise ValueError(
                f"slide must be above 0 and at most window = {self.window}, got {self.slide}; "
                "a longer one would leave samples out of every window"
            )
        microseconds("watermark", self.watermark)
        microseconds("ahead", self.ahead)
        self.earliest  # noqa: B018 - refuses a `behind` that is no point in time
        if self.learned is not None and (self.model is not None or self.predictor is not None):
            raise ValueError(
                "learned must be None beside a known model or a predictor, got a plan's: leave one "
                "of them out"
            )
        if self.model is not None and self.predictor is not None:
            raise ValueError(
                f"predictor must be None beside a known model, got {self.predictor!r}: leave "
                "one of them out"
            )
        # made only to refuse the other parameters
        self.guard() if self.model is None else self.known_model

    def _require_aggregate(self) -> None:
        """Refuse what cannot be an SQL aggregate; `streaming.aggregation` lets Spark read it."""
        query = self.query
        if not isinstance(query, str) or not re.search(r"(?i)\bvalue\b", query):
            raise ValueError(
                f"query must be {', '.join(AGGREGATES)} or an SQL aggregate of value such as "
                f"'max(value)', got {query!r}"
            )
        if self.share != 1:
            raise ValueError(
                f"share must be 1 with query = {query!r}, got {self.share}: leave it out, because "
                "only of a mean or a sum a part of a window's samples says something"
            )
        if self.model is not None:
            raise ValueError(
                f"model must be None with query = {query!r}, got a model: leave it out, and a guard"
                f" learns; a known model is one of {' or '.join(AGGREGATES)}"
            )

    @classmethod
    def from_plan(cls, path: Path | str, **changes: Any) -> Self:
        """Return the promise of a plan that ``aft plan`` wrote.

        The stream begins with what the plan's guard learned, and so certifies from its first window
        on. A known model or an own predictor does not use it. `changes` replace parameters, such as
        ``watermark="30s"`` or ``workers=[["b"], ["a"]]``; all others are the plan's, its seasons
        too. ``epsilon={"b": 0.3}`` replaces the plan's ε of the sensors that it names. With other
        sensors, windows or seasons, ``learned=None`` begins without what was learned.

        ValueError when the file is no plan, its samples have no time step, a sensor has no ε, or
        what was learned does not fit the changes.
        """
        plan = StreamPlan.read(path)
        question = plan.question
        if plan.data.step_seconds is None:
            raise ValueError(
                f"plan must have times, got {str(path)!r} without step_seconds: make a new plan "
                "from a file with a column of times"
            )
        terms = plan.terms()
        parameters: dict[str, Any] = {
            "workers": [list(worker) for worker in plan.assignment],
            "epsilon": question.epsilon,
            "delta": question.delta,
            "window": f"{terms['window']}us",
            "slide": f"{terms['slide']}us",
            "query": question.query,
            "samples": question.window,
            "share": None if question.query == "mean" else 1.0,  # as in the plan
            "horizons": question.horizons,
            "seasons": [f"{season}us" for season in terms["seasons"]],
        }
        if changes.get("model") is None and changes.get("predictor") is None:
            if len(plan.learned or "") <= MOST_LEARNED:
                parameters["learned"] = plan.learned
            elif "learned" not in changes:
                warnings.warn(
                    "the plan has too many sensors for Spark's keyed state to load what its guard "
                    "learned (some 30 fit), so groups begin without it; give learned=None if this "
                    "is meant",
                    stacklevel=2,
                )
        parameters |= changes
        if isinstance(parameters["epsilon"], Mapping):
            limits = {**question.epsilon, **parameters["epsilon"]}
            sensors = [name for worker in parameters["workers"] for name in worker]
            if missing := [name for name in sensors if name not in limits]:
                raise ValueError(
                    f"epsilon must have each sensor, got none for {listed(missing)}, which the "
                    f"plan lacks: give epsilon={{{missing[0]!r}: …}}"
                )
            parameters["epsilon"] = {name: limits[name] for name in sensors}
        return cls(**parameters)

    @cached_property
    def sensors(self) -> list[str]:
        """All sensors, in the order of `workers`."""
        return [name for worker in self.workers for name in worker]

    @property
    def width(self) -> int:
        """Length of a window in microseconds."""
        return microseconds("window", self.window)

    @property
    def step(self) -> int:
        """Time from one window's start to the next one's, in microseconds."""
        return microseconds("slide", self.slide) if self.slide is not None else self.width

    @property
    def earliest(self) -> pd.Timestamp:
        """The parameter `behind` as a point in time, in UTC unless it names another zone."""
        time = pd.to_datetime(self.behind, errors="coerce", utc=True)
        if not isinstance(time, pd.Timestamp):  # NaT is none
            raise ValueError(
                f"behind must be a point in time such as '2020-01-01', got {self.behind!r}"
            )
        return time

    @cached_property
    def limits(self) -> list[float]:
        """Limit ε of each sensor, in the order of `workers`."""
        return self.rules.epsilon.tolist()

    @cached_property
    def content(self) -> str:
        """The parameters that the state of a guard depends on, as JSON; a hash of `learned`."""
        fixed = {name: value for name, value in asdict(self).items() if name not in _OF_INPUT}
        if self.learned is not None:
            fixed["learned"] = blake2b(self.learned.encode(), digest_size=16).hexdigest()
        fixed["epsilon"] = dict(zip(self.sensors, self.limits, strict=True))
        return json.dumps(fixed, default=plain, sort_keys=True)

    @classmethod
    def from_content(cls, content: str, learned: str | None = None) -> Self:
        """Return the promise that `content` describes; a group's name is left out."""
        fields = json.loads(content)
        fields.pop("group", None)
        if fields["model"] is not None:
            fields["model"] = GaussianModel(**fields["model"])
        return cls(**fields | {"learned": learned})

    def guard(self, start: int | None = None) -> Guard:
        """Return a new guard; `start` is that of its first window, in microseconds since 1970."""
        starts = None if start is None else np.array([start])
        return Guard.of_guards(self.guards(1, starts), self.sensors)

    def guards(self, number: int, starts: np.ndarray | None = None) -> Guards:
        """Return new guards as one set; `starts` are those of their first windows."""
        if self.learned is None:
            return Guards.begin(self.rules, number, self.predictors(number))
        first, until = self._first_guard
        guards = Guards(self.rules, first.rows.repeat(number))
        if starts is not None:
            guards.state.phase[...] += (starts - until) / self.step
        return guards

    def predictors(self, number: int) -> list[Any]:
        """Return new objects of the user's class, or none without one."""
        path = self.predictor
        return [] if path is None else [new_predictor(path) for _ in range(number)]

    def goes_on(self, content: str) -> bool:
        """Whether guards of a former promise with this `content` learned what ours can use."""
        former = json.loads(content)
        learns = former["predictor"] is None and self.predictor is None
        return learns and former["epsilon"].keys() == {*self.sensors}

    @cached_property
    def _first_guard(self) -> tuple[Guards, int]:
        """The guard with which each group begins, and the end of the windows that it learned.

        ValueError when what was learned does not fit.
        """
        learned = Learned.from_text(str(self.learned))
        learned.require_terms(
            workers=sorted(self.sensors),
            window=self.width,
            slide=self.step,
            query=self.query,
            seasons=[microseconds("each of seasons", season) for season in self.seasons],
        )
        return learned.begin(self.rules, self.sensors), learned.terms["until"]

    @cached_property
    def rules(self) -> Rules:
        """The parameters of all groups' estimators."""
        alone = [worker for worker in self.workers if isinstance(worker, str)]
        if odd := alone or [name for name in self.sensors if not isinstance(name, str)]:
            raise ValueError(
                f"workers must be lists of sensors' names, got {odd[0]!r}: give [['{odd[0]}'], …], "
                "and cast the stream's column of sensors to string"
            )
        names = self.sensors
        if twice := sorted(name for name, number in Counter(names).items() if number > 1):
            raise ValueError(f"workers must hold each sensor once, got {', '.join(twice)} twice")
        periods = [microseconds("each of seasons", season) / self.step for season in self.seasons]
        return Rules.check(self._places, self.epsilon, self.delta, self.horizons, periods, names)

    @property
    def _places(self) -> list[list[int]]:
        """The sensors of each worker by their places in `sensors`."""
        place = {name: i for i, name in enumerate(self.sensors)}
        return [[place[name] for name in worker] for worker in self.workers]

    @cached_property
    def known_model(self) -> KnownModel:
        """An estimator by the known model, as before the first window."""
        limits = self.limits  # refuses a sensor that occurs twice
        model = self.model
        if not isinstance(model, GaussianModel):
            raise ValueError(f"model must be a GaussianModel, got {model!r}: fit one to windows")
        if odd := sorted({*model.names} ^ {*self.sensors}):
            raise ValueError(
                f"model must have the sensors of the workers, got others in {listed(odd)}: give it "
                "their names"
            )
        at = [model.names.index(name) for name in self.sensors]
        in_order = GaussianModel(model.mean[at], model.covariance[np.ix_(at, at)], self.sensors)
        return KnownModel(in_order, self._places, limits, self.delta, self.horizons)


def fixed_part(content: str) -> list[tuple[str, Any]]:
    """Return the parameters of a content that may not change between two runs of a query."""
    parameters = sorted(json.loads(content).items())
    return [(name, value) for name, value in parameters if name not in _OF_GUARDS]


def plain(value: Any) -> Any:
    """Return a duration or an array as JSON knows it."""
    if isinstance(value, timedelta):
        return f"{microseconds('duration', value)}us"
    return value.tolist()


def microseconds(name: str, duration: str | timedelta) -> int:
    """Return a duration such as "10min" in microseconds; errors name the argument `name`."""
    if not isinstance(duration, str | timedelta):  # pandas would read a number as nanoseconds
        raise ValueError(f"{name} must be a duration such as '10min', got {duration!r}")
    length = pd.to_timedelta(duration, errors="coerce")
    if length is pd.NaT:
        raise ValueError(f"{name} must be a duration such as '10min', got {duration!r}")
    if length < pd.Timedelta(0):
        raise ValueError(f"{name} must not be negative, got {duration!r}")
    return length // pd.Timedelta(microseconds=1)
