"""D4's claims, each judged by the variables of notebook 04.

`outcomes` and `either` come from `recoveries` (the primary fails; each node fails) under the
parameters `p`, `ns3` from `compare_with_ns3`, `parts` from `tcp_parts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd

from aftlib.core.intervals import ratio_interval, t_interval
from aftlib.documents.upstream_backup.closed_form import expected_queue
from aftlib.documents.upstream_backup.experiments import NotebookParameters
from aftlib.documents.upstream_backup.stored_runs import (
    ALL_DELAYED,
    AT_ONCE,
    DELAYED,
    TIME_LIMIT,
    explain_gap,
    share_of_nagle,
)
from aftlib.documents.upstream_backup.system import PROPOSED, UPSTREAM
from aftlib.notebook.claims import HOLDS_IF, SIMULATED, Claim, Finding, Summary, Threshold, not_run
from aftlib.notebook.scorecard import ClaimRecord, sentences_by_verdict
from aftlib.notebook.texts import short_percent, span_of

LOW_RATE = 1000
"""Tuples per second up to which the document finds little difference in counts (D4-2, D4-4)."""
HALF = 0.5
"""Tuples that the proposal processes again, over upstream backup's, by the closed form."""
CAUSE = 0.5
"""Share of the gap from which on something is its cause (D4-4)."""
LITTLE = 0.1
"""Share of the figure's scale up to which a difference is small (D4-2)."""
BOTH = (PROPOSED.name, UPSTREAM.name)


