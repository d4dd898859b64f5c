"""What runs found about claims: shown as a scorecard in a notebook, kept as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from aftlib.core.claims import BASES, DEVIATES, NOT_RUN, UNDECIDED, VERDICTS, Claim, Finding, Value

MIME = "application/vnd.aft.claims+json"
MOST_WORDS = 25  # of a note that are shown, the rest is folded
SYMBOLS = {"holds": "✔", "deviates": "✘", "undecided": "≈", "not run": "○"}
_COLOURS = {
    "holds": "#2f9e5b",
    "deviates": "#d1495b",
    "undecided": "#b7791f",
    "not run": "#8a8f98",
}


class ClaimRecord(BaseModel):
    """One line of ``claims.json``: a claim, what a run found about it, and which run that was.

    `changed` are the parameters that had other values than the profile's own, and `earlier` is the
    verdict of a run that is out of date, which counts as not run. ValueError (pydantic's) for a
    field that is missing, unknown or of the wrong type, such as a line of another version.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    version: Literal[1] = 1
    id: str
    document: str
    statement: str
    source: str
    expected: Value
    measured: Value
    unit: str  # of `measured`; empty for a text
    interval: tuple[float, float] | None
    verdict: str = Field(pattern=f"^({'|'.join(VERDICTS)})$")
    basis: str = Field(pattern=f"^({'|'.join(BASES)})$")
    note: str
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
        """Return the record of what was found about `claim`."""
        same = {name: value for name, value in vars(claim).items() if name in cls.model_fields}
        found = {
            "document": claim.document,
            "expected": claim.expected if finding.expected is None else finding.expected,
            "measured": finding.value,
            "unit": "" if isinstance(finding.value, str | None) else claim.unit,
            "interval": finding.interval,
            "verdict": claim.decide(finding),
            "note": " ".join(filter(None, [finding.missing, finding.note])),
        }
        return cls(**(same | found))

    def found_by(
        self, notebook: str, profile: str = "", changed: Mapping[str, Any] | None = None
    ) -> ClaimRecord:
        """Return the record as that of a run of `notebook` under `profile`."""
        about = {"notebook": notebook, "profile": profile, "changed": dict(changed or {})}
        return self.model_copy(update=about)

    def outdated(self) -> ClaimRecord:
        """Return the record as that of a run which counts no longer."""
        return self.model_copy(update={"verdict": NOT_RUN, "earlier": self.verdict})

    @property
    def too_short(self) -> bool:
        """Whether a time was judged from the smoke profile's few and tiny runs."""
        return self.verdict != NOT_RUN and self.timed and self.profile == "smoke"

    @property
    def word(self) -> str:
        """The verdict with its symbol; "out of date" where there is an earlier one."""
        return f"{SYMBOLS[self.verdict]} {'out of date' if self.earlier else self.verdict}"

    @property
    def as_recorded(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.verdict == self.recorded

    @property
    def contradicts(self) -> bool:
        """Whether the verdict contradicts the recorded one.

        An undecided verdict does not, nor does one that depends on how busy the machine is.
        """
        return not (self.as_recorded or self.verdict == UNDECIDED or self.timed)


def unexpected(claims: Iterable[ClaimRecord]) -> list[ClaimRecord]:
    """Return the claims whose verdict differs from the recorded one ("not run" always does).

    A timed claim that the smoke profile settled is not among them: its runs are too short.
    """
    return [claim for claim in claims if not (claim.as_recorded or claim.too_short)]


def not_default(changed: Mapping[str, Any]) -> list[str]:
    """Return what is said of each parameter that has another value than its profile gives."""
    texts = {name: json.dumps(v, ensure_ascii=False, default=str) for name, v in changed.items()}
    short = {name: t if len(t) <= 40 else f"{t[:38]} …" for name, t in texts.items()}
    return [f"{name} = {text}, not the default" for name, text in short.items()]


def counted(verdict: str, count: int) -> str:
    """Return a count of verdicts as a reader wants it, such as ``✔ 5 hold``."""
    word = {"holds": "hold", "deviates": "deviate"}.get(verdict, verdict) if count > 1 else verdict
    return f"{SYMBOLS[verdict]} {count} {word}"


def tally(verdicts: Iterable[str]) -> dict[str, int]:
    """Return how many claims have each verdict, zeros included."""
    counts = Counter(verdicts)
    return {verdict: counts[verdict] for verdict in VERDICTS}


@dataclass(frozen=True)
class Scorecard:
    """The verdicts on `claims`; as a cell's last value it is table and record in one.

    Each claim is judged by those of `frames` that its judge names, such as the notebook's
    ``globals()``. Reports read the records back from the executed notebook, where they lie beside
    the table as ``application/vnd.aft.claims+json``. When a notebook shows a claim twice, the last
    one counts; in one scorecard that is a ValueError.
    """

    claims: Sequence[Claim]
    frames: Mapping[str, Any]

    def __post_init__(self) -> None:
        twice = [id for id, count in Counter(c.id for c in self.claims).items() if count > 1]
        if twice:
            raise ValueError(f"claims holds {', '.join(twice)} more than once: list each once")

    @cached_property
    def records(self) -> list[ClaimRecord]:
        """What was found about each claim."""
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
    """Return the HTML table of `claims`; with `link`, each leads to its line in its report.

    `evidence` has HTML that leads to what a claim rests on. Of a note, its first sentence is shown
    and the rest is folded, unless the claim deviates: then a reader asks why.

    `seeds` says of claims in how many runs that differ by their seed they hold; where it says
    something of any, there is a column for it.
    """
    told = seeds if seeds and any(seeds.get(claim.id) for claim in claims) else {}
    heads = ["claim", "what the document says", "expected", "measured", "interval", "verdict"]
    heads[5:5] = ["over seeds"] if told else []
    head = "".join(f"<th>{title}</th>" for title in heads)
    rows = []
    for claim in claims:
        name = escape(claim.id)
        anchor = ' class="aft-earlier"' if claim.earlier else ""
        anchor += f' id="claim-{name}"'
        if link and (claim.earlier or claim.verdict != "not run"):
            name = f'<a href="{escape(claim.notebook)}.html#claim-{name}">{name}</a>'
        none = " aft-none" if claim.interval is None else ""
        leads = (evidence or {}).get(claim.id, "")
        unit = f" <small>{escape(claim.unit)}</small>" if claim.unit else ""
        source = f" <small>({escape(claim.source)})</small>" if claim.source else ""
        note = over = ""
        if claim.note:
            why, rest = map(escape, why_and_rest(claim.note))
            shown_at_once = " open" if claim.verdict == DEVIATES else ""
            folded = f"<details{shown_at_once}><summary>{why}</summary>{rest}</details>"
            folded = folded if rest else why
            note = f'<div class="aft-note"><small>{folded}</small></div>'
        if told:
            text = told.get(claim.id, "")
            none_told = "" if text else " aft-none"
            over = f'<td class="aft-seeds{none_told}">{escape(text) or "–"}</td>'
        rows.append(
            f'<tr{anchor}><td class="aft-id">{name}</td>'
            f"<td>{escape(claim.statement)}{source}{note}{leads}</td>"
            f'<td class="aft-value">{escape(shown(claim.expected))}</td>'
            f'<td class="aft-value">{escape(shown(claim.measured))}{unit}</td>'
            f'<td class="aft-interval{none}">{shown_interval(claim.interval)}</td>'
            f"{over}<td>{_verdict(claim)}</td></tr>"
        )
    return (
        '<table class="aft-claims" style="text-align:left"><thead>'
        f"<tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def why_and_rest(note: str) -> tuple[str, str]:
    """Return a note's first sentence, cut at a comma when it has over 25 words, and the rest.

    >>> why_and_rest("Most at 8 tasks. The others had 2 cores.")
    ('Most at 8 tasks.', 'The others had 2 cores.')
    """
    why, _, rest = re.sub(r"([.!?]) +(?=[A-Z])", r"\1\n", note.strip(), count=1).partition("\n")
    if len(why.split()) > MOST_WORDS:
        parts = re.split(r"(?<=[,;:]) ", why)
        count = max(1, *(n for n in range(len(parts)) if _words(parts[:n]) <= MOST_WORDS))
        if _words(parts[:count]) <= MOST_WORDS:
            rest = " ".join(["…", *parts[count:], rest]).strip()
            why = " ".join(parts[:count]).rstrip(",;:") + " …"
    return why, rest


def _words(parts: Sequence[str]) -> int:
    return len(" ".join(parts).split())


def _verdict(claim: ClaimRecord) -> str:
    """Return the verdict as a coloured word with a symbol, its basis, and whether it surprises."""
    word = (
        f'<strong class="aft-{claim.verdict.replace(" ", "-")}" '
        f'style="color:{_COLOURS[claim.verdict]};white-space:nowrap">{claim.word}</strong>'
    )
    lines = [escape(text) for text in not_default(claim.changed)]
    if claim.earlier:
        lines.insert(0, f"was {SYMBOLS[claim.earlier]} {claim.earlier}")
    elif claim.verdict != "not run":
        lines.insert(0, claim.basis)
        if not claim.as_recorded:
            lines.append(f"recorded: {claim.recorded}")
        elif claim.profile and not claim.changed:
            lines.append("as recorded")
    return f"{word}<div><small>{'<br>'.join(lines)}</small></div>" if lines else word


def shown(value: Value) -> str:
    """Return a value as a reader wants it: four digits of a fraction, thousands in groups."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def shown_interval(interval: tuple[float, float] | None) -> str:
    """Return an interval as ``[low, high]``, a dash where there is none."""
    return "–" if interval is None else f"[{shown(interval[0])}, {shown(interval[1])}]"
