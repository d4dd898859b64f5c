"""D2's claims, each judged by the variables of notebook 02, and the box on top of its report."""

from __future__ import annotations

from collections.abc import Mapping

from aftlib.core.intervals import LEVELS
from aftlib.documents.checkpoint_planning import judges, timed_judges
from aftlib.documents.checkpoint_planning.drivers import IN_TIME, LEAST_KILLS
from aftlib.documents.checkpoint_planning.experiments import NotebookParameters
from aftlib.documents.checkpoint_planning.timing import FEWER_TURNS_ABOVE, turns_of
from aftlib.notebook.claims import HOLDS_IF, Claim, Summary, Threshold
from aftlib.notebook.scorecard import ClaimRecord, sentences_by_verdict
from aftlib.notebook.texts import percent

PAYS = "full replays are charged the time of estimating, too"
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
        by_construction="with one T_rec for all plans fewer sensors cannot need more checkpoints; "
        "only the saving could be missing",
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
        threshold=Threshold("ours: nearly everywhere", low=judges.NEARLY_EVERYWHERE),
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
        "of (12); replayed sensors count with error 0",
        judges.stays_below_delta,
        expected="at most 1",
        threshold=Threshold("fig. 7: at least 1 − δ", high=1),
        by_construction="O is chosen so that (12) is at least 1 − δ; only the sample could "
        "contradict",
        basis="exact",
        unit="× δ",
    ),
    Claim(
        "D2-6",
        "For n up to 10³, recovery is faster than replaying everything.",
        "6.1, fig. 5",
        "10⁵ rows (系列数), one thread, (6) solved at recovery, as in D2-12: largest ratio of "
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
        "deviation from proportionality at |O| = n/2, which is the part of a full replay's T_rep "
        "that does not grow with |O|; T_res without the model",
        timed_judges.replays_in_proportion,
        expected="at most .5",
        threshold=Threshold(
            "ours: at most half of T_rep does not grow with |O|",
            low=-timed_judges.MOST_FIXED,
            high=timed_judges.MOST_FIXED,
            strict=True,
        ),
        condition=timed_judges.IN_PROPORTION,
        unit="of T_rep",
        timed=True,
        recorded="holds if",
    ),
    Claim(
        "D2-8",
        "T_SLA is a guaranteed upper limit of T_rec.",
        "abstract, 2, (25)",
        f"drivers killed by SIGKILL: T_rec, from restoring c^k in the open state on until the last "
        "estimate, before the commit, over the time fitted to pilot kills; the slowest of "
        f"{LEAST_KILLS} is the limit for {percent(IN_TIME)} of recoveries "
        f"({percent(LEVELS[1], 1)} confidence)",
        timed_judges.recovers_in_time,
        expected="at most 5",
        threshold=Threshold("ours: five times", high=timed_judges.LARGEST_FACTOR),
        unit="× the fitted time",
        condition=timed_judges.PLANNED,
        timed=True,
        recorded="holds if",
    ),
    Claim(
        "D2-11",
        "Fewer checkpoints improve throughput.",
        "abstract, 1",
        "samples per second of a window without failures, proposed over exactly-once, at one "
        "point; a checkpoint is a flushed SQLite transaction",
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
        "10⁵ rows, one thread, (6) solved at recovery: n from which on T_est takes as long as "
        "the replay that is avoided, at |O| = .9n, the largest, because the text names no |O|",
        timed_judges.solving_is_as_slow,
        expected="at most 20,000",
        threshold=Threshold(
            "ours: the document's 10⁴ within a factor of two, because it is that machine's n",
            high=timed_judges.LATEST,
        ),
        unit="sensors",
        condition=timed_judges.SLOW_FROM,
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
        by_construction="exactly-once's count is constant, and no-relaxation's never rises with ε "
        "or δ",
        basis="exact",
        unit="of the values of T_SLA",
    ),
    Claim(
        "D2-14",
        "While nothing fails, the adaptive plan needs no more checkpoints than the proposed one; "
        "it keeps ε and δ whatever fails.",
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
    largest = max([n for n in parameters.ns if n <= timed_judges.SOME], default=0)
    clauses = {
        "D2-5": "failure rates stay below δ",
        "D2-6": f"recovery beats full replays up to {largest:,} sensors",
        "D2-2": "fewer checkpoints suffice",
    }
    found = sentences_by_verdict(records, clauses)
    fewer = records.get("D2-2")
    if fewer is not None and fewer.sensitivity.startswith("Reversed"):
        otherwise = fewer.sensitivity.partition(": ")[2]
        found += f" Else {otherwise.partition('. ')[0]}."
    turns = f"{parameters.turns} turns"
    if (most := max(parameters.ns)) > FEWER_TURNS_ABOVE:
        turns += f" ({turns_of(most, parameters.turns)} at {most:,} sensors)"
    limits = "Steps must be independent, mean and covariance known."
    many = records.get("D2-12")
    if many is not None and many.verdict == HOLDS_IF and isinstance(many.measured, float):
        limits += (
            " Replaying nine tenths without prepared gains is no faster from "
            f"{timed_judges.rounded(many.measured)} sensors on."
        )
    return Summary(
        claimed="Replaying few sensors saves checkpoints.",
        found=found,
        sure=f"One machine, {turns}.",
        limits=limits,
    )
