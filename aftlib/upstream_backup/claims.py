"""D4's claims, each judged by the frames of its experiments.

The parameters are results of experiments: `outcomes` of `recoveries`, `either` of `either_node`,
`restored` of `settings_of_hwang`, `real` of `real_kills`, `parts` of `tcp_parts`, `costs` of
`overheads`, `ns3` of `against_ns3`, `counted` of `counted_traffic`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from aftlib.core.intervals import ratio_interval, t_interval
from aftlib.upstream_backup.experiments.recoveries import BYTES_LIMIT, SHARES, TIME_LIMIT, explained
from aftlib.upstream_backup.schemes import PROPOSED, UPSTREAM
from aftlib.workbench.old_claims import (
    DERIVED,
    DEVIATES,
    SIMULATED,
    UNDECIDED,
    Claim,
    Finding,
    Threshold,
    nothing,
)

LOW_RATE = 1000
"""Tuples per second up to which the document finds little difference in counts (D4-2, D4-4)."""
HALF = 0.5
"""Tuples that the proposal processes again, over upstream backup's, by the closed form."""
HWANG = ("active standby", "passive standby", "upstream backup")
BOTH = (PROPOSED.name, UPSTREAM.name)
Ratios = list[tuple[float, float, tuple[float, float]]]


def of_both(trials: pd.DataFrame, family: int = 1) -> tuple[float, tuple[float, float]]:
    """Ratio of the proposal's mean to upstream backup's over paired trials, and its interval."""
    x, y = (trials[name].to_numpy(float) for name in BOTH)
    return ratio_interval(x, y, paired=True, family=family)


def ratios(outcomes: pd.DataFrame, measure: str) -> Ratios:
    """Rate, ratio of the proposal to upstream backup, and joint interval, for each rate."""
    wide = outcomes.pivot_table(index=["rate", "trial"], columns="scheme", values=measure)
    rates = wide.index.get_level_values("rate").unique()
    parts = [(rate, wide.loc[rate]) for rate in rates]
    return [
        (float(rate), *of_both(part, len(parts)))
        for rate, part in parts
        if part[UPSTREAM.name].mean() > 0
    ]


def at_every_rate(outcomes: pd.DataFrame, measure: str) -> Finding:
    """The finding at the rate whose ratio has the highest upper end; its parts are other rates."""
    *others, (at, worst, interval) = sorted(ratios(outcomes, measure), key=lambda each: each[2][1])
    return Finding(
        worst,
        interval,
        n=int(outcomes["trial"].nunique()),
        counted="failures per rate",
        parts={f"{rate:,.0f} tuples/s": Finding(one, ends) for rate, one, ends in sorted(others)},
        note=f"The value is the ratio of the means at {at:,.0f} tuples/s. Of "
        f"{len(others) + 1} rates this one has the interval with the highest upper end. All "
        "intervals hold jointly (Bonferroni).",
    )


def by_real_kills(real: pd.DataFrame, measure: str) -> Finding:
    """Ratio of the proposal's mean to upstream backup's in real kills, which are not paired."""
    x, y = (real.loc[real["scheme"] == name, measure].to_numpy(float) for name in BOTH)
    if min(len(x), len(y)) < 2:
        return nothing("It needs two real kills of each scheme.")
    return Finding(*ratio_interval(x, y), n=len(x), counted="kills of each scheme")


def sends_less(outcomes: pd.DataFrame, real: pd.DataFrame) -> Finding:
    """D4-1: fewer tuples are processed again, at every rate, in simulation and real processes."""
    worst, kills = at_every_rate(outcomes, "resent"), by_real_kills(real, "resent")
    intervals = [each.interval or (0, 0) for each in (worst, *worst.parts.values())]
    near_half = sum(low <= HALF <= high for low, high in intervals)
    return replace(
        worst,
        control=near_half == len(intervals),
        readings={} if kills.missing else {f"{kills.n} real kills of each, one rate": kills},
        note=f"{worst.note} The closed form gives exactly one half, and {near_half} of the "
        "intervals contain it. The primary fails in every trial; D4-8 has failures of either node.",
    )


