"""Verdicts on the documents' claims: settled in a notebook, shown as a scorecard, kept as JSON."""

from __future__ import annotations

import json
import math
import numbers
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

from aftlib.reports.documents import CLAIMS

MIME = "application/vnd.aft.claims+json"
MOST_WORDS = 25  # of a note that are shown, the rest is folded
VERDICTS = ("holds", "deviates", "undecided", "not run")
BASES = ("measured", "modelled", "derived")
SYMBOLS = {"holds": "✔", "deviates": "✘", "undecided": "≈", "not run": "○"}
_COLOURS = {
    "holds": "#2f9e5b",
    "deviates": "#d1495b",
    "undecided": "#b7791f",
    "not run": "#8a8f98",
}

Value = str | int | float | None


@dataclass(frozen=True)
class Settled:
    """What a run found about one claim.

    ValueError for an unknown id, verdict or basis, a value that is not finite, or a reversed
    interval.
    """

    id: str  # such as "D1-3"
    expected: Value  # what the document says
    measured: Value  # what was found, in the same unit
    interval: tuple[float, float] | None  # confidence interval of `measured`
    verdict: str  # one of `VERDICTS`
    basis: str  # whether `measured` was observed, computed by a cost model, or follows: `BASES`
    note: str  # what a reader must know to judge the verdict

    def __post_init__(self) -> None:
        if self.id not in CLAIMS:
            raise ValueError(f"claim id {self.id!r} is not known; known are {', '.join(CLAIMS)}")
        for name, known in (("verdict", VERDICTS), ("basis", BASES)):
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"{name} {value!r} is not one of {', '.join(known)}")
        for name in ("expected", "measured"):
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


@dataclass(frozen=True)
class ClaimRecord:
    """One line of ``claims.json``: a settled claim with its document, notebook and profile.

    `changed` are the parameters that had other values than the profile's own, and `earlier` is the
    verdict of a run that is out of date, which counts as not run.
    """

    id: str
    document: str
    statement: str
    expected: Value
    measured: Value
    interval: tuple[float, float] | None
    verdict: str
    basis: str
    note: str
    notebook: str
    profile: str
    changed: dict[str, Any]
    earlier: str | None = None

    @classmethod
    def of(
        cls,
        settled: Settled,
        notebook: str = "",
        profile: str = "",
        changed: Mapping[str, Any] | None = None,
    ) -> ClaimRecord:
        """Return the record of `settled`, found by `notebook` under `profile`."""
        claim = CLAIMS[settled.id]
        found = {"document": claim.document, "statement": claim.statement} | asdict(settled)
        return cls(**found, notebook=notebook, profile=profile, changed=dict(changed or {}))

    def outdated(self) -> ClaimRecord:
        """Return the record as that of a run which counts no longer."""
        return replace(self, verdict="not run", earlier=self.verdict)

    @property
    def recorded(self) -> str:
        """The verdict that runs are expected to give."""
        return CLAIMS[self.id].recorded

    @property
    def unit(self) -> str:
        """What `measured` counts or is a share or a multiple of; empty for a text."""
        return "" if isinstance(self.measured, str | None) else CLAIMS[self.id].unit

    @property
    def too_short(self) -> bool:
        """Whether a time was judged from the smoke profile's few and tiny runs."""
        settled = self.verdict != "not run"
        return settled and CLAIMS[self.id].timed and self.profile == "smoke"

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
        return not (self.as_recorded or self.verdict == "undecided" or CLAIMS[self.id].timed)


def settle(
    id: str,
    *,
    expected: Value,
    measured: Value,
    holds: bool,
    interval: tuple[float, float] | None = None,
    basis: str = "measured",
    note: str = "",
) -> Settled:
    """Return the verdict on claim `id`: "holds" if `holds`, else "deviates".

    The other arguments are those of `Settled`, which raises ValueError where they do not fit.
    """
    if str(holds) not in ("True", "False"):  # numpy's bool too, but no count that happens to be 1
        raise ValueError(f"holds must be True or False, got {holds!r}: compare before settling")
    verdict = "holds" if holds else "deviates"
    return Settled(id, expected, measured, interval, verdict, basis, note)


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
    """The claims that a notebook settles; as a cell's last value it is table and record in one.

    Reports read the claims back from the executed notebook, where they lie beside the table as
    ``application/vnd.aft.claims+json``. When a notebook shows a claim twice, the last one counts;
    in one scorecard that is a ValueError.
    """

    settled: Sequence[Settled]

    def __post_init__(self) -> None:
        twice = [id for id, count in Counter(s.id for s in self.settled).items() if count > 1]
        if twice:
            raise ValueError(f"settled holds {', '.join(twice)} more than once: settle each once")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {
            "text/html": claims_table([ClaimRecord.of(settled) for settled in self.settled]),
            "text/plain": "\n".join(f"{s.id}: {s.verdict}" for s in self.settled),
            MIME: [asdict(settled) for settled in self.settled],
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
        note = over = ""
        if claim.note:
            why, rest = map(escape, why_and_rest(claim.note))
            shown_at_once = " open" if claim.verdict == "deviates" else ""
            folded = f"<details{shown_at_once}><summary>{why}</summary>{rest}</details>"
            folded = folded if rest else why
            note = f'<div class="aft-note"><small>{folded}</small></div>'
        if told:
            text = told.get(claim.id, "")
            none_told = "" if text else " aft-none"
            over = f'<td class="aft-seeds{none_told}">{escape(text) or "–"}</td>'
        rows.append(
            f'<tr{anchor}><td class="aft-id">{name}</td>'
            f"<td>{escape(claim.statement)}{note}{leads}</td>"
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


def _plain(name: str, value: Any) -> Value:
    """Return `value` as a plain Python value that JSON can carry."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, a text or None, got {value!r}")
    return int(value) if isinstance(value, numbers.Integral) else float(value)