def ratios(outcomes: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Ratio of the proposal's mean to upstream backup's for each rate, with joint intervals."""
    rows = {}
    rates = outcomes.groupby("rate")
    for rate, trials in rates:
        wide = trials.pivot_table(index="trial", columns="scheme", values=measure)
        proposed, upstream = (wide[name].to_numpy(float) for name in BOTH)
        ratio, interval = ratio_interval(proposed, upstream, paired=True, family=len(rates))
        rows[rate] = {"ratio": ratio, "low": interval[0], "high": interval[1]}
    return pd.DataFrame(rows).T


def find_worst(
    outcomes: pd.DataFrame, measure: str, *, sensitivity: str, control: bool, beside: str = ""
) -> Finding:
    """The ratio at the rate whose interval ends highest; all intervals hold jointly."""
    table = ratios(outcomes, measure)
    worst = table.sort_values("high").iloc[-1]
    return Finding(
        worst["ratio"],
        (worst["low"], worst["high"]),
        n=int(outcomes["trial"].nunique()),
        counted=f"failures at each of {len(table)} rates{beside}",
        sensitivity=sensitivity,
        control=control,
    )


def sends_less(outcomes: pd.DataFrame) -> Finding:
    """D4-1; the simulation is refuted if an interval excludes the closed form's one half."""
    table = ratios(outcomes, "resent")
    agrees = bool(((table["low"] <= HALF) & (table["high"] >= HALF)).all())
    text = (
        f"By formula it is {HALF:g} at every rate. Nothing is saved when either node fails equally "
        "often, and 4.1 stops the primary or the secondary: see D4-8."
    )
    return find_worst(outcomes, "resent", sensitivity=text, control=agrees)


def grows_with_rate(outcomes: pd.DataFrame) -> Finding:
    """D4-2: the difference at low rates on the scale of fig. 5, which ends at the last rate."""
    wide = outcomes.pivot_table(index="trial", columns=["scheme", "rate"], values="resent")
    fewer = pd.DataFrame(wide[UPSTREAM.name] - wide[PROPOSED.name]).mean()
    rates = np.array(fewer.index, float)
    if not ((rates <= LOW_RATE).any() and (rates > LOW_RATE).any()):
        return not_run(f"It needs a rate of at most {LOW_RATE:,} tuples/s, and one above.")
    low = rates[rates <= LOW_RATE].max()
    shares = ratios(outcomes, "resent")["ratio"]
    share = float(fewer[low] / fewer[rates.max()])
    return Finding(
        share,
        text=f"{share:.3g} of the largest difference: "
        f"{fewer[low]:,.0f} tuples at {low:,.0f}/s, {fewer[rates.max()]:,.0f} at "
        f"{rates.max():,.0f}/s",
        n=wide.index.size,
        counted="failures per rate",
        fails=""
        if fewer.is_monotonic_increasing
        else "The difference does not grow with the rate.",
        condition=f"the primary fails, and fig. 5 reaches {low / LITTLE:,.0f} tuples/s",
        sensitivity="Reversed if the relative difference is meant: the proposal's tuples are "
        f"{span_of(shares)} of upstream backup's at every rate. No difference if either node "
        "fails, as in 4.1: see D4-8.",
    )


def recovers_sooner(
    outcomes: pd.DataFrame, ns3: pd.DataFrame, parts: pd.DataFrame, either: pd.DataFrame
) -> Finding:
    """D4-3; the simulation is refuted if its times differ from ns-3's by more than 15 %."""
    off = float(ns3["recovery_ms_error"].abs().max())
    delayed = parts[parts["acknowledgements"] == DELAYED]
    means = delayed.pivot_table(index="rate", columns="switch", values="ns3_ms")
    share = (means["proposed"] / means["as it is"]).max()
    of_either = span_of(ratios(either, "recovery_ms")["ratio"])
    return find_worst(
        outcomes,
        "recovery_ms",
        sensitivity=f"With TCP's delayed acknowledgements, ns-3's default, at most {share:.2f} at "
        f"{len(means)} rates from {means.index.min():,} to {means.index.max():,} tuples/s. If "
        f"either node fails: {of_either}.",
        control=off <= TIME_LIMIT,
        beside=f", times within {100 * off:.2g} % of ns-3's",
    )


def blames_nagle(parts: pd.DataFrame) -> Finding:
    """D4-4: share of the gap that Nagle's algorithm makes, at the low rate where it is smallest."""
    means = parts.dropna().groupby(["switch", "rate"])[["ms", "ns3_ms"]].mean()
    if float((means["ms"] / means["ns3_ms"] - 1).abs().max()) > TIME_LIMIT:
        return not_run("Simulation and ns-3 disagree.")
    shares = share_of_nagle(parts)
    shares = shares[shares["rate"] <= LOW_RATE]
    low = {str(kind): rows.set_index("rate") for kind, rows in shares.groupby("acknowledgements")}
    worst = low[DELAYED].sort_values("high").iloc[0]
    of_rates = low[DELAYED]["share"].to_dict().items()
    numbers = [f"{short_percent(share, 2)} at {rate:,}/s" for rate, share in of_rates]
    handshake = explain_gap(parts, AT_ONCE)["handshake"].mean()
    gaps = explain_gap(parts).loc[:LOW_RATE]
    start = (gaps["handshake"] + gaps["initial_window"]) / (gaps["gap"] - gaps["nagle"])
    return Finding(
        float(worst["share"]),
        (float(worst["low"]), float(worst["high"])),
        n=int(worst["trials"]),
        counted="failures in ns-3 at each rate",
        text="Nagle's share of the gap: " + ", ".join(numbers),
        sensitivity="The algorithm is switched on here. It is off by default in ns-3.37, and "
        "ns-3's own TCP before 3.13 has none: then its share is 0. "
        f"It makes at least half {name_rates(low[DELAYED])}; "
        f"{name_rates(low[ALL_DELAYED])} if TCP delays the first segment's acknowledgement, too, "
        f"as versions of the document's time did; {name_rates(low[AT_ONCE])} without delays, where "
        f"it adds at most a round trip ({low[AT_ONCE]['most_ms'].max():.3g} ms) beside the "
        f"handshake's {handshake:.3g} ms. With the algorithm off it holds if TCP's start on the "
        f"new connection is meant: opening it and its first window then make "
        f"{short_percent(start.min(), 2)} to {short_percent(start.max(), 2)} of the gap.",
    )


def name_rates(shares: pd.DataFrame) -> str:
    """Return the rates at which Nagle's algorithm makes at least half of the gap, as text."""
    rates = [f"{rate:,}" for rate in shares.index[shares["share"] >= CAUSE]]
    return f"at {' and '.join(rates)} tuples/s" if rates else "at none of these rates"


def queue_is_empty(outcomes: pd.DataFrame, parts: pd.DataFrame, p: NotebookParameters) -> Finding:
    """D4-7: mean queue of upstream backup at the lowest rate, when the node fails."""
    rate = outcomes["rate"].min()
    if rate > LOW_RATE:
        return not_run(f"It needs a rate of at most {LOW_RATE:,} tuples/s.")
    rows = outcomes[(outcomes["rate"] == rate) & (outcomes["scheme"] == UPSTREAM.name)]
    mean, low, high = (float(v) for v in t_interval(rows["queue_at_crash"].to_numpy(float)))
    waited = expected_queue(p.at(rate), UPSTREAM) / rate
    empty = [f"{lower:,}" for lower in sorted(parts["rate"].unique()) if lower * waited < 1]
    so = f", so at D4-4's {' and '.join(empty)}/s" if empty else ""
    longest = waited + p.at(rate).ack_ms / 2000  # an acknowledgement comes at a random moment
    return Finding(
        mean,
        (low, high),
        n=len(rows),
        counted=f"failures at {rate:,.0f} tuples/s, the lowest rate of figs 5 and 6 here",
        sensitivity=f"A tuple waits {1000 * waited:.3g} ms for its ACK on average, and at most "
        f"{1000 * longest:.3g} ms. It always comes before the next tuple below "
        f"{1 / longest:.3g} tuples/s; the mean queue is at most 1 below {1 / waited:.3g}{so}.",
    )


def saves_nothing_for_either(either: pd.DataFrame) -> Finding:
    """D4-8: tuples sent again by both schemes when each node fails equally often."""
    sent = either.pivot_table(index="rate", columns="scheme", values="resent")
    ratio = sent[PROPOSED.name] / sent[UPSTREAM.name]
    worst = float(ratio.to_numpy()[(ratio - 1).abs().to_numpy().argmax()])
    times = ratios(either, "recovery_ms")["ratio"]
    primary = ratios(either[either["node"] == "primary"], "resent")["ratio"].mean()
    return Finding(
        worst,
        n=int(either["trial"].nunique()),
        counted="failures of each node per rate",
        text=f"{worst:.2f} × upstream backup's tuples, {span_of(times)} × its recovery time",
        sensitivity=f"It is {primary:.2g} if only the primary fails.",
    )


simulated_claim = partial(Claim, basis=SIMULATED)
FEWER = Threshold("the document's sentence; ours: at every rate", high=1, strict=True)

CLAIMS = [
    simulated_claim(
        "D4-1",
        "The proposal processes fewer tuples again than upstream backup.",
        "4.3, fig. 5",
        "mean tuples sent again, proposal over upstream backup, when the primary fails",
        sends_less,
        expected="below 1 at every rate",
        threshold=FEWER,
        condition="the primary fails",
        unit="× upstream backup's",
        recorded=HOLDS_IF,
    ),
    simulated_claim(
        "D4-2",
        "At low rates the numbers differ little; the difference grows with the rate.",
        "4.3, fig. 5",
        "the difference at up to 1,000 tuples/s on the figure's scale (図5において…差は少ない)",
        grows_with_rate,
        expected="at most a tenth",
        threshold=Threshold("ours: a tenth of the figure's scale", high=LITTLE),
        condition="the primary fails, and fig. 5 reaches {rate} tuples/s",
        by_construction="the difference is proportional to the rate, so the share is the low rate "
        "over our last rate",
        unit="of the largest difference",
        recorded=HOLDS_IF,
    ),
    simulated_claim(
        "D4-3",
        "The proposal recovers sooner than upstream backup.",
        "4.3, fig. 6",
        "mean time from the request until the last tuple is processed again",
        recovers_sooner,
        expected="below 1 at every rate",
        threshold=FEWER,
        unit="× upstream backup's",
    ),
    simulated_claim(
        "D4-4",
        "Up to 1,000 tuples/s the gap comes from Nagle's algorithm, because communication starts.",
        "4.3, fig. 6",
        "its share at every such rate, on the connection opened at recovery "
        "(通信が開始されるため), with ns-3's default acknowledgements (DelAckCount 2), because the "
        "document names no change",
        blames_nagle,
        expected="at least half of the gap",
        threshold=Threshold(
            "ours: a cause makes at least half; the same for any share above 0", low=CAUSE
        ),
        unit="of the gap",
        recorded="does not hold",
    ),
    simulated_claim(
        "D4-7",
        "At low rates the level-1 ACK arrives before the next tuple, so the queue is empty.",
        "4.3",
        "mean queue of upstream backup at the lowest rate of figs 5 and 6 in the run",
        queue_is_empty,
        expected="at most 1 tuple",
        threshold=Threshold("the document's sentence", high=1),
        unit="tuples",
        recorded="does not hold",
    ),
    simulated_claim(
        "D4-8",
        "When either node fails equally often, the proposal sends as many tuples again.",
        "ours",
        "tuples sent again per failure of either node, proposal over upstream backup",
        saves_nothing_for_either,
        expected="1 within a tenth",
        threshold=Threshold("ours: equal within a tenth; the same from .01 on", 0.9, 1.1),
        by_construction="each tuple without an ACK lies in one of the two queues",
        unit="× upstream backup's",
        project=True,
    ),
]


def summarize(records: Mapping[str, ClaimRecord], parameters: NotebookParameters) -> Summary:
    """Return the box of a run from its verdicts and values."""
    clauses = {
        "D4-1": "it replays {0.measured:.2g} times upstream backup's tuples",
        "D4-3": "it recovers in at most {0.measured:.2g} times the time after a primary's failure",
        "D4-4": f"Nagle's algorithm makes most of this lead up to {LOW_RATE:,} tuples/s",
        "D4-7": "queues are empty at low rates",
    }
    return Summary(
        claimed="A working secondary shortens upstream backup's recovery.",
        found=sentences_by_verdict(records, clauses),
        sure="Simulated, checked against ns-3.",
        limits=f"If either node fails equally often, {records['D4-8'].measured:.2f} times the "
        "tuples.",
    )