def grows_with_rate(outcomes: pd.DataFrame) -> Finding:
    """D4-2: the difference is small at low rates and grows with the rate.

    The queue of tuples without an ACK is proportional to the rate. So at low rates the difference
    is small on the figure's scale, although it is half of upstream backup's count at every rate.
    """
    wide = outcomes.pivot_table(index="trial", columns=["scheme", "rate"], values="resent")
    fewer = pd.DataFrame(wide[UPSTREAM.name] - wide[PROPOSED.name])
    rates, means = np.array(fewer.columns, float), fewer.mean()
    near, axes = rates[rates <= LOW_RATE], rates[(rates > LOW_RATE) & (means > 0)]
    if not (near.size and axes.size):
        return nothing(f"Growth needs a rate of at most {LOW_RATE:,} tuples/s, and one above.")

    low, grows = near.max(), means.is_monotonic_increasing

    def on_axis(most: float) -> Finding:
        x, y = (fewer[rate].to_numpy(float) for rate in (low, most))
        return Finding(*ratio_interval(x, y, paired=True), conditions=grows)

    own = ratios(outcomes, "resent")[0]
    relative = Finding(1 - own[1], (1 - own[2][1], 1 - own[2][0]), unit="of its count")
    others = {f"fig. 5's axis ends at {rate:,.0f} tuples/s": on_axis(rate) for rate in axes[:-1]}
    return replace(
        on_axis(axes[-1]),
        n=len(fewer),
        counted="failures per rate",
        readings={f"relative to upstream backup, {own[0]:,.0f} tuples/s": relative} | others,
        note=f"The value divides the difference at {low:,.0f}/s by the largest, at "
        f"{axes[-1]:,.0f}/s, where our sweep ends: {means[low]:,.0f} and {means[axes[-1]]:,.0f} "
        "tuples. Gap in the document: its text does not give the axis of fig. 5. The difference is "
        f"{'' if grows else 'not '}larger at each higher rate. Relative to upstream backup's own "
        "count it is about one half at every rate.",
    )


def queue_is_empty(outcomes: pd.DataFrame) -> Finding:
    """D4-7: at low rates the level-1 ACK arrives before the next tuple."""
    rate = outcomes["rate"].min()
    queue = outcomes.loc[
        (outcomes["rate"] == rate) & (outcomes["scheme"] == UPSTREAM.name), "queue_at_crash"
    ]
    mean, low, high = (float(value) for value in t_interval(queue.to_numpy(float)))
    return Finding(
        mean,
        (low, high),
        n=len(queue),
        counted="failures",
        missing="" if rate <= LOW_RATE else f"D4-7 needs a rate of at most {LOW_RATE:,} tuples/s.",
        note="The value counts tuples without a level-1 ACK at the failure, in upstream backup at "
        f"{rate:,.0f} tuples/s. A tuple waits for its ACK for 32.5 ms on average: four hops of 5 "
        "ms and half an ACK interval of 25 ms. So the ACK comes before the next tuple, on average, "
        "only below about 30 tuples/s.",
    )


def recovers_sooner(outcomes: pd.DataFrame, ns3: pd.DataFrame) -> Finding:
    """D4-3: recovery is shorter at every rate, in a simulation whose times agree with ns-3's."""
    worst, both = at_every_rate(outcomes, "recovery_ms"), ns3[ns3["scheme"].isin([*BOTH])]
    off = float(both["recovery_ms_error"].abs().max())
    return replace(
        worst,
        control=off <= TIME_LIMIT,
        note=f"{worst.note} The simulated times of both schemes are within {off:.1%} of ns-3's "
        "over the same failures. The primary fails in every trial; D4-9 has failures of either "
        "node, D4-10 real processes.",
    )


def real_processes_recover_sooner(real: pd.DataFrame) -> Finding:
    """D4-10: real processes recover sooner under the proposal than under upstream backup."""
    return replace(
        by_real_kills(real, "recovery_ms"),
        note="The value is the ratio of mean recovery times of real processes at one rate; kills "
        "of the proposal and of upstream backup are not paired. This is another system than table "
        "1's: Unix sockets instead of links of 5 ms, and no connection to open. A recovery takes "
        "some ms, and scheduling is most of it.",
    )


