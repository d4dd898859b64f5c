"""D3's claims, each judged by the frames of its experiment.

The judges' parameters are results of the experiments: `measured` of `measure`, `shuffles` of
`shuffle_growth`, `searched` of `search_keys`, `grown` of `growth`, `killed` of `run_kills`,
`flushes` of `flush_costs`, `engines` of `stored_engines`, `stored_kills` of the function of this
name; `p` has the notebook's parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from aftlib.documents.shared_state import throughput
from aftlib.documents.shared_state.experiments import (
    NotebookParameters,
    stored_gains,
    stored_ratios,
)
from aftlib.documents.shared_state.kills import BROKEN, bound_kills, count_kills
from aftlib.documents.shared_state.throughput import LATE_GLOBAL, UPFRONT
from aftlib.documents.shared_state.tuples import UNIFORM
from aftlib.notebook.claims import (
    HOLDS_IF,
    MODELLED,
    Claim,
    Finding,
    Summary,
    Threshold,
    mean_ratio,
)
from aftlib.notebook.scorecard import ClaimRecord, sentences_by_verdict
from aftlib.notebook.texts import percent, span_of

#: Tasks between which the document compares a shuffle's throughput.
FEW = 8
MANY = 24
#: The document's least skew.
LEAST_SKEW = 1.2
#: The skew from which the document sees a shuffle's growth stop.
STOPPED = 1.4
#: Growth below this factor counts as none where the number of tasks triples.
STILL = 1.2
#: Most tuples per key with which D3-4 is judged: with more, a skewed stream has nearly all sums.
ENOUGH = 100


def ratio_of_turns(ratios: pd.Series, sensitivity: str) -> Finding:
    """Return the geometric mean of the turns' ratios, with its t interval from five turns on."""
    mean, interval = mean_ratio(ratios)
    return Finding(mean, interval, len(ratios), "turns", sensitivity=sensitivity)


def list_by_skew(ratios: pd.Series) -> str:
    """Text: ratios by skew, such as ``× 1.76 uniform, × 0.98 at skew 1.4``."""
    return ", ".join(
        f"× {ratio:.2f} " + ("uniform" if skew == UNIFORM else f"at skew {skew:g}")
        for skew, ratio in ratios.items()
    )


def list_range(ratios: pd.Series) -> str:
    """Text: the least and the largest ratio, such as ``× 1.70 to 1.80``."""
    return f"× {span_of(ratios)}"


def grows(shuffles: pd.DataFrame, grown: pd.DataFrame, engines: pd.DataFrame) -> Finding:
    """D3-1: a shuffle's throughput grows with its tasks; uniform keys decide."""
    wide: Any = shuffles.pivot_table(index="turn", columns=["tasks", "skew"], values="throughput")
    tasks = int(shuffles["tasks"].max())
    growth = wide[tasks] / wide[1]
    sentences = []
    if len(skewed := growth.drop(columns=UNIFORM).agg(throughput.geometric_mean)):
        sentences.append(f"Skewed keys: {list_by_skew(skewed)}.")
    flink = stored_ratios(engines, ("flink keyed", 2), ("flink keyed", 1))
    if len(flink):
        sentences.append(f"Flink's shuffle, stored: {list_by_skew(flink)}.")
    shared: Any = grown.pivot_table(index="turn", columns="tasks", values="throughput")
    here = throughput.geometric_mean(shared[max(shared)] / shared[min(shared)])
    prototype = stored_ratios(engines, ("flink shared", 2), ("flink shared", 1))
    there = f" here, × {prototype[UNIFORM]:.2f} in Flink's prototype" if len(prototype) else ""
    sentences.append(f"Shared table: × {here:.2f}{there} (uniform keys).")
    sentences.append("It depends on the machine: docs/documents/d3.md.")
    stopped = len(flink) > 0 and flink[UNIFORM] <= 1
    return replace(
        ratio_of_turns(growth[UNIFORM], " ".join(sentences)),
        counted=f"turns of 1 and {tasks} tasks",
        condition=f"keys are uniform, from 1 to {tasks} tasks",
        fails="Flink's stored shuffle of uniform keys does not grow." if stopped else "",
    )


def shuffled(keys: int, skew: float, tasks: int, receivers: float) -> np.ndarray:
    """Throughput behind a shuffle to some tasks, by hash function."""
    busiest = throughput.busiest_shares(keys, skew, tasks)
    return throughput.shuffle_throughput(busiest, tasks, receivers)


