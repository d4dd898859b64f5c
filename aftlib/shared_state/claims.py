"""D3's claims, each judged by the frames of its experiment.

The judges' parameters are results of the experiments: `measured` of `measure`, `grown` of `growth`,
`killed` of `kills`, `flushes` of `flush_costs`, `engines` of `stored_engines`; `p` has the
notebook's parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.intervals import share_interval, t_interval
from aftlib.shared_state.experiments import (
    BROKEN,
    LATE_GLOBAL,
    UPFRONT,
    NotebookParameters,
    receivers_share,
)
from aftlib.shared_state.tuples import HASHES, UNIFORM, busiest_shares, shuffle_throughput
from aftlib.workbench.claims import (
    FEWEST,
    HOLDS_IF,
    MODELLED,
    Claim,
    Finding,
    Summary,
    Threshold,
)
from aftlib.workbench.scorecard import ClaimRecord, sentences_by_verdict

#: Tasks between which the document compares a shuffle's throughput.
FEW, MANY = 8, 24
#: The document's least skew; the skew from which it sees a shuffle's growth stop.
LEAST_SKEW, STOPPED = 1.2, 1.4
#: Growth below this factor counts as none where the number of tasks triples.
STILL = 1.2
ENOUGH_KEYS = 100_000


def ratio_of_turns(ratios: pd.Series, sensitivity: str, *, control: bool = True) -> Finding:
    """Return the geometric mean of the turns' ratios, with its t interval from five turns on."""
    logs, interval = np.log(ratios.to_numpy()), None
    if len(logs) >= FEWEST:
        _, low, high = np.exp(t_interval(logs))
        interval = float(low), float(high)
    value = float(np.exp(logs.mean()))
    return Finding(value, interval, len(logs), "turns", sensitivity=sensitivity, control=control)


def stored_ratios(engines: pd.DataFrame, above: tuple[str, int], below: tuple[str, int]) -> str:
    """Text: stored throughput of an engine on some tasks, over another's at equal input."""
    wide: Any = engines.pivot_table(
        index=["tuples", "skew"], columns=["engine", "tasks"], values="throughput"
    )
    if above not in wide or below not in wide:
        return ""
    ratios = (wide[above] / wide[below]).dropna()
    return f"Stored runs of Flink: × {ratios.min():.1f} … {ratios.max():.1f}."


def stored_gains(engines: pd.DataFrame, engine: str) -> str:
    """Text: stored throughput of an engine on two tasks at skewed keys, over uniform keys."""
    runs = engines[(engines["engine"] == engine) & (engines["tasks"] == 2)]
    wide = runs.pivot_table(index="tuples", columns="skew", values="throughput")
    if wide.empty:
        return ""
    gains = wide.drop(columns=UNIFORM).div(wide[UNIFORM], axis=0).to_numpy()
    return f"Stored runs of Flink, two tasks: × {gains.min():.1f} … {gains.max():.1f}."


def grows(grown: pd.DataFrame, engines: pd.DataFrame) -> Finding:
    """D3-1: throughput of one server grows with its tasks."""
    wide: Any = grown.pivot_table(index="turn", columns="tasks", values="throughput")
    stored = stored_ratios(engines, ("flink shared", 2), ("flink shared", 1))
    return ratio_of_turns(wide[max(wide)] / wide[min(wide)], stored)


def shuffled(keys: int, skew: float, tasks: int, receivers: float) -> np.ndarray:
    """Throughput behind a shuffle to some tasks, by hash function."""
    return shuffle_throughput(busiest_shares(keys, skew, tasks), tasks, receivers)


def skew_lowers(measured: pd.DataFrame, p: NotebookParameters, engines: pd.DataFrame) -> Finding:
    """D3-2: behind a shuffle to 24 tasks, skew lowers throughput."""
    b = receivers_share(measured)
    ratios = shuffled(p.keys, LEAST_SKEW, MANY, b) / shuffled(p.keys, UNIFORM, MANY, b)
    text = f"Here {b:.0%}; over hash functions {ratios.min():.2f} … {ratios.max():.2f}. "
    text += f"The reverse on few tasks: {stored_gains(engines, 'flink keyed')}"
    value = float(np.median(ratios))
    return Finding(value, None, HASHES, "hash functions", sensitivity=text)


def skew_is_faster(measured: pd.DataFrame, p: NotebookParameters, engines: pd.DataFrame) -> Finding:
    """D3-4: with a shared table, input of skew 1.4 is faster than uniform input."""
    runs = measured[measured["strategy"] == LATE_GLOBAL]
    wide = runs.pivot_table(index="turn", columns="skew", values="throughput")
    gains: Any = wide.div(wide[UNIFORM], axis=0).drop(columns=UNIFORM)
    nearest = min(gains.columns, key=lambda skew: abs(skew - STOPPED))
    least = gains.columns.min()
    text = "With 10,000 keys a task keeps all sums. "
    if least < nearest:
        text += f"At skew {least:g}: × {gains[least].median():.2f}. "
    text += stored_gains(engines, "flink shared")
    return ratio_of_turns(gains[nearest], text, control=p.keys >= ENOUGH_KEYS)