def either_node_fails(either: pd.DataFrame) -> Finding:
    """D4-8: if both nodes fail equally often, both schemes send equally many tuples again."""
    at, ratio, _ = max(ratios(either, "resent"), key=lambda each: abs(each[1] - 1))
    means = either[either["rate"] == at].groupby(["scheme", "node"])["resent"].mean().unstack()
    shown = "; ".join(
        f"{scheme} {' and '.join(f'{mean:,.1f}' for mean in row)}"
        for scheme, row in means.iterrows()
    )
    return Finding(
        ratio,
        note="The value is the number of tuples sent again, divided by upstream backup's. It is "
        f"shown for {at:,.0f} tuples/s, the rate at which it is farthest from 1. A ratio near 1 is "
        "expected, because each tuple without an ACK lies in one of the proposal's two queues. The "
        "failure of upstream backup's idle secondary costs nothing. Means where the primary fails "
        f"and where the secondary does: {shown}.",
    )


def either_node_recovers_sooner(either: pd.DataFrame) -> Finding:
    """D4-9: if both nodes fail equally often, the mean recovery is still shorter."""
    worst = at_every_rate(either, "recovery_ms")
    return replace(
        worst,
        counted="pairs of failures per rate",
        note=f"{worst.note} Both nodes fail equally often. The failure of an idle secondary counts "
        "as a recovery of 0 ms.",
    )


def blames_nagle(parts: pd.DataFrame) -> Finding:
    """D4-4: Nagle's algorithm makes the gap at low rates.

    Judged by stored runs of ns-3. They decide only if the simulation gives the same times wherever
    it has the same parts of TCP.
    """
    ours, trials = explained(parts, "ms"), explained(parts, by=("rate", "failure_ms"))
    ours = ours[ours.index <= LOW_RATE].dropna(axis="columns")
    shares = ours[["handshake", "initial_window"]].sum() / ours["gap"].sum()
    means = parts.groupby(["switch", "rate"])[["ms", "ns3_ms"]].mean()
    off = float((means["ms"] / means["ns3_ms"] - 1).abs().max())
    findings = {
        f"{rate:,.0f} tuples/s, {reading}": share
        for rate in ours.index
        for reading, share in nagles_shares(trials.loc[rate]).items()
    }
    named = list(findings)[-len(NAGLE)]
    return replace(
        findings.pop(named),
        readings=findings,
        missing="Simulation and ns-3 disagree." if off > TIME_LIMIT else "",
        note="The value is the share of the gap that Nagle's algorithm makes, for this case: "
        f"{named}. The share differs at lower rates and under other readings. It comes from stored "
        "runs of ns-3 that switch one part of TCP at a time. In the simulation, which has no such "
        f"algorithm, opening the connection makes {shares['handshake']:.0%} of the gaps up to "
        f"{LOW_RATE:,} tuples/s and the initial window {shares['initial_window']:.0%}. So the "
        "document is right that a connection not used before makes the gap. Simulation and ns-3 "
        f"agree within {off:.1%}. Limit of our evidence: Nagle's algorithm together with delayed "
        "ACKs has no complete run, because late heartbeats make healthy nodes seem failed.",
    )


NAGLE = (
    "upstream backup opens its connection at recovery",
    "upstream backup's connection exists, but is unused",
    "the algorithm is on in both schemes",
)
"""Readings of the algorithm's share of the gap (D4-4)."""


def nagles_shares(gaps: pd.DataFrame) -> dict[str, Finding]:
    """Share of the gap that Nagle's algorithm makes, for each reading, over paired failures."""
    adds, whole = gaps["nagle_adds"], gaps["gap"] + gaps["nagle_adds"]
    both = gaps["gap_with_nagle"]
    parts = [(adds, whole), (adds, whole - gaps["handshake"]), (both - gaps["gap"], both)]
    shares = (ratio_interval(x.to_numpy(), y.to_numpy(), paired=True) for x, y in parts)
    findings = [Finding(*share, n=len(gaps), counted="paired failures") for share in shares]
    return dict(zip(NAGLE, findings, strict=True))