def least_share(ratios: Callable[[float], np.ndarray], bound: float) -> str:
    """Text: the share of a tuple's cost from which on receivers limit."""
    share = throughput.share_that_limits(ratios, bound)
    return f"receivers bear at least {share} % of a tuple's cost"


def skew_lowers(measured: pd.DataFrame, p: NotebookParameters, engines: pd.DataFrame) -> Finding:
    """D3-2: behind a shuffle to 24 tasks, skew lowers throughput."""
    b = throughput.receivers_share(measured)

    def change(share: float) -> np.ndarray:
        uniform = shuffled(p.keys, UNIFORM, MANY, share)
        return np.asarray(shuffled(p.keys, LEAST_SKEW, MANY, share) / uniform)

    gains = throughput.gains_of_skew(measured, "strategy").T[UPFRONT]
    sentences = [
        f"Computed for {MANY} tasks, not run; receivers bear {percent(b)} of a tuple's cost here.",
        f"Measured on {p.tasks} tasks: {list_range(gains)}.",
    ]
    if len(flink := stored_gains(engines, "flink keyed")):
        word = "Reversed on two tasks in Flink, stored" if flink.min() > 1 else "Flink, stored"
        sentences.append(f"{word}: {list_range(flink)}.")
    return Finding(
        float(np.median(change(b))),
        None,
        throughput.HASHES,
        "hash functions",
        condition=f"there are {MANY} tasks, and {least_share(change, 1)}",
        sensitivity=" ".join(sentences),
    )


def skew_is_faster(
    measured: pd.DataFrame, p: NotebookParameters, engines: pd.DataFrame, searched: pd.DataFrame
) -> Finding:
    """D3-4: with a shared table, input of skew 1.4 is faster than uniform input."""
    gains = throughput.gains_of_turns(measured, "strategy").loc[LATE_GLOBAL]
    nearest = min(gains.columns, key=lambda skew: abs(skew - STOPPED))
    means = throughput.gains_of_skew(measured, "strategy").T[LATE_GLOBAL]
    sentences = [f"Measured with {p.keys:,} keys: {list_by_skew(means)}."]
    search = throughput.gains_of_skew(searched)
    for keys, of_skews in search.iterrows():
        others = of_skews.drop(gains.columns, errors="ignore") if keys == p.keys else of_skews
        if len(others):
            sentences.append(f"With {keys:,} keys: {list_by_skew(others)}.")
    if p.keys in search.index and nearest in search:
        series = pd.Series([means[nearest], search.loc[p.keys, nearest]])
        sentences.append(f"Between series the same point varied: {list_range(series)}.")
    if len(flink := stored_gains(engines, "flink shared")):
        sentences.append(f"Flink's prototype, stored: {list_by_skew(flink)}.")
    sentences.append("Fewer sums and a better use of the cache are not separated.")
    if p.tuples < throughput.DOCUMENTS_TUPLES:
        sentences.append(
            f"The document's {throughput.DOCUMENTS_TUPLES:,} tuples, and more than "
            f"{max(p.keys, *search.index):,} keys, were not run."
        )
    enough = keys_that_gain(searched, p.keys)
    return replace(
        ratio_of_turns(gains[nearest], " ".join(sentences)),
        condition=f"there is at least one key per {p.tuples / enough:,.0f} tuples ({enough:,} keys "
        f"in {p.tuples:,}), and the skew is at least {nearest:g}",
        control=p.keys * ENOUGH >= p.tuples,
    )


def keys_that_gain(searched: pd.DataFrame, measured: int) -> int:
    """Return the least number of keys from which on skew 1.4 is faster in every turn.

    Of the searched numbers and `measured`, the number of keys with which the claim is judged.
    """
    gains = throughput.gains_of_turns(searched)[STOPPED].groupby("keys").min()
    fewer = gains[gains.index < measured]
    slow = fewer.index[fewer <= 1].max() if (fewer <= 1).any() else 0
    return int(min([measured, *fewer.index[fewer.index > slow]]))


def nobody_is_disturbed(killed: pd.DataFrame) -> Finding:
    """D3-5: a failure disturbs no healthy task."""
    rows = killed[killed["killed"] != BROKEN]
    behind = int(rows["behind_a_shuffle"].sum())
    text = (
        "Behind a shuffle that does not reset them, healthy tasks would have received "
        f"{behind:,} tuples twice (computed)."
    )
    disturbed = int(rows["disturbed"].sum())
    counted = count_kills(rows)
    return Finding(disturbed, None, len(rows), counted, sensitivity=text, control=behind > 0)


