"""A claim of a document as one object: its statement, its judge and its recorded verdict.

Each package that settles claims lists them as `CLAIMS` in its ``claims.py``.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import le, lt
from typing import Any

from aftlib.core.checks import require_choice

HOLDS, DEVIATES, UNDECIDED, NOT_RUN = "holds", "deviates", "undecided", "not run"
VERDICTS = (HOLDS, DEVIATES, UNDECIDED, NOT_RUN)
MEASURED, SIMULATED, MODELLED, DERIVED = "measured", "simulated", "modelled", "derived"
BASES = (MEASURED, SIMULATED, MODELLED, DERIVED)

POWER = 1 + 0.8416 / 1.96
"""Distance from a threshold, in half-widths of a 95 % interval, that is detected 80 % of the time.

At that distance 80 % of such intervals exclude the threshold.
"""

Value = str | int | float | None


@dataclass(frozen=True)
class Threshold:
    """The values with which a claim holds: from `low` to `high`, both excluded if `strict`.

    Parameters
    ----------
    source
        Where the numbers come from: the document's sentence, a statistical rule, or ``"ours: "``
        and the reason.
    low, high
        Bounds, in the claim's unit.
    strict
        Whether a value equal to a bound is outside.
    margin
        Distance by which an interval may exceed a bound. A plan whose error rate is exactly δ needs
        it, because no sample is large enough to show that this rate is at most δ.
    """

    source: str
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False
    margin: float = 0.0

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("source must say where the threshold comes from, got ''")
        if not self.low <= self.high or self.margin < 0:
            raise ValueError(f"low must be at most high and margin at least 0, got {self!r}")

    def decide(self, low: float, high: float) -> str:
        """Return the verdict on a confidence interval; pass a single value as both ends."""
        within = lt if self.strict else le
        if within(self.low, low + self.margin) and within(high - self.margin, self.high):
            return HOLDS
        meets = within(self.low, high) and within(low, self.high)
        return UNDECIDED if meets else DEVIATES


@dataclass(frozen=True)
class Finding:
    """The result of an experiment for one claim.

    Parameters
    ----------
    value
        Measured value, in the claim's unit; a text where one number does not suffice.
    interval
        Confidence interval of `value`, low and high.
    note
        Facts that a reader needs to judge the verdict.
    conditions
        Whether the claim's other conditions, besides its threshold, are met.
    control
        Whether the experiment could have shown the contrary. If not, the verdict is "undecided"
        instead of "holds".
    n, counted
        Number and kind of the independent observations behind `value`, such as ``"kills"``.
    detectable
        Smallest deviation from the threshold that the experiment would detect in 80 % of its
        repetitions. It follows from the interval.
    readings
        Findings under other plausible readings of the document, by name. The verdict is undecided
        when they disagree.
    parts
        Findings that must hold as well, by name, such as one per data set. The verdict is the worst
        of all.
    expected, threshold, unit
        Values that replace the claim's own if they depend on the experiment or the reading.
    missing
        Reason why nothing can be judged; the claim then counts as not run.
    """

    value: Value
    interval: tuple[float, float] | None = None
    note: str = ""
    conditions: bool = True
    control: bool = True
    n: int | None = None
    counted: str = ""
    detectable: float | None = field(default=None, init=False)
    readings: Mapping[str, Finding] = field(default_factory=dict)
    parts: Mapping[str, Finding] = field(default_factory=dict)
    expected: Value = None
    threshold: Threshold | None = None
    unit: str | None = None
    missing: str = ""

    def __post_init__(self) -> None:
        for name in ("conditions", "control"):
            if str(getattr(self, name)) not in ("True", "False"):  # numpy's bool too, but no count
                raise ValueError(
                    f"{name} must be True or False, got {getattr(self, name)!r}: give a comparison"
                )
        for name in ("value", "expected", "n"):
            object.__setattr__(self, name, _python_value(name, getattr(self, name)))
        if self.interval is None:
            return
        bounds = [_python_value("interval", bound) for bound in self.interval]
        if len(bounds) != 2 or not all(isinstance(bound, int | float) for bound in bounds):
            raise ValueError(f"interval must be (low, high) or None, got {self.interval!r}")
        low, high = (float(bound) for bound in bounds)  # type: ignore[arg-type]
        if low > high:
            raise ValueError(f"interval must run from low to high, got {self.interval!r}")
        object.__setattr__(self, "interval", (low, high))
        object.__setattr__(self, "detectable", (high - low) / 2 * POWER)


def nothing(why: str) -> Finding:
    """Return the finding for a claim that cannot be judged, for the reason `why`."""
    return Finding(None, missing=why)


@dataclass(frozen=True)
class Claim:
    """One claim of a document, in our words.

    Parameters
    ----------
    id
        The document's id, a hyphen and a number: ``"D1-3"``.
    statement
        The claim, as a sentence.
    judge
        Function that returns a `Finding`; its parameters name the notebook's frames that it needs.
    source
        Place of the claim in the document, such as ``"fig. 12"``.
    expected
        The document's value, as text for readers.
    threshold
        Values with which the claim holds; None where `Finding.conditions` alone decides.
    unit
        Unit of the measured number; for a share or a multiple, its reference.
    basis
        One of `BASES`: whether the value is observed, simulated, made by a cost model, or follows
        from a formula.
    project
        Whether the claim is ours and not the document's.
    timed
        Whether a measured time decides the verdict, because a busy machine may change it.
    figure
        Beginning of the title of the figure that shows the finding.
    formula
        The claim's equation, as LaTeX.
    recorded
        The verdict that our runs are expected to give.
    """

    id: str
    statement: str
    judge: Callable[..., Finding]
    source: str = ""
    expected: Value = None
    threshold: Threshold | None = None
    unit: str = ""
    basis: str = MEASURED
    project: bool = False
    timed: bool = False
    figure: str = ""
    formula: str = ""
    recorded: str = HOLDS

    def __post_init__(self) -> None:
        if not self.document or self.document == self.id:
            raise ValueError(
                f"id must be a document, a hyphen and a number such as D4-5, got {self.id!r}"
            )
        require_choice(f"basis of {self.id}", self.basis, BASES)
        require_choice(f"recorded of {self.id}", self.recorded, VERDICTS[:-1])

    @property
    def document(self) -> str:
        """The id of the document that makes the claim."""
        return self.id.partition("-")[0]

    def find(self, frames: Mapping[str, Any]) -> Finding:
        """Return the judge's finding; the judge gets the frames that its parameters name.

        ValueError when such a frame is missing.
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
        """Return the verdict on a finding, its findings under other readings included.

        The verdict is "holds" for a confidence interval within the threshold, "deviates" for one
        outside, and "undecided" for one across a bound. It is also "undecided" when readings
        disagree, or when the control of a finding that would hold fails. A reading under which
        nothing can be judged is ignored.
        """
        if finding.missing:
            return NOT_RUN
        verdicts = {self._decide(each) for each in (finding, *finding.readings.values())}
        verdicts.discard(NOT_RUN)
        return verdicts.pop() if len(verdicts) == 1 else UNDECIDED

    def grounds(self, finding: Finding) -> list[dict[str, Any]]:
        """Return the values from which the verdict follows: one row per reading and part.

        As a reading, the name "" stands for the claim's own reading; as a part, for the finding
        itself. An unlimited bound is None. Without an interval, the measured value decides.
        """
        rows = []
        for reading, whole in {"": finding, **finding.readings}.items():
            for part, each in {"": whole, **whole.parts}.items():
                at = each.threshold or self.threshold or Threshold("conditions alone")
                row = {
                    "reading": reading,
                    "part": part,
                    "measured": each.value,
                    "unit": self.unit_of(each),
                    "interval": list(each.interval) if each.interval else None,
                    "n": each.n,
                    "counted": each.counted,
                    "threshold": at.source,
                    "low": at.low if math.isfinite(at.low) else None,
                    "high": at.high if math.isfinite(at.high) else None,
                    "strict": at.strict,
                    "margin": at.margin,
                    "conditions": bool(each.conditions),
                    "control": bool(each.control),
                    "verdict": self._alone(each),
                }
                rows.append(row)
        return rows

    def reading(self, finding: Finding) -> str:
        """Return a text with the value, interval and verdict of a finding under another reading."""
        raw = finding.value
        value = f"{raw:.4g}" if isinstance(raw, float) else raw
        interval = "" if finding.interval is None else "[{:.4g}, {:.4g}]".format(*finding.interval)
        words = [str(value), self.unit_of(finding), interval]
        return " ".join(filter(None, words)) + f", {self._decide(finding)}"

    def unit_of(self, finding: Finding) -> str:
        """Return the unit of the finding's value; "" if the value is a text or None."""
        if isinstance(finding.value, str | None):
            return ""
        return self.unit if finding.unit is None else finding.unit

    def _decide(self, finding: Finding) -> str:
        """Return the verdict under one reading, the worst of its parts."""
        alone = self._alone(finding)
        verdicts = {alone, *(self._decide(part) for part in finding.parts.values())}
        return next((worst for worst in (DEVIATES, UNDECIDED) if worst in verdicts), alone)

    def _alone(self, finding: Finding) -> str:
        """Return the verdict on the finding itself, whatever its parts show."""
        if finding.missing:
            return NOT_RUN
        threshold, value = finding.threshold or self.threshold, finding.value
        verdict = HOLDS
        if threshold is not None:
            at = (value, value) if isinstance(value, int | float) else (math.nan, math.nan)
            verdict = threshold.decide(*(finding.interval or at))
        if not finding.conditions:
            return DEVIATES
        return UNDECIDED if verdict == HOLDS and not finding.control else verdict


def _python_value(name: str, value: Any) -> Value:
    """Return `value` as a plain Python value that JSON can carry."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, a text or None, got {value!r}")
    return int(value) if isinstance(value, numbers.Integral) else float(value)