def costs_as_named(costs: pd.DataFrame, counted: pd.DataFrame) -> Finding:
    """D4-5: bandwidth of the schemes of Hwang et al., by their own denominator.

    Decided only if the closed form agrees with the bytes that ns-3 counts.
    """
    highest, lowest = costs["rate"].max(), costs["rate"].min()
    last = costs[costs["rate"] == highest].set_index("scheme")
    low = costs[costs["rate"] == lowest].set_index("scheme")
    titles = ("Shares of all traffic", "of the stream without fault tolerance", "of the input")
    shown = "; ".join(
        f"{title}: " + ", ".join(f"{name} {value:.1%}" for name, value in last[column].items())
        for column, title in zip(SHARES, titles, strict=True)
    )
    off = float(counted["error"].abs().max())
    return replace(
        overhead(last["relative_to_input"]),
        readings={
            "section 2.2's denominator": overhead(last["share_of_all"], "of all traffic"),
            f"at {lowest:,.0f} tuples/s": overhead(low["relative_to_input"]),
        },
        missing="Closed form and ns-3 disagree." if off > BYTES_LIMIT else "",
        note=f"The value is active standby's bandwidth overhead at {highest:,.0f} tuples/s, "
        "divided by the stream into the node, as Hwang et al. do. Error in the document: by "
        "section 2.2's own definition, a share of all traffic, no scheme can come near 100 %. "
        f"{shown}. Gap in the document: it does not give the bytes of state per tuple, so passive "
        "standby's share, which section 2.2 calls large, is not judged. The closed form is within "
        f"{off:.1%} of ns-3.",
    )


def overhead(column: pd.Series, unit: str | None = None) -> Finding:
    """Active standby's bandwidth overhead; upstream backup's must be least and below a tenth."""
    active, passive, upstream = (float(column[name]) for name in HWANG)
    return Finding(active, conditions=upstream < min(passive, active, 0.1), unit=unit)


def recovers_as_named(restored: pd.DataFrame) -> Finding:
    """D4-6: recovery time by Hwang et al.'s definition: active < passive < upstream backup."""
    settings = restored.groupby("setting", sort=False)
    steps = {str(setting): step(rows) for setting, rows in settings}
    first, *_ = steps
    value, interval = steps.pop(first)
    return Finding(
        value,
        interval,
        n=int(restored["trial"].nunique()),
        counted="failures",
        readings={setting: Finding(*each) for setting, each in steps.items()},
        note="The value is the smaller of two differences in mean time: passive minus active "
        "standby, and upstream backup minus passive standby. Rate: "
        f"{restored['rate'].iloc[0]:,.0f} tuples/s; setting: {first}. Times run from detection "
        "until the survivor has the state of the failed node. Gap in the document: it gives no "
        "checkpoint interval. Only upstream backup's restoration may wait for a new connection.",
    )


def step(rows: pd.DataFrame) -> tuple[float, tuple[float, float]]:
    """Smallest mean step in ms from one scheme of `HWANG` to the next, with its joint interval."""
    wide = rows.pivot_table(index="trial", columns="scheme", values="restored_ms")[[*HWANG]]
    steps = wide.diff(axis="columns").iloc[:, 1:].to_numpy(float).T
    centre, low, high = t_interval(steps, family=2)
    least = int(centre.argmin())
    return float(centre[least]), (float(low[least]), float(high[least]))


RESENT_FIGURE, RECOVERY_FIGURE = "Tuples processed again (fig. 5)", "Recovery time (fig. 6)"

FEWER = Threshold("section 4.3: fewer; ours: at every rate", high=1, strict=True)
SHORTER = Threshold("section 4.3: shorter; ours: at every rate", high=1, strict=True)
LESS = Threshold("ours: a ratio below 1 is shorter", high=1, strict=True)

