"""Verdicts of a run: shown as a scorecard in a notebook, stored as JSON.

A `ClaimRecord` joins a claim and its finding. A notebook's output stores it without its run, which
is added when the record is read back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from aftlib.notebook.claims import (
    BASES,
    DOES_NOT_HOLD,
    HOLDS,
    HOLDS_IF,
    NOT_RUN,
    OPEN,
    VERDICTS,
    Claim,
    Finding,
    Value,
    has_too_few,
)
from aftlib.notebook.texts import render, shown, shown_interval

MIME = "application/vnd.aft.claims+json"
TEMPLATES = Path(__file__).with_name("templates")
SYMBOLS = {"holds": "✔", "holds if": "✔", "does not hold": "✘", "open": "≈", "not run": "○"}


class ClaimRecord(BaseModel):
    """One line of ``claims.json``: a claim, the finding of a run, and the identity of that run.

    ValueError (pydantic's) for a field that is missing, unknown or of the wrong type.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str
    document: str
    quote: str
    section: str
    main: str
    expected: Value
    measured: Value
    text: str
    unit: str
    interval: tuple[float, float] | None
    verdict: str = Field(pattern=f"^({'|'.join(VERDICTS)})$")
    condition: str
    threshold: str
    basis: str = Field(pattern=f"^({'|'.join(BASES)})$")
    by_construction: str
    n: int | None
    counted: str
    sensitivity: str
    project: bool
    timed: bool
    recorded: str
    notebook: str = ""
    profile: str = ""

    @classmethod
    def of(cls, claim: Claim, finding: Finding) -> ClaimRecord:
        """Return the record of the finding for `claim`."""
        known = vars(claim) | vars(finding)
        same = {name: value for name, value in known.items() if name in cls.model_fields}
        fields = {
            "document": claim.document,
            "measured": finding.value,
            "unit": "" if isinstance(finding.value, str | None) else claim.unit,
            "verdict": claim.decide(finding),
            "condition": finding.condition or claim.condition,
            "threshold": claim.threshold.source if claim.threshold else "",
            "sensitivity": finding.missing or finding.fails or finding.sensitivity,
        }
        return cls(**(same | fields))

    def with_run(self, notebook: str, profile: str = "") -> ClaimRecord:
        """Return the record, labelled with its run."""
        return self.model_copy(update={"notebook": notebook, "profile": profile})

    @property
    def word(self) -> str:
        """The symbol and the verdict, with its condition."""
        words = [SYMBOLS[self.verdict], self.verdict]
        return " ".join(words + [self.condition] * (self.verdict == HOLDS_IF))

    @property
    def number(self) -> str:
        """The number as a reader sees it, with its unit and interval."""
        words = [shown(self.measured), self.unit]
        words += [shown_interval(self.interval)] * (self.interval is not None)
        text = self.text or " ".join(word for word in words if word)
        if not (self.timed and has_too_few(self.interval, self.n)):
            return text
        kind = re.split("[,;]| with ", self.counted)[0] or "observations"
        return f"{text}; not enough {kind} ({self.n})"

    @property
    def evidence(self) -> str:
        """The basis of the number and its observations, such as ``exact, 105 points``."""
        words = [self.basis + ", by construction" * bool(self.by_construction)]
        if self.n is not None:
            words.append(f"{shown(self.n)} {self.counted}".strip())
        return ", ".join(words)

    @property
    def as_recorded(self) -> bool:
        """Whether the verdict is the recorded one."""
        return self.verdict == self.recorded

    @property
    def contradicts(self) -> bool:
        """Whether the verdict contradicts the recorded one.

        An open verdict, or one that a measured time decides, contradicts nothing.
        """
        return not (self.as_recorded or self.timed or OPEN in (self.verdict, self.recorded))


def unexpected(records: Iterable[ClaimRecord]) -> list[ClaimRecord]:
    """Return the records whose verdict differs from the recorded one ("not run" always does).

    The smoke profile is too small for timed claims, and leaves others open; so of its differences
    only contradictions and "not run" count.
    """
    return [
        record
        for record in records
        if not record.as_recorded
        and (record.contradicts or record.profile != "smoke" or record.verdict == NOT_RUN)
    ]


@dataclass(frozen=True)
class Scorecard:
    """The verdicts on `claims`; as a cell's last value it is both a table and a record.

    `variables` has the notebook's variables by name, such as its ``globals()``; each claim's judge
    gets those that it names. Reports read the records back from the executed notebook, where they
    are stored next to the table as ``application/vnd.aft.claims+json``. When several scorecards of
    a notebook have the same claim, the last one counts.
    """

    claims: Sequence[Claim]
    variables: Mapping[str, Any]

    @cached_property
    def records(self) -> list[ClaimRecord]:
        """The finding for each claim."""
        return [ClaimRecord.of(claim, claim.find(self.variables)) for claim in self.claims]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {
            "text/html": claims_table(self.records),
            "text/plain": "\n".join(f"{record.id}: {record.verdict}" for record in self.records),
            MIME: [record.model_dump(mode="json") for record in self.records],
        }


def claims_table(records: Sequence[ClaimRecord], link: bool = False) -> str:
    """Return the HTML table of claims; with `link`, each claim links to its line in its report.

    Claims that do not hold come first.
    """
    ordered = sorted(records, key=lambda record: (record.project, record.verdict != DOES_NOT_HOLD))
    return render(TEMPLATES, "claims.html.j2", claims=ordered, link=link)


def sentences_by_verdict(records: Mapping[str, ClaimRecord], clauses: Mapping[str, str]) -> str:
    """Return what a run found as whole sentences, in which each clause stands under its verdict.

    Parameters
    ----------
    records
        The run's records by claim.
    clauses
        For each claim a clause that follows "it holds that". ``{0}`` is the record:
        ``"greedy has {0.measured:.2f} times random's error rate"``.

    Examples
    --------
    >>> sentences_by_verdict({}, {"D1-3": "error rates stay within δ"})
    ''
    """
    openings = {
        HOLDS: "It holds that ",
        DOES_NOT_HOLD: "It does not hold that ",
        OPEN: "It is open whether ",
    }
    spoken = {
        name: clause.format(records[name])
        for name, clause in clauses.items()
        if name in records and records[name].verdict != NOT_RUN
    }
    sentences = []
    for verdict, opening in openings.items():
        same = [text for name, text in spoken.items() if records[name].verdict == verdict]
        if same:
            joint = ", and whether " if verdict == OPEN else ", and that "
            sentences.append(f"{opening}{joint.join(same)}.")
        if verdict == HOLDS:
            sentences += [
                f"It holds that {text} if {records[name].condition}."
                for name, text in spoken.items()
                if records[name].verdict == HOLDS_IF
            ]
    return " ".join(sentences)


def tally(verdicts: Iterable[str]) -> dict[str, int]:
    """Return how many claims have each verdict, zeros included."""
    counts = Counter(verdicts)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def count_text(verdict: str, count: int) -> str:
    """Return a count of verdicts such as ``✔ 5 hold``."""
    plural = {"holds": "hold", "holds if": "hold if …", "does not hold": "do not hold"}
    word = plural.get(verdict, verdict) if count > 1 else verdict
    return f"{SYMBOLS[verdict]} {count} {word}"
