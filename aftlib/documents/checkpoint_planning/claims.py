"""D2's claims, each judged by the variables of notebook 02, and the box on top of its report."""

from __future__ import annotations

from collections.abc import Mapping

from aftlib.documents.checkpoint_planning import judges, timed_judges
from aftlib.documents.checkpoint_planning.drivers import IN_TIME, MARGIN
from aftlib.documents.checkpoint_planning.experiments import NotebookParameters
from aftlib.notebook.claims import DOES_NOT_HOLD, HOLDS_IF, Claim, Summary, Threshold
from aftlib.notebook.scorecard import ClaimRecord, sentences_by_verdict

PAYS = "every recovery pays T_est"
CLAIMS = [
    Claim(
        "D2-1",
        "The number of checkpoints of exactly-once does not depend on ε and δ.",
        "6.2, fig. 6",
        "difference from the number that follows from T_SLA alone (25)",
        judges.follows_from_t_sla,
        expected="0",
        threshold=Threshold("equation (25)", high=0),
        by_construction="its plan has neither ε nor δ",
        basis="exact",
        unit="checkpoints",
    ),
    Claim(
        "D2-2",
        "Estimating reduces the number of checkpoints, and the proposed plan reduces it further.",
        "6.2, fig. 6",
        "points where proposed ≤ no-relaxation ≤ exactly-once fails; 5.1: T_res and "
        "T_est take a constant time",
        judges.are_ordered,
        expected="0",
        threshold=Threshold("section 6.2: estimating reduces the number", high=0),
        basis="exact",
        unit="points out of order",
        condition=PAYS,
        recorded="holds if",
    ),
    Claim(
        "D2-3",
        "Where the requirement is strict, estimating alone gives no good result, but the proposed "
        "plan can reduce checkpoints.",
        "6.2, fig. 6",
        "share of the points where no-relaxation saves nothing at which proposed saves some",
        judges.saves_where_estimating_does_not,
        expected="nearly everywhere (“can”)",
        threshold=Threshold(
            "ours: nearly everywhere; the same up to .96", low=judges.NEARLY_EVERYWHERE
        ),
        basis="exact",
        unit="of the points",
        condition=PAYS,
        recorded="holds if",
    ),
    Claim(
        "D2-4",
        "Savings are large, especially where the time limit is strict.",
        "6.2, fig. 6",
        "share of (ε, δ) at which the shortest T_SLA saves the largest number of checkpoints",
        judges.saves_most_at_short_t_sla,
        expected="1",
        threshold=Threshold("ours: at each combination", low=1),
        basis="exact",
        unit="of the combinations",
        condition=PAYS,
        recorded="holds if",
    ),
    Claim(
        "D2-5",
        "The success rate is at least 1 − δ everywhere.",
        "6.3, fig. 7",
        "largest failure rate of a plan, mean over its sensors and checkpoints, in the worst case "
        "of (12); 6.3 counts replayed sensors, too",
        judges.stays_below_delta,
        expected="at most 1",
        threshold=Threshold("fig. 7: at least 1 − δ", high=1),
        basis="exact",
        unit="× δ",
    ),
    Claim(
        "D2-6",
        "For n up to 10³, recovery is faster than replaying everything.",
        "6.1, fig. 5",
        "10⁵ rows (系列数), one thread, gain solved at recovery (6), as in D2-12: largest ratio of "
        "T_rec to a full replay's over |O| = .1n … .9n",
        timed_judges.beats_full_replay,
        expected="below 1",
        threshold=Threshold("section 6.1: faster", high=1, strict=True),
        unit="× full replay's time",
        timed=True,
    ),
    Claim(
        "D2-7",
        "T_rep is proportional to the replayed data, and T_res is at most 2 ms.",
        "6.1, fig. 5",
        "deviation from proportionality at |O| = n/2; T_res without the model",
        timed_judges.replays_in_proportion,
        expected="within a fifth",
        threshold=Threshold("ours: a fifth; the same from .15 up", -0.2, 0.2),
        condition="at least half of n = 100 to 1,000 sensors are read",
        unit="of T_rep",
        timed=True,
        recorded="holds if",
    ),
    Claim(
        "D2-8",
        "T_SLA is a guaranteed upper limit of T_rec.",
        "abstract, 2, (25)",
        f"drivers killed by SIGKILL; T_SLA is {MARGIN:g} times the time fitted to pilot kills",
        timed_judges.recovers_in_time,
        expected="at least .95",
        threshold=Threshold("ours: T_SLA as a 95th percentile", low=IN_TIME),
        unit="of the kills",
        timed=True,
        recorded="open",
    ),
    Claim(
        "D2-11",
        "Fewer checkpoints improve throughput.",
        "abstract, 1",
        "samples per second of a window without failures, proposed over exactly-once, at one point",
        timed_judges.raises_throughput,
        expected="above 1",
        threshold=Threshold("abstract: higher throughput", low=1, strict=True),
        unit="× exactly-once's",
        timed=True,
    ),
    Claim(
        "D2-12",
        "T_est grows with n; for n of 10⁴ and more, recovery in one thread is not faster than "
        "replaying everything.",
        "6.1, fig. 5",
        "10⁵ rows, one thread, gain solved at recovery (6): largest ratio of T_rec to a full "
        "replay's over |O| = .1n … .9n, because the text names no |O|",
        timed_judges.solving_is_as_slow,
        expected="at least 1",
        threshold=Threshold("section 6.1: not faster", low=1),
        unit="× full replay's time",
        condition="nine tenths of the sensors are replayed, and the gain is solved at recovery",
        timed=True,
        recorded="holds if",
    ),
    Claim(
        "D2-13",
        "Estimating saves the most checkpoints where ε and δ are loose.",
        "6.2, fig. 6",
        "share of T_SLA at which no-relaxation saves most at the largest ε and δ",
        judges.saves_most_where_loose,
        expected="1",
        threshold=Threshold("ours: at every T_SLA", low=1),
        basis="exact",
        unit="of the values of T_SLA",
    ),
    Claim(
        "D2-14",
        "The adaptive plan needs no more checkpoints than the proposed one, and keeps ε and δ "
        "whatever fails.",
        "beyond it",
        "drivers killed at random, also repeatedly in a window: largest failure probability of a "
        "result, by formula; errors are the control",
        judges.adaptive_keeps_epsilon,
        expected="at most 1",
        threshold=Threshold("δ, and the rounding of several recoveries", high=1 + 1e-6),
        basis="exact",
        unit="× δ",
        project=True,
    ),
]


def summarize(records: Mapping[str, ClaimRecord], parameters: NotebookParameters) -> Summary:
    """Return the box: the claim of the document, and the findings of the run."""
    clauses = {
        "D2-5": "failure rates stay below δ",
        "D2-6": "recovery beats a full replay up to 1,000 sensors",
        "D2-2": "fewer checkpoints suffice",
    }
    large = {
        HOLDS_IF: "With 10,000 sensors, replaying most of them and solving the gain is no faster.",
        DOES_NOT_HOLD: "With 10,000 sensors, recovery is faster, too, unlike in the document.",
    }
    many = large.get(records["D2-12"].verdict, "") if "D2-12" in records else ""
    return Summary(
        claimed="Replaying few sensors and estimating the rest needs fewer checkpoints.",
        found=sentences_by_verdict(records, clauses),
        sure=f"Formulas; times of one machine, {parameters.turns} turns.",
        limits=f"Steps must be independent. {many}".strip(),
    )