def skew_stops_growth(measured: pd.DataFrame, p: NotebookParameters) -> Finding:
    """D3-7: from skew 1.4 on, a shuffle's growth stops at 8 tasks; at skew 1.2 it goes on."""
    b = throughput.receivers_share(measured)

    def growth(skew: float, share: float = b) -> np.ndarray:
        few = shuffled(p.keys, skew, FEW, share)
        return np.asarray(shuffled(p.keys, skew, MANY, share) / few)

    growths = growth(STOPPED)
    value = float(np.median(growths))
    less_skew = float(np.median(growth(LEAST_SKEW)))
    goes_on = min(less_skew, float(np.median(growth(UNIFORM))))
    stopped = float(np.mean(growths < STILL))
    sentences = [
        f"Receivers bear {percent(b)} here; {percent(stopped)} of hash functions stop it.",
        f"The formula hardly separates skew {LEAST_SKEW:g}, which goes on in the document: "
        f"× {less_skew:.2f}.",
    ]
    if value < STILL <= goes_on:
        least = np.ceil(100 * value) / 100
        shares = [
            throughput.share_that_limits(partial(growth, STOPPED), end) for end in (least, goes_on)
        ]
        sentences.append(
            f"With bounds from {least:.2f} to {goes_on:.2f} receivers must bear {shares[0]} to "
            f"{shares[1]} %."
        )
    return Finding(
        value,
        None,
        throughput.HASHES,
        "hash functions",
        condition=least_share(partial(growth, STOPPED), STILL),
        sensitivity=" ".join(sentences),
        control=goes_on >= STILL,
    )


def nothing_is_lost(killed: pd.DataFrame, stored_kills: pd.DataFrame) -> Finding:
    """D3-8: after a failure no sum is missing or wrong."""
    broken = killed["killed"] == BROKEN
    rows = killed[~broken]
    text = ""
    if len(stored := stored_kills[stored_kills["killed"] != BROKEN]):
        known = bound_kills(int(stored["wrong"].sum()), int(stored["kills"].sum()))
        text = f"Stored run of {stored['date'].iloc[0]}: {known}."
    wrong = int(rows["wrong"].sum())
    harmful = int((rows["wrong"] > 0).sum())
    return Finding(
        wrong,
        None,
        len(rows),
        count_kills(rows),
        text=f"{wrong:,} wrong sums; {bound_kills(harmful, len(rows))}",
        sensitivity=text,
        control=bool((killed.loc[broken, "wrong"] > 0).all() and broken.any()),
    )


def beats_the_shuffle(measured: pd.DataFrame, engines: pd.DataFrame) -> Finding:
    """D3-9: on equally skewed input, a shared table is faster than a shuffle; the least gain."""
    wide = measured.pivot_table(index=["skew", "turn"], columns="strategy", values="throughput")
    ratios: Any = (wide[LATE_GLOBAL] / wide[UPFRONT]).unstack("skew")
    gains = ratios.drop(columns=UNIFORM)
    least = gains.median().idxmin()
    sentences = [f"The least gain, at skew {least:g}."]
    uniform = f"Uniform keys: × {ratios[UNIFORM].median():.2f}"
    flink = stored_ratios(engines, ("flink shared", 2), ("flink keyed", 2))
    if len(flink):
        sentences.append(f"Flink, stored: {list_range(flink.drop(UNIFORM))}.")
        uniform += f"; in Flink × {flink[UNIFORM]:.2f}"
    sentences.append(f"{uniform}.")
    combined = throughput.combiner_over_proposal(measured)
    if combined.max() > 1:
        sentences.append(
            f"A plain combiner (late local) has {list_range(combined)} the proposal's throughput, "
            "but no shared state while a window is open, no sums that survive a failed task, and "
            "no early results."
        )
    return ratio_of_turns(gains[least], " ".join(sentences))


def barriers_are_faster(flushes: pd.DataFrame) -> Finding:
    """D3-10: one flush is faster than a flush at every merge, for equal rows."""
    wide = flushes.pivot_table(index="turn", columns="flush", values="per_s")
    one, fewer = throughput.gains_of_flushes(flushes)
    text = (
        f"Merging in memory first leaves fewer rows to write: a further × {fewer:.2f}, together "
        f"× {one * fewer:.2f}. A merge is a batch of sums; a flush for every tuple would cost "
        "more. It depends on the disk."
    )
    return ratio_of_turns(wide[throughput.ONE] / wide[throughput.TEN], text)


