"""The documents that the project reproduces, and every claim of theirs that a notebook settles.

To add a claim, add a line to `CLAIMS`; to add a document, a line to `DOCUMENTS` as well.
"""

from __future__ import annotations

from dataclasses import dataclass

RECORDED = ("holds", "deviates")


@dataclass(frozen=True)
class Document:
    """A document, and the notebook that reproduces it (its name without ``.ipynb``)."""

    id: str
    title: str
    notebook: str


@dataclass(frozen=True)
class Claim:
    """One claim of a document, in our words, with the verdict that our runs are expected to give.

    `recorded` is ``"holds"`` or ``"deviates"``; a run that comes out otherwise is an alarm, unless
    the claim is `timed` and the run of the smoke profile, too short to judge a time by.

    Raises
    ------
    ValueError
        When `document` is unknown, `id` is not one of its names, or `recorded` is no verdict.
    """

    id: str
    document: str
    statement: str
    recorded: str
    timed: bool = False

    def __post_init__(self) -> None:
        if self.document not in DOCUMENTS:
            raise ValueError(f"document {self.document!r} is not one of {', '.join(DOCUMENTS)}")
        if not self.id.startswith(f"{self.document}-"):
            raise ValueError(f"claim id {self.id!r} must begin with '{self.document}-'")
        if self.recorded not in RECORDED:
            raise ValueError(
                f"recorded verdict {self.recorded!r} of {self.id} is not one of {RECORDED}"
            )


DOCUMENTS: dict[str, Document] = {
    document.id: document
    for document in [
        Document("D1", "Approximately-once recovery", "01_approximately_once"),
        Document("D2", "Checkpoints and partial replay", "02_checkpoint_planning"),
        Document("D3", "State shared through a database", "03_shared_state"),
        Document("D4", "Upstream backup with a working secondary", "04_upstream_backup"),
        Document("D5", "Exponential histogram", "05_exponential_histogram"),
        Document("G", "A promise for any data", "06_your_sensors"),
    ]
}

CLAIMS: dict[str, Claim] = {
    claim.id: claim
    for claim in [
        Claim(
            "D1-1",
            "D1",
            "Greedy assignment does not reach the best spread (h-best) but assigns well.",
            "holds",
        ),
        Claim("D1-2", "D1", "The number of estimable workers scales with the workers m.", "holds"),
        Claim("D1-3", "D1", "The error rate stays at or below δ = 0.05 in every setting.", "holds"),
        Claim("D1-4", "D1", "Greedy's error rate is close to h-best's.", "holds"),
        Claim(
            "D1-5",
            "D1",
            "An assignment that knows the model has a far lower error rate than a random one.",
            "deviates",
        ),
        Claim("D2-1", "D2", "Exactly-once's checkpoint count does not depend on ε or δ.", "holds"),
        Claim(
            "D2-2",
            "D2",
            "Proposed takes at most as many checkpoints as no-relaxation, and that at most as "
            "many as exactly-once, everywhere.",
            "holds",
        ),
        Claim(
            "D2-3",
            "D2",
            "With a tight ε estimation alone saves no checkpoint, but the proposed plan does.",
            "holds",
        ),
        Claim("D2-4", "D2", "The proposed plan gains most where T_SLA is tight.", "holds"),
        Claim("D2-5", "D2", "The success rate is at least 1 − δ everywhere.", "holds"),
        Claim(
            "D2-6",
            "D2",
            "Up to n = 1,000 sensors recovery beats replaying all.",
            "holds",
            timed=True,
        ),
        Claim(
            "D2-7",
            "D2",
            "Replay time is proportional to |O|, restore time constant.",
            "holds",
            timed=True,
        ),
        Claim("D3-1", "D3", "Throughput grows with parallelism.", "holds", timed=True),
        Claim("D3-2", "D3", "With a shuffle, skew lowers throughput.", "holds", timed=True),
        Claim("D3-3", "D3", "With shared state, skew does not hurt.", "holds", timed=True),
        Claim(
            "D3-4",
            "D3",
            "With shared state, skewed input is faster than uniform input.",
            "holds",
            timed=True,
        ),
        Claim("D3-5", "D3", "A failed task does not disturb the others.", "holds"),
        Claim("D3-6", "D3", "Growth with parallelism ends at about 24.", "deviates", timed=True),
        Claim(
            "D3-7",
            "D3",
            "With a shuffle, growth stops at 8 tasks from skew 1.4 on.",
            "holds",
            timed=True,
        ),
        Claim("D3-8", "D3", "After a failure nothing is counted twice or lost.", "holds"),
        Claim("D4-1", "D4", "Fewer tuples are processed again than in upstream backup.", "holds"),
        Claim(
            "D4-2",
            "D4",
            "At low rates there is hardly any difference in their number; it grows with the rate.",
            "holds",
        ),
        Claim("D4-3", "D4", "Recovery is shorter at all rates.", "holds"),
        Claim(
            "D4-4",
            "D4",
            "Below 1,000 tuples/s the gap in recovery time comes from Nagle's algorithm on a "
            "connection that was not used before.",
            "deviates",
        ),
        Claim(
            "D4-5",
            "D4",
            "Bandwidth overhead: active standby ≈ 100 %, passive between, upstream backup ≈ 0.",
            "deviates",
        ),
        Claim(
            "D4-6",
            "D4",
            "Recovery time: active standby < passive standby < upstream backup.",
            "holds",
        ),
        Claim(
            "D5-1",
            "D5",
            "Figure 3 comes out row by row: buckets, total, query and exact count.",
            "holds",
        ),
        Claim("D5-2", "D5", "The relative error of the estimate is at most ε, always.", "deviates"),
        Claim(
            "D5-3",
            "D5",
            "Buckets are far fewer than the window's events and logarithmic in N.",
            "holds",
        ),
        Claim(
            "D5-4",
            "D5",
            "Throughput is far above 100,000 events per second.",
            "holds",
            timed=True,
        ),
        Claim(
            "D5-5",
            "D5",
            "With total − (last − 1)/2 on the same buckets (the default here) the relative error "
            "is at most ε, always, and comes close to it.",
            "holds",
        ),
        Claim(
            "G-1",
            "G",
            "Of the losses that the guard declared recoverable, a share of 1 − δ is estimated "
            "within ε, on every set.",
            "holds",
        ),
        Claim("G-2", "G", "The theorem's bound on wrong promises is never passed.", "holds"),
        Claim(
            "G-3",
            "G",
            "The guard promises for more windows than the plain model Σ/w could have kept.",
            "holds",
        ),
    ]
}
