"""A claim of a document as one object: what it says, how it is judged, what runs are to find.

Each package that settles claims lists them as `CLAIMS` in its ``claims.py``.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

HOLDS, DEVIATES, UNDECIDED, NOT_RUN = "holds", "deviates", "undecided", "not run"
VERDICTS = (HOLDS, DEVIATES, UNDECIDED, NOT_RUN)
MEASURED, SIMULATED, MODELLED, DERIVED = "measured", "simulated", "modelled", "derived"
BASES = (MEASURED, SIMULATED, MODELLED, DERIVED)

Value = str | int | float | None


@dataclass(frozen=True)
class Limit:
    """The values with which a claim holds: from `low` to `high`, both excluded if `strict`.

    By default the measured value decides. With `by_interval` the claim holds as long as its
    confidence interval reaches into the limit: chance alone breaks no guarantee.
    """

    low: float = -math.inf
    high: float = math.inf
    strict: bool = False
    by_interval: bool = False

    def permits(self, low: float, high: float) -> bool:
        """Return whether any value from `low` to `high` is within the limit."""
        if self.strict:
            return high > self.low and low < self.high
        return high >= self.low and low <= self.high


@dataclass(frozen=True)
class Finding:
    """What an experiment says about one claim.

    Parameters
    ----------
    value
        What was found, in the claim's unit; a text where one number does not say it.
    interval
        Confidence interval of `value`, low and high.
    note
        What a reader must know to judge the verdict.
    conditions
        Whether all else is so that the claim needs beside its limit.
    expected, limit
        These instead of the claim's own, where they depend on the experiment.
    missing
        Why nothing can be judged; the claim counts as not run.
    """

    value: Value
    interval: tuple[float, float] | None = None
    note: str = ""
    conditions: bool = True
    expected: Value = None
    limit: Limit | None = None
    missing: str = ""

    def __post_init__(self) -> None:
        if str(self.conditions) not in ("True", "False"):  # numpy's bool too, but no count
            raise ValueError(
                f"conditions must be True or False, got {self.conditions!r}: compare first"
            )
        for name in ("value", "expected"):
            object.__setattr__(self, name, _plain(name, getattr(self, name)))
        if self.interval is None:
            return
        bounds = [_plain("interval", bound) for bound in self.interval]
        if len(bounds) != 2 or not all(isinstance(bound, int | float) for bound in bounds):
            raise ValueError(f"interval must be (low, high) or None, got {self.interval!r}")
        low, high = (float(bound) for bound in bounds)  # type: ignore[arg-type]
        if low > high:
            raise ValueError(f"interval must run from low to high, got {self.interval!r}")
        object.__setattr__(self, "interval", (low, high))


def nothing(why: str) -> Finding:
    """Return the finding of an experiment that cannot judge a claim, because of `why`."""
    return Finding(None, missing=why)


@dataclass(frozen=True)
class Claim:
    """One claim of a document, in our words.

    Parameters
    ----------
    id
        The document's id, a hyphen and a number: ``"D1-3"``.
    statement
        What is claimed.
    judge
        Function from frames of the notebook, which it names as its parameters, to a `Finding`.
    source
        Where the document says so, such as ``"fig. 12"``.
    expected
        What the document says is measured, as a reader wants it.
    limit
        Values with which the claim holds; None where `Finding.conditions` alone decides.
    unit
        What a measured number counts, or is a share or multiple of.
    basis
        One of `BASES`: whether the value is observed, simulated, made by a cost model, or follows
        from a formula.
    timed
        Whether a time decides, which a busy machine may change.
    figure
        How the title of the figure begins that shows it.
    formula
        The equation that it is about, as LaTeX.
    recorded
        The verdict that our runs are expected to give.
    """

    id: str
    statement: str
    judge: Callable[..., Finding]
    source: str = ""
    expected: Value = None
    limit: Limit | None = None
    unit: str = ""
    basis: str = MEASURED
    timed: bool = False
    figure: str = ""
    formula: str = ""
    recorded: str = HOLDS

    def __post_init__(self) -> None:
        if not self.document or self.document == self.id:
            raise ValueError(f"id must be a document's, a hyphen and a number, got {self.id!r}")
        known = {"basis": BASES, "recorded": VERDICTS[:-1]}
        for name, values in known.items():
            if (value := getattr(self, name)) not in values:
                raise ValueError(f"{name} of {self.id} must be one of {values}, got {value!r}")

    @property
    def document(self) -> str:
        """The id of the document that makes the claim."""
        return self.id.partition("-")[0]

    def find(self, frames: Mapping[str, Any]) -> Finding:
        """Return what its judge finds in those of `frames` that it names.

        ValueError where one of them is not there.
        """
        parameters = inspect.signature(self.judge).parameters.values()
        names = [p.name for p in parameters if p.default is inspect.Parameter.empty]
        if lacking := [name for name in names if name not in frames]:
            raise ValueError(
                f"claim {self.id} is judged by {', '.join(names)}, but there is no "
                f"{lacking[0]!r}: make that frame before the scorecard"
            )
        return self.judge(**{name: frames[name] for name in names})

    def decide(self, finding: Finding) -> str:
        """Return the verdict: from value, interval and limit, and from the finding's conditions."""
        if finding.missing:
            return NOT_RUN
        limit = finding.limit or self.limit
        value, permitted = finding.value, True
        if limit is not None:
            at = (value, value) if isinstance(value, int | float) else (math.nan, math.nan)
            reach = finding.interval if limit.by_interval and finding.interval else at
            permitted = limit.permits(*reach)
        return HOLDS if permitted and finding.conditions else DEVIATES


def _plain(name: str, value: Any) -> Value:
    """Return `value` as a plain Python value that JSON can carry."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, a text or None, got {value!r}")
    return int(value) if isinstance(value, numbers.Integral) else float(value)
