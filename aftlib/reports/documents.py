"""The documents that the project reproduces, and every claim of theirs that a notebook settles.

To add a claim, add a line to `STATEMENTS`; to add a document, a line to `DOCUMENTS` as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aftlib.core.paths import project_root

RECORDED = ("holds", "deviates")
PROFILES = ("smoke", "quick", "full")  # how large the notebooks' experiments are


@dataclass(frozen=True)
class Document:
    """A document, and the notebook that reproduces it (its name without ``.ipynb``)."""

    id: str
    title: str
    notebook: str

    @property
    def page(self) -> str:
        """The name of its page beside the reports."""
        return "guard" if self.id == "G" else self.id.lower()

    @property
    def source(self) -> Path:
        """Where its page is written, in Markdown; a project without docs has none."""
        return project_root() / "docs" / "documents" / f"{self.page}.md"


@dataclass(frozen=True)
class Claim:
    """One claim of a document, in our words, with the verdict that our runs are expected to give.

    `recorded` is ``"holds"`` or ``"deviates"``; a run that comes out otherwise is an alarm, unless
    the claim is `timed` and the run of the smoke profile, too short to judge a time by. ValueError
    when `id` does not begin with a document's, or `recorded` is no verdict.
    """

    id: str
    statement: str
    recorded: str = "holds"
    timed: bool = False
    unit: str = ""  # of what is measured, where it is a number

    def __post_init__(self) -> None:
        if self.document not in DOCUMENTS:
            raise ValueError(
                f"claim id {self.id!r} must begin with one of {', '.join(DOCUMENTS)} and a hyphen"
            )
        if self.recorded not in RECORDED:
            raise ValueError(
                f"recorded verdict {self.recorded!r} of {self.id} is not one of {RECORDED}"
            )

    @property
    def document(self) -> str:
        """The id of the document that makes the claim."""
        return self.id.partition("-")[0]


DOCUMENTS: dict[str, Document] = {
    document.id: document
    for document in [
        Document("D1", "Approximately-once recovery", "01_approximately_once"),
        Document("D2", "Checkpoints and partial replay", "02_checkpoint_planning"),
        Document("D3", "State shared through a database", "03_shared_state"),
        Document("D4", "Upstream backup with a working secondary", "04_upstream_backup"),
        Document("D5", "Exponential histogram", "05_exponential_histogram"),
        Document("G", "A promise for any data", "06_your_sensors"),
        Document("F", "One failure drill for every scheme", "07_failure_drill"),
    ]
}

STATEMENTS = {
    "D1-1": "Greedy assignment does not reach the best spread (h-best) but assigns well.",
    "D1-2": "The number of estimable workers scales with the workers m.",
    "D1-3": "The error rate stays at or below δ = 0.05 in every setting.",
    "D1-4": "Greedy's error rate is close to h-best's.",
    "D1-5": "An assignment that knows the model has a far lower error rate than a random one.",
    "D2-1": "Exactly-once's checkpoint count does not depend on ε or δ.",
    "D2-2": "Proposed takes at most as many checkpoints as no-relaxation, and that at most as many "
    "as exactly-once, everywhere.",
    "D2-3": "With a tight ε estimation alone saves no checkpoint, but the proposed plan does.",
    "D2-4": "The proposed plan gains most where T_SLA is tight.",
    "D2-5": "The success rate is at least 1 − δ everywhere.",
    "D2-6": "Up to n = 1,000 sensors recovery beats replaying all.",
    "D2-7": "Replay time is proportional to |O|, restore time constant.",
    "D2-8": "After a driver is killed, T_rec of the new process is within T_SLA.",
    "D2-9": "It is within T_SLA from the new process's start to its commit.",
    "D3-1": "Throughput grows with parallelism.",
    "D3-2": "With a shuffle, skew lowers throughput.",
    "D3-3": "With shared state, skew does not hurt.",
    "D3-4": "With shared state, skewed input is faster than uniform input.",
    "D3-5": "A failed task does not disturb the others.",
    "D3-6": "Growth with parallelism ends at about 24.",
    "D3-7": "With a shuffle, growth stops at 8 tasks from skew 1.4 on.",
    "D3-8": "After a failure nothing is counted twice or lost.",
    "D4-1": "Fewer tuples are processed again than in upstream backup.",
    "D4-2": "At low rates there is hardly any difference in their number; it grows with the rate.",
    "D4-3": "Recovery is shorter at all rates.",
    "D4-4": "Below 1,000 tuples/s the gap in recovery time comes from Nagle's algorithm on a "
    "connection that was not used before.",
    "D4-5": "Bandwidth overhead: active standby ≈ 100 %, passive between, upstream backup ≈ 0.",
    "D4-6": "Recovery time: active standby < passive standby < upstream backup.",
    "D5-1": "Figure 3 comes out row by row: buckets, total, query and exact count.",
    "D5-2": "The relative error of the estimate is at most ε, always.",
    "D5-3": "Buckets are far fewer than the window's events and logarithmic in N.",
    "D5-4": "Throughput is far above 100,000 events per second.",
    "D5-5": "With total − (last − 1)/2 on the same buckets (the default here) the relative error "
    "is at most ε, always, and comes close to it.",
    "G-1": "Of the losses that the guard declared recoverable, a share of 1 − δ is estimated "
    "within ε, on every set.",
    "G-2": "The theorem's bound on wrong promises is never passed.",
    "G-3": "The guard promises for more windows than the plain model Σ/w could have kept.",
    "F-1": "At most once loses windows and doubles none; at least once doubles some, loses none.",
    "F-2": "Exactly once, shared state and every way to stand by lose and double nothing.",
    "F-3": "D1 reads again the share that its plan promises of what exactly once reads again.",
    "F-4": "D2 reads again the share that its plan promises of what an exact replay reads.",
    "F-5": "Every promise (ε, δ) of D1 and D2 is kept, and nothing else is lost or wrong.",
    "F-6": "While nothing fails, D1 costs at most 5 % of a micro-batch's time.",
    "F-7": "While nothing fails, D2's checkpoints cost at most 5 % of the work's time.",
}
# Those that our runs are expected not to confirm, and those that a time decides.
DEVIATING = {"D1-5", "D2-9", "D3-6", "D4-4", "D4-5", "D5-2", "F-7"}
TIMED = {"D2-6", "D2-7", "D2-8", "D2-9", "D3-1", "D3-2", "D3-3", "D3-4", "D3-6", "D3-7", "D5-4"}
TIMED |= {"F-6", "F-7"}

UNITS = {
    "D1-1": "of h-best's lead",
    "D1-2": "rank correlation",
    "D1-3": "of the estimates",
    "D1-4": "difference of rates",
    "D1-5": "× random's rate",
    "D2-1": "checkpoints",
    "D2-2": "points out of order",
    "D2-3": "of the points",
    "D2-4": "of the combinations",
    "D2-5": "of the windows",
    "D2-6": "× full replay's time",
    "D2-7": "R²",
    "D2-8": "of the deaths",
    "D2-9": "of the deaths",
    "D3-1": "× the fewest tasks'",
    "D3-2": "× uniform keys'",
    "D3-3": "× uniform keys'",
    "D3-4": "× uniform keys'",
    "D3-5": "tasks disturbed",
    "D3-6": "tasks",
    "D3-7": "× that of 8 tasks",
    "D3-8": "wrong",
    "D4-1": "× upstream backup's",
    "D4-3": "× upstream backup's",
    "D5-1": "rows",
    "D5-2": "× ε",
    "D5-3": "R²",
    "D5-4": "events/s",
    "D5-5": "× ε",
    "G-1": "of the promises",
    "G-2": "wrong beyond it",
    "G-3": "of the windows",
    "F-2": "windows",
    "F-3": "of an exact recovery's",
    "F-4": "of an exact recovery's",
    "F-5": "of the promises",
    "F-6": "of the time",
    "F-7": "of the time",
}

CLAIMS: dict[str, Claim] = {
    id: Claim(id, said, "deviates" if id in DEVIATING else "holds", id in TIMED, UNITS.get(id, ""))
    for id, said in STATEMENTS.items()
}