def nobody_is_disturbed(killed: pd.DataFrame) -> Finding:
    """D3-5: a failure disturbs no healthy task."""
    rows = killed[killed["killed"] != BROKEN]
    behind = int(rows["behind_a_shuffle"].sum())
    text = f"Behind a shuffle, healthy tasks would have received {behind:,} tuples twice."
    disturbed = int(rows["disturbed"].sum())
    return Finding(disturbed, None, len(rows), "kills", sensitivity=text, control=behind > 0)


def skew_stops_growth(measured: pd.DataFrame, p: NotebookParameters) -> Finding:
    """D3-7: from skew 1.4 on, a shuffle's growth stops at 8 tasks."""
    b = receivers_share(measured)

    def growth(skew: float) -> np.ndarray:
        return shuffled(p.keys, skew, MANY, b) / shuffled(p.keys, skew, FEW, b)

    growths, control = growth(STOPPED), bool(np.median(growth(UNIFORM)) >= STILL)
    text = f"Receivers bear {b:.0%} here; {np.mean(growths < STILL):.0%} of hash functions stop it."
    value = float(np.median(growths))
    return Finding(value, None, HASHES, "hash functions", sensitivity=text, control=control)


def nothing_is_lost(killed: pd.DataFrame, stored_kills: pd.DataFrame) -> Finding:
    """D3-8: after a failure no sum is missing or wrong."""
    broken = killed["killed"] == BROKEN
    text = ""
    if len(stored := stored_kills[stored_kills["killed"] != BROKEN]):
        count, among = int(stored["wrong"].sum()), int(stored["kills"].sum())
        most = share_interval(count, among)[1]
        date = stored["date"].iloc[0]
        text = f"Stored run of {date}: {count} of {among} kills wrong (at most {most:.1%})."
    wrong, n = int(killed.loc[~broken, "wrong"].sum()), int((~broken).sum())
    control = bool((killed.loc[broken, "wrong"] > 0).all() and broken.any())
    return Finding(wrong, None, n, "kills", sensitivity=text, control=control)


def beats_the_shuffle(measured: pd.DataFrame, engines: pd.DataFrame) -> Finding:
    """D3-9: on equally skewed input, a shared table is faster than a shuffle; the least gain."""
    wide = measured.pivot_table(index=["skew", "turn"], columns="strategy", values="throughput")
    gains = (wide[LATE_GLOBAL] / wide[UPFRONT]).unstack("skew").drop(columns=UNIFORM)
    stored = stored_ratios(engines, ("flink shared", 2), ("flink keyed", 2))
    return ratio_of_turns(gains[gains.median().idxmin()], stored)


def barriers_are_faster(flushes: pd.DataFrame) -> Finding:
    """D3-10: flushing at barriers is faster than flushing at every merge."""
    wide = flushes.pivot_table(index="turn", columns="flush", values="per_s")
    text = "A merge is a batch of sums here; a flush for every tuple would cost more."
    return ratio_of_turns(wide["at barriers"] / wide["at every merge"], text)


# `timed` also where a formula takes the receivers' share, because that is measured.
CLAIMS = [
    Claim(
        "D3-1", "Raising the parallelism raises the throughput.", "6",
        "One server's tasks share a table in memory, as in section 5.1; most tasks against one.",
        grows, "> 1", Threshold("section 6: throughput rises", low=1, strict=True),
        unit="× one task's", timed=True,
    ),
    Claim(
        "D3-2", "With a shuffle, throughput falls as keys become skewed.", "6, fig. 5",
        "“Processing after grouping does not parallelize”: the busiest of 24 receivers limits.",
        skew_lowers, "< 1", Threshold("section 6: throughput falls", high=1, strict=True),
        condition="there are 24 tasks, and receivers bear over 15 % of a tuple's cost",
        basis=MODELLED, unit="× uniform keys', skew 1.2", timed=True, recorded=HOLDS_IF,
    ),
    Claim(
        "D3-4", "With shared state, skewed input is even faster than input without skew.", "6",
        "Skew 1.4, and so many keys that skew lowers the number of sums: the document's reason.",
        skew_is_faster, "> 1", Threshold("section 6: faster", low=1, strict=True),
        condition="there are at least 100,000 keys", unit="× uniform keys'", timed=True,
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
        Threshold("ours: a fifth; the same from 1.11 to 1.5", high=STILL, strict=True),
        condition="receivers bear at least 24 % of a tuple's cost", basis=MODELLED,
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
        "Ten merges into a SQLite table, with one flush against ten.",
        barriers_are_faster, "> 1", Threshold("section 5.1: lowers", low=1, strict=True),
        unit="× flushing at every merge", timed=True,
    ),
]  # fmt: skip


def summarize(records: Mapping[str, ClaimRecord], parameters: NotebookParameters) -> Summary:
    """Return the box of a run from its verdicts and values."""
    clauses = {
        "D3-8": "{0.n:,} kills leave no wrong sum",
        "D3-9": "shared state has {0.measured:.1f} times a shuffle's throughput under skew",
        "D3-4": "skew makes shared state faster",
    }
    return Summary(
        claimed="Tasks that share sums in a database need no shuffle: skew costs nothing, "
        "failures stay local.",
        found=sentences_by_verdict(records, clauses),
        sure=f"Measured on {parameters.tasks} tasks, computed for more.",
        limits="The document gives neither the number of keys nor the cost of a tuple.",
    )