CLAIMS = [
    Claim(
        "D4-1", "Fewer tuples are processed again than in upstream backup.", sends_less,
        source="section 4.3, fig. 5", expected="fewer at every rate", threshold=FEWER,
        unit="× upstream backup's", figure=RESENT_FIGURE, basis=SIMULATED,
    ),
    Claim(
        "D4-2",
        "At low rates the number of tuples processed again hardly differs from upstream backup's; "
        "the difference grows with the rate.",
        grows_with_rate, source="section 4.3, fig. 5",
        expected="small at low rates, growing with the rate",
        threshold=Threshold("ours: “hardly” means at most a tenth of the largest difference on "
                            "fig. 5's axis", high=0.1),
        unit="of the largest", figure=RESENT_FIGURE, basis=SIMULATED, recorded=UNDECIDED,
    ),
    Claim(
        "D4-3", "Recovery is shorter than in upstream backup.", recovers_sooner,
        source="section 4.3, fig. 6", expected="shorter at every rate", threshold=SHORTER,
        unit="× upstream backup's", figure=RECOVERY_FIGURE, basis=SIMULATED,
    ),
    Claim(
        "D4-4",
        "At rates up to 1,000 tuples/s the gap in recovery time comes from Nagle's algorithm on a "
        "connection that was not used before.",
        blames_nagle, source="section 4.3, fig. 6",
        expected="most of the gap at rates up to 1,000 tuples/s",
        threshold=Threshold("ours: the cause of a gap makes at least half of it", low=0.5),
        unit="of the gap",
        figure="Upstream backup's recovery time, TCP's parts switched one by one", basis=SIMULATED,
        recorded=UNDECIDED,
    ),
    Claim(
        "D4-5",
        "Bandwidth overhead: about 100 % in active standby, least and nearly none in upstream "
        "backup.",
        costs_as_named, source="section 2.2, after Hwang et al.",
        expected="active ≈ 100 %, upstream least and ≈ 0",
        threshold=Threshold(
            "ours: “about” means within a fifth, “nearly none” below a tenth; the verdict is the "
            "same if “about” means within a hundredth or within a half", 0.8, 1.2,
        ),
        unit="of the input", basis=DERIVED, figure="Bandwidth overhead", recorded=UNDECIDED,
    ),
    Claim(
        "D4-6", "Recovery time: active standby < passive standby < upstream backup.",
        recovers_as_named, source="section 2.2, after Hwang et al.",
        expected="active < passive < upstream backup",
        threshold=Threshold("section 2.2: each is longer", low=0, strict=True), unit="ms",
        figure=RECOVERY_FIGURE, basis=SIMULATED, recorded=UNDECIDED,
    ),
    Claim(
        "D4-7",
        "At low rates the level-1 ACK arrives before the next tuple, so that the queue is empty.",
        queue_is_empty, source="section 4.3", expected="at most one tuple in the queue",
        threshold=Threshold("section 4.3: before the next tuple is sent", high=1), unit="tuples",
        figure=RESENT_FIGURE, basis=SIMULATED, recorded=DEVIATES,
    ),
    Claim(
        "D4-8", "When both nodes fail equally often, the proposal saves no tuples.",
        either_node_fails, expected="the same number",
        threshold=Threshold("ours: equal within a tenth", 0.9, 1.1), unit="× upstream backup's",
        basis=DERIVED, project=True, figure=RESENT_FIGURE,
    ),
    Claim(
        "D4-9",
        "If both nodes fail equally often, mean recovery is still shorter than in upstream backup.",
        either_node_recovers_sooner, expected="shorter at every rate",
        threshold=LESS, unit="× upstream backup's", basis=SIMULATED, project=True,
        figure=RECOVERY_FIGURE,
    ),
    Claim(
        "D4-10", "In real processes, too, the proposal recovers sooner than upstream backup.",
        real_processes_recover_sooner, expected="shorter", threshold=LESS,
        unit="× upstream backup's", project=True, timed=True,
        figure="Tuples sent again after a real kill", recorded=UNDECIDED,
    ),
]  # fmt: skip
