"""What each claim rests on: the figure that shows it, and the formula that it is about.

A report links both ways: from a claim to its figure and from a figure to the claims it settles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aftlib.reports.claims import ClaimRecord
from aftlib.reports.data_out import PLOTLY, Shown, plain_text
from aftlib.reports.documents import DOCUMENTS, Document

_ESTIMABLE = r"R(A_i) = \min_{Y \in A_i} R(Y \mid X \setminus A_i) \ge 1 - \delta \tag{7}"
_ERRORS = r"\mathrm{err} = \sum_i \mathrm{err}_i \,/\, (|W|\,|X|) \tag{9}"
_RECOVERED = r"T_{rec} = T_{res} + T_{rep} + T_{est} \tag{24}"
_WITHIN = r"T_{rec}(|o|) \le T_{SLA} \tag{25}"
_CHECKPOINTS = (
    r"\sigma_{Y^{rec}|O} \le \frac{w^2 \sigma^*_Y - (\tau_k - t')^2 \sigma_{c}}"
    r"{(t' + w - \tau_k)^2} \tag{20}"
)
_SOUND = r"|\text{estimate} - \text{exact}| \le \varepsilon \cdot \text{exact}"


@dataclass(frozen=True)
class Evidence:
    """Of one claim: how its figure's title begins, and its formula as LaTeX; or nothing."""

    figure: str = ""
    formula: str = ""


EVIDENCE: dict[str, Evidence] = {
    "D1-1": Evidence("Estimable workers against m (fig. 10)", _ESTIMABLE),
    "D1-2": Evidence("Estimable workers against m (fig. 10)", _ESTIMABLE),
    "D1-3": Evidence("Error rate against m (fig. 12)", _ERRORS),
    "D1-4": Evidence("Error rate against m (fig. 12)", _ERRORS),
    "D1-5": Evidence("Error rate against m (fig. 12)", _ERRORS),
    "D2-1": Evidence("Checkpoints against ε (fig. 6)", _WITHIN),
    "D2-2": Evidence("Checkpoints against ε (fig. 6)", _CHECKPOINTS),
    "D2-3": Evidence("Checkpoints against ε (fig. 6)", _CHECKPOINTS),
    "D2-4": Evidence("Checkpoints against T_SLA (fig. 6)", _WITHIN),
    "D2-5": Evidence("Success against ε (fig. 7)", r"R(c^k, O) > 1 - \delta \tag{13}"),
    "D2-6": Evidence("Recovery time in one process (fig. 5)", _RECOVERED),
    "D2-7": Evidence("Recovery time in one process (fig. 5)", _RECOVERED),
    "D2-8": Evidence("From a new process to the recovered interval", _WITHIN),
    "D2-9": Evidence("From a new process to the recovered interval", _WITHIN),
    "D3-1": Evidence("Measured throughput, "),
    "D3-2": Evidence("Shuffle first: throughput by parallelism and skew (fig. 5)"),
    "D3-3": Evidence("Measured throughput, "),
    "D3-4": Evidence("Fewer sums, or sums in the cache?"),
    "D3-5": Evidence("One task dies (fig. 1)"),
    "D3-6": Evidence("Shared state: throughput by parallelism and skew (fig. 6)"),
    "D3-7": Evidence("Shuffle first: throughput by parallelism and skew (fig. 5)"),
    "D3-8": Evidence("One task dies (fig. 1)"),
    "D4-1": Evidence("Tuples processed again (fig. 5)"),
    "D4-2": Evidence("Tuples processed again (fig. 5)"),
    "D4-3": Evidence("Recovery time (fig. 6)"),
    "D4-4": Evidence("Upstream backup's recovery time, TCP's parts switched one by one"),
    "D4-5": Evidence("Bandwidth overhead"),
    "D4-6": Evidence("Recovery time (fig. 6)"),
    "D5-1": Evidence("Buckets step by step (fig. 4)"),
    "D5-2": Evidence("Few ones break the article's promise", _SOUND),
    "D5-3": Evidence("Memory of a window full of ones", r"O(\tfrac{1}{\varepsilon} \log N)"),
    "D5-4": Evidence("Speed on one core"),
    "D5-5": Evidence("Largest relative error measured", _SOUND),
    "G-1": Evidence("Promise and measurement", r"\text{kept} / \text{promised} \ge 1 - \delta"),
    "G-2": Evidence("When something goes wrong", r"\text{wrong} \le \delta N + \text{slack}"),
    "G-3": Evidence("Promise and measurement"),
    "F-1": Evidence("What came of the windows"),
    "F-2": Evidence("What came of the windows"),
    "F-3": Evidence("Samples read again, of what an exact recovery reads"),
    "F-4": Evidence("Samples read again, of what an exact recovery reads"),
    "F-5": Evidence("Which scheme, for whom?", r"\text{kept} / \text{promised} \ge 1 - \delta"),
    "F-6": Evidence("Which scheme, for whom?"),
    "F-7": Evidence("Which scheme, for whom?"),
}


def title_of_figure(shown: Shown) -> str:
    """Return the title of a figure as plain text, empty where it has none."""
    title = shown.data.get(PLOTLY, {}).get("layout", {}).get("title") or ""
    return plain_text(title if isinstance(title, str) else title.get("text") or "")


def figures_of(claims: Iterable[str], shown: Iterable[Shown]) -> Mapping[str, Shown]:
    """Return the figure of each of `claims` among what a report shows, where there is one."""
    titled = [(title_of_figure(one), one) for one in shown if one.kind == "figure"]
    found = {}
    for id in claims:
        begins = EVIDENCE.get(id, Evidence()).figure
        figure = next((one for title, one in titled if begins and title.startswith(begins)), None)
        if figure is not None:
            found[id] = figure
    return found


def equations(document: Document) -> set[str]:
    """Return the numbers of the equations that the page of `document` shows; none without one."""
    if not document.source.exists():
        return set()
    return set(re.findall(r'id="eq-(\d+)"', document.source.read_text(encoding="utf-8")))


def cited(claims: Iterable[ClaimRecord], root: str = "") -> dict[str, str]:
    """Return, by claim, links into its document's page: to the equations that it names, or to all.

    Of its formula and its note those numbers count that the page has; a project whose document has
    no page gives no links. `root` leads to the folder of the index.
    """
    links = {}
    for claim in claims:
        document = DOCUMENTS[claim.document]
        if not document.source.exists():
            continue
        named = EVIDENCE.get(claim.id, Evidence()).formula + claim.note
        numbers = re.findall(r"\\tag\{(\d+)\}|(?<!\w)\((\d+)\)", named)
        known = dict.fromkeys(a or b for a, b in numbers if (a or b) in equations(document))
        targets = {f"equation ({n})": f"#eq-{n}" for n in known} or {f"what {document.id} says": ""}
        href = f"{root}documents/{document.page}.html"
        links[claim.id] = " · ".join(f'<a href="{href}{at}">{n}</a>' for n, at in targets.items())
    return links


def linked(prose: str, document: Document, root: str = "") -> str:
    """Return Markdown whose numbers of equations, as in "by (9)", lead to the document's page."""
    known = equations(document)

    def link(found: re.Match[str]) -> str:
        at = f"{root}documents/{document.page}.html#eq-{found[1]}"
        return f"[({found[1]})]({at})" if found[1] in known else found[0]

    return re.sub(r"(?<=[a-z] )\((\d+)\)", link, prose)