# `timed` also where a formula takes the receivers' share, because that is measured.
CLAIMS = [
    Claim(
        "D3-1", "Raising the parallelism raises the throughput, up to about 24 tasks.", "6, fig. 5",
        "The sentence is about the shuffle of fig. 5: the run's tasks against one. Uniform keys "
        "decide; where growth ends cannot be tested on fewer cores than 24.",
        grows, "> 1", Threshold("section 6: throughput rises", low=1, strict=True),
        condition="keys are uniform, from 1 to {tasks} tasks",
        unit="× one task's, shuffle of uniform keys", timed=True, recorded=HOLDS_IF,
    ),
    Claim(
        "D3-2", "With a shuffle, throughput falls as keys become skewed.", "6, fig. 5",
        "“Processing after grouping does not parallelize”: the busiest of 24 receivers limits.",
        skew_lowers, "< 1", Threshold("section 6: throughput falls", high=1, strict=True),
        condition="there are 24 tasks, and receivers bear at least {share} of a tuple's cost",
        basis=MODELLED, unit="× uniform keys', skew 1.2, 24 tasks", timed=True, recorded=HOLDS_IF,
    ),
    Claim(
        "D3-4", "With shared state, skewed input is even faster than input without skew.", "6",
        "Skew 1.4, and so many keys that skew lowers the number of sums: the document's reason.",
        skew_is_faster, "> 1", Threshold("section 6: faster", low=1, strict=True),
        condition="there is at least one key per {tuples} tuples ({keys} keys in {all}), and the "
        "skew is at least {skew}",
        unit="× uniform keys'", timed=True,
        recorded=HOLDS_IF,
    ),
    Claim(
        "D3-5", "Other tasks ignore the failure and go on.", "5.1",
        "No task but the failed one, or those of the failed server, starts or reads again.",
        nobody_is_disturbed, "0", Threshold("section 5.1: ignore", high=0),
        unit="healthy tasks disturbed",
    ),
    Claim(
        "D3-7", "From skew 1.4 on, a shuffle's throughput stops rising at 8 tasks.", "6, fig. 5",
        "“Processing after grouping does not parallelize”: less than a fifth more with 24 tasks.",
        skew_stops_growth, f"< {STILL}",
        Threshold("ours: a fifth", high=STILL, strict=True),
        condition="receivers bear at least {share} of a tuple's cost", basis=MODELLED,
        unit="× the throughput of 8 tasks", timed=True, recorded=HOLDS_IF,
    ),
    Claim(
        "D3-8", "Sums and offsets are always consistent, so processing goes on after a failure.",
        "5.1", "No emitted sum is lost, doubled or wrong after a task or a server fails.",
        nothing_is_lost, "0", Threshold("section 5.1: consistent", high=0), unit="wrong sums",
    ),
    Claim(
        "D3-9", "Sharing state instead of shuffling improves throughput under skew.", "6, fig. 6",
        "A shared table against a shuffle at equal skew; each task writes its sums once.",
        beats_the_shuffle, "> 1", Threshold("section 6: improves", low=1, strict=True),
        unit="× the shuffle's", timed=True,
    ),
    Claim(
        "D3-10", "A flush at every transaction lowers throughput; flush only at barriers.", "5.1",
        "Ten merges of equal rows into a SQLite table, in one transaction against ten.",
        barriers_are_faster, "> 1", Threshold("section 5.1: lowers", low=1, strict=True),
        unit="× flushing at every merge", timed=True,
    ),
]  # fmt: skip


def summarize(records: Mapping[str, ClaimRecord], parameters: NotebookParameters) -> Summary:
    """Return the box of a run from its verdicts and values."""
    clauses = {
        "D3-8": "{0.n:,} kills leave no wrong sum",
        "D3-9": "shared state has at least {0.measured:.2f} times a shuffle's throughput under "
        "skew",
    }
    limits = "The document names neither keys nor costs."
    faster = records.get("D3-4")
    if faster is not None and faster.verdict == HOLDS_IF:
        limits = "Skew makes it faster only with many keys (D3-4)."
    return Summary(
        claimed="Tasks that share sums need no shuffle.",
        found=sentences_by_verdict(records, clauses),
        sure=f"Measured on {parameters.tasks} tasks, computed for more.",
        limits=limits,
    )
