"""Findings of runs about claims: shown as a scorecard in a notebook, stored as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field

from aftlib.workbench.claims import (
    BASES,
    DEVIATES,
    HOLDS,
    NOT_RUN,
    UNDECIDED,
    VERDICTS,
    Claim,
    Finding,
    Threshold,
    Value,
)
from aftlib.workbench.pages import SYMBOLS, not_default, render

MIME = "application/vnd.aft.claims+json"


class ClaimRecord(BaseModel):
    """One line of ``claims.json``: a claim, the finding of a run, and the identity of that run.

    `changed` are the parameters that had other values than the profile's own. An out-of-date run
    counts as not run, and `earlier` is its verdict. `grounds` are the result of `Claim.grounds`,
    from which the verdict can be decided again. ValueError (pydantic's) for a field that is
    missing, unknown or of the wrong type, such as in a line of another version.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    version: Literal[2] = 2
    id: str
    document: str
    statement: str
    source: str
    expected: Value
    measured: Value
    unit: str  # of `measured`; empty for a text
    interval: tuple[float, float] | None
    n: int | None = None
    counted: str = ""
    detectable: float | None = None
    readings: dict[str, str] = {}
    parts: dict[str, str] = {}
    threshold: str = ""
    grounds: list[dict[str, Any]] = []
    verdict: str = Field(pattern=f"^({'|'.join(VERDICTS)})$")
    basis: str = Field(pattern=f"^({'|'.join(BASES)})$")
    note: str
    project: bool
    timed: bool
    recorded: str
    figure: str
    formula: str
    notebook: str = ""
    profile: str = ""
    changed: dict[str, Any] = {}
    earlier: str | None = None

    @classmethod
    def of(cls, claim: Claim, finding: Finding) -> ClaimRecord:
        """Return the record of the finding for `claim`."""
        known = vars(claim) | vars(finding)
        same = {name: value for name, value in known.items() if name in cls.model_fields}
        threshold = finding.threshold or claim.threshold
        fields = {
            "document": claim.document,
            "expected": claim.expected if finding.expected is None else finding.expected,
            "measured": finding.value,
            "unit": claim.unit_of(finding),
            "readings": {name: claim.reading(each) for name, each in finding.readings.items()},
            "parts": {name: claim.reading(each) for name, each in finding.parts.items()},
            "threshold": threshold.source if threshold else "",
            "grounds": claim.grounds(finding),
            "verdict": claim.decide(finding),
            "note": " ".join(filter(None, [finding.missing, finding.note])),
        }
        return cls(**(same | fields))

    def with_run(
        self, notebook: str, profile: str = "", changed: Mapping[str, Any] | None = None
    ) -> ClaimRecord:
        """Return the record, labelled with its run: notebook, profile and changed values."""
        about = {"notebook": notebook, "profile": profile, "changed": dict(changed or {})}
        return self.model_copy(update=about)

    def outdated(self) -> ClaimRecord:
        """Return the record marked as out of date."""
        return self.model_copy(update={"verdict": NOT_RUN, "earlier": self.verdict})

    @property
    def too_small(self) -> bool:
        """Whether the smoke profile judged a time, or a claim that more samples may decide."""
        undecided = UNDECIDED in (self.verdict, self.recorded)
        return self.verdict != NOT_RUN and self.profile == "smoke" and (self.timed or undecided)

    @property
    def word(self) -> str:
        """The symbol and the verdict, or "out of date" in its place if it is an earlier verdict."""
        return f"{SYMBOLS[self.verdict]} {'out of date' if self.earlier else self.verdict}"

    @property
    def remarks(self) -> list[str]:
        """Notes below the verdict: doubts, basis, values that are no defaults, recorded verdict."""
        if self.earlier:
            return [f"was {SYMBOLS[self.earlier]} {self.earlier}", *not_default(self.changed)]
        if self.verdict == NOT_RUN:
            return not_default(self.changed)
        remarks = [*self.doubts, self.basis, *not_default(self.changed)]
        if not self.as_recorded:
            return [*remarks, f"recorded: {self.recorded}"]
        return [*remarks, "as recorded"] if self.profile and not self.changed else remarks

    @property
    def doubts(self) -> list[str]:
        """The reasons of an undecided verdict, from `grounds`."""
        if self.verdict != UNDECIDED or not self.grounds:
            return []
        by_reading = dict[str, list[str]]()
        for row in self.grounds:
            by_reading.setdefault(row["reading"], []).append(row["verdict"])
        crosses = [_crosses(row) for row in self.grounds if row["verdict"] == UNDECIDED]
        reasons = {
            "readings disagree: gap of the document": any(
                {*verdicts} == {HOLDS} for verdicts in by_reading.values()
            )
            and any(DEVIATES in verdicts for verdicts in by_reading.values()),
            "interval crosses threshold: limit of the evidence": any(crosses),
            "control failed": not all(crosses),
        }
        return [reason for reason, applies in reasons.items() if applies]

    @property
    def as_recorded(self) -> bool:
        """Whether the verdict is the recorded one."""
        return self.verdict == self.recorded

    @property
    def contradicts(self) -> bool:
        """Whether the verdict contradicts the recorded verdict.

        An undecided verdict, or one that depends on the load of the machine, contradicts nothing.
        """
        undecided = UNDECIDED in (self.verdict, self.recorded)
        return not (self.as_recorded or undecided or self.timed)


def _crosses(row: Mapping[str, Any]) -> bool:
    """Whether the interval of a row of `grounds` crosses a bound; a single value never does."""
    low = -math.inf if row["low"] is None else row["low"]
    high = math.inf if row["high"] is None else row["high"]
    threshold = Threshold("the row's", low, high, row["strict"], row["margin"])
    return bool(row["interval"]) and threshold.decide(*row["interval"]) == UNDECIDED


def unexpected(claims: Iterable[ClaimRecord]) -> list[ClaimRecord]:
    """Return the claims whose verdict differs from the recorded one ("not run" always does).

    The smoke profile is too small for timed claims and for those that more samples may decide.
    """
    return [claim for claim in claims if not (claim.as_recorded or claim.too_small)]


@dataclass(frozen=True)
class Scorecard:
    """The verdicts on `claims`; as a cell's last value it is both a table and a record.

    `frames` has the notebook's variables by name, such as its ``globals()``; each claim's judge
    gets those that it names. Reports read the records back from the executed notebook, where they
    are stored next to the table as ``application/vnd.aft.claims+json``. When several scorecards of
    a notebook have the same claim, the last one counts. ValueError for a claim twice in one
    scorecard.
    """

    claims: Sequence[Claim]
    frames: Mapping[str, Any]

    def __post_init__(self) -> None:
        twice = [id for id, count in Counter(c.id for c in self.claims).items() if count > 1]
        if twice:
            raise ValueError(f"claims holds {', '.join(twice)} more than once: list each once")

    @cached_property
    def records(self) -> list[ClaimRecord]:
        """The finding for each claim."""
        return [ClaimRecord.of(claim, claim.find(self.frames)) for claim in self.claims]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {
            "text/html": claims_table(self.records),
            "text/plain": "\n".join(f"{record.id}: {record.verdict}" for record in self.records),
            MIME: [record.model_dump(mode="json") for record in self.records],
        }


def claims_table(
    claims: Sequence[ClaimRecord],
    link: bool = False,
    seeds: Mapping[str, str] | None = None,
    evidence: Mapping[str, str] | None = None,
) -> str:
    """Return the HTML table of `claims`; with `link`, each claim links to its line in its report.

    `evidence` has HTML with links to the figures behind a claim. The first sentence of a note is
    shown and the rest is folded, unless the claim deviates, because then a reader asks why.

    `seeds` has, by claim, a text such as ``holds in 4 of 5`` about runs with different seeds. Its
    column is left out if no claim has such a text.
    """
    texts = {claim.id: (seeds or {}).get(claim.id, "") for claim in claims}
    links = {id: Markup(html) for id, html in (evidence or {}).items()}
    column = texts if any(texts.values()) else {}
    return render("claims.html.j2", claims=claims, link=link, seeds=column, evidence=links)
