"""A claim of a document as one object: its sentence, its main reading, its judge and its verdict.

A judge makes a `Finding` from a notebook's variables, and the claim's `Threshold` decides on it.
The claim also has the verdict on record, `recorded`, with which a run is compared.

Each package that judges claims lists them as `CLAIMS` in its ``claims.py``, and its function
`summarize` there makes a run's `Summary` from records and parameters.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import le, lt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.checks import require_choice
from aftlib.core.intervals import t_interval

VERDICTS = ("holds", "holds if", "does not hold", "open", "not run")
HOLDS, HOLDS_IF, DOES_NOT_HOLD, OPEN, NOT_RUN = VERDICTS
BASES = ("exact", "measured", "simulated", "modelled")
EXACT, MEASURED, SIMULATED, MODELLED = BASES
#: Observations below which an interval says nothing; the number of observations is shown then.
FEWEST = 5

Value = str | int | float | None


@dataclass(frozen=True)
class Threshold:
    """The values with which a claim holds: from `low` to `high`, both excluded if `strict`.

    Parameters
    ----------
    source
        Origin of the numbers: the document's sentence, or ``"ours: "`` with the range of bounds
        for which the verdict stays the same.
    low, high
        Bounds, in the claim's unit.
    strict
        Whether a value equal to a bound is outside.
    """

    source: str
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False

    def decide(self, low: float, high: float) -> str:
        """Return the verdict on a confidence interval; pass a single value as both ends."""
        within = lt if self.strict else le
        if within(self.low, low) and within(high, self.high):
            return HOLDS
        meets = within(self.low, high) and within(low, self.high)
        return OPEN if meets else DOES_NOT_HOLD


@dataclass(frozen=True)
class Finding:
    """The result of an experiment for one claim.

    Parameters
    ----------
    value
        The one number that decides, in the claim's unit, or a text where the verdict is a fact.
    interval
        95 % interval of `value`, low and high; None below `FEWEST` observations.
    n, counted
        Number and kind of the independent observations, such as 72 and ``"kills"``.
    text
        The number as a reader sees it, with what it counts and its unit, such as ``"21 of 21
        combinations"``; empty where `value` and the claim's unit say it.
    holds
        Decides where the claim has no threshold; refused beside one.
    fails
        Reason why a second condition of the claim is not met; the claim then does not hold.
    sensitivity
        What would change the verdict, such as another interpretation; empty if nothing is known.
    condition
        The claim's condition with the numbers of this run; empty if `Claim.condition` has none.
    control
        Whether the experiment could have shown the contrary; if not, the claim stays open.
    missing
        Reason why nothing could be judged; the claim then counts as not run.
    """

    value: Value
    interval: tuple[float, float] | None = None
    n: int | None = None
    counted: str = ""
    text: str = ""
    holds: bool | None = None
    fails: str = ""
    sensitivity: str = ""
    condition: str = ""
    control: bool = True
    missing: str = ""

    def __post_init__(self) -> None:
        for name in ("value", "n"):
            value = getattr(self, name)
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())
        if self.interval is None:
            return
        low, high = (float(bound) for bound in self.interval)
        if not low <= high:
            raise ValueError(f"interval must run from low to high, got {self.interval!r}")
        if self.n is not None and self.n < FEWEST:
            raise ValueError(
                f"interval needs at least {FEWEST} observations, got n = {self.n}: leave it None"
            )
        object.__setattr__(self, "interval", (low, high))


def has_too_few(interval: tuple[float, float] | None, n: int | None) -> bool:
    """Return whether `n` observations without an interval are too few for one."""
    return interval is None and n is not None and n < FEWEST


def mean_ratio(ratios: ArrayLike) -> tuple[float, tuple[float, float] | None]:
    """Return the geometric mean of turns' ratios and its t interval, None below `FEWEST` turns.

    >>> mean_ratio([1.0, 4.0])
    (2.0, None)
    """
    logs = np.log(np.asarray(ratios, dtype=float))
    if len(logs) < FEWEST:
        return float(np.exp(logs.mean())), None
    centre, low, high = (float(np.exp(bound)) for bound in t_interval(logs))
    return centre, (low, high)


def not_run(why: str) -> Finding:
    """Return the finding for a claim that cannot be judged, for the reason `why`."""
    return Finding(None, missing=why)


@dataclass(frozen=True)
class Claim:
    """One claim of a document with its one main reading, which alone decides the verdict.

    Parameters
    ----------
    id
        The document's id, a hyphen and a number: ``"D1-3"``.
    quote
        The document's sentence, translated; of a claim of this project, the sentence itself.
    section
        Where the sentence stands, such as ``"6.2"`` or ``"fig. 12"``.
    main
        The main reading: what is compared with what, and why the text means this.
    judge
        Function that returns a `Finding`; its parameters name the notebook's variables.
    expected
        The value with which the claim holds, as text for readers, whatever the verdict is.
    threshold
        The same as numbers; None where `Finding.holds` decides.
    condition
        One condition that a reader can check. A claim with a condition that meets its threshold
        "holds if". Required if `recorded` is "holds if", refused if it is "holds". Where the run
        decides a number, its name stands in braces, and `Finding.condition` has the number.
    basis
        One of `BASES`.
    by_construction
        Reason why the claim cannot fail, such as ``"the planner's input is T_SLA alone"``; empty
        where it could.
    unit
        Unit of the number.
    project
        Whether the claim is this project's and not the document's.
    timed
        Whether a measured time decides, because a busy machine may change it. Fewer than `FEWEST`
        observations then decide nothing, and the claim stays open.
    recorded
        The verdict that a run is expected to give.
    """

    id: str
    quote: str
    section: str
    main: str
    judge: Callable[..., Finding]
    expected: str = ""
    threshold: Threshold | None = None
    condition: str = ""
    basis: str = MEASURED
    by_construction: str = ""
    unit: str = ""
    project: bool = False
    timed: bool = False
    recorded: str = HOLDS

    def __post_init__(self) -> None:
        if not self.document or self.document == self.id:
            raise ValueError(
                f"id must be a document, a hyphen and a number such as D4-5, got {self.id!r}"
            )
        require_choice(f"recorded of {self.id}", self.recorded, VERDICTS[:-1])
        if self.recorded == (HOLDS if self.condition else HOLDS_IF):
            raise ValueError(
                f"condition of {self.id} must be given exactly if it is recorded as {HOLDS_IF!r}, "
                f"got {self.condition!r} and {self.recorded!r}"
            )

    @property
    def document(self) -> str:
        """The id of the document that makes the claim."""
        return self.id.partition("-")[0]

    def find(self, variables: Mapping[str, Any]) -> Finding:
        """Return the judge's finding on the variables that its parameters name.

        ValueError when such a variable is missing.
        """
        parameters = inspect.signature(self.judge).parameters.values()
        names = [p.name for p in parameters if p.default is inspect.Parameter.empty]
        if lacking := [name for name in names if name not in variables]:
            raise ValueError(
                f"claim {self.id} is judged by {', '.join(names)}, but there is no "
                f"{lacking[0]!r}: make it before the scorecard"
            )
        return self.judge(**{name: variables[name] for name in names})

    def decide(self, finding: Finding) -> str:
        """Return the verdict on a finding.

        An interval inside the threshold holds (under the claim's condition, if it has one), one
        outside does not hold, and one across a bound leaves the claim open. A single value decides
        where there is no interval, but too few measured times leave the claim open. A finding that
        `fails` does not hold.
        """
        if finding.missing:
            return NOT_RUN
        if self.threshold is not None and finding.holds is not None:
            raise ValueError(
                f"holds of the finding for {self.id} must be None beside a threshold, got "
                f"{finding.holds!r}: use `fails` for a second condition"
            )
        if self.timed and has_too_few(finding.interval, finding.n):
            return OPEN
        if finding.fails:
            return DOES_NOT_HOLD
        if self.threshold is None:
            if finding.holds is None:
                raise ValueError(f"claim {self.id} needs a threshold, or a finding with `holds`")
            verdict = HOLDS if finding.holds else DOES_NOT_HOLD
        else:
            value = finding.value
            if not isinstance(value, int | float):
                raise ValueError(f"claim {self.id} compares a number with bounds, got {value!r}")
            verdict = self.threshold.decide(*(finding.interval or (value, value)))
        if verdict == HOLDS and not finding.control:
            return OPEN
        return HOLDS_IF if verdict == HOLDS and self.condition else verdict


@dataclass(frozen=True)
class Summary:
    """The box on top of a report, in whole sentences.

    It says what a document claims, what a run found, how sure that is, and where it stops. All
    values and judgements come from the run.
    """

    claimed: str
    found: str
    sure: str
    limits: str
