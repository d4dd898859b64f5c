"""D4's claims, and how the frames of its experiments judge them.

The parameters are results of experiments: `found` of `recoveries`, `either` of `either_node`,
`restored` of `settings_of_hwang`, `real` of `real_kills`, `parts` of `tcp_parts`, `costs` of
`overheads`, `ns3` of `against_ns3`, `counted` of `counted_traffic`.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from aftlib.core.claims import (
    DERIVED,
    DEVIATES,
    SIMULATED,
    UNDECIDED,
    Claim,
    Finding,
    Threshold,
    nothing,
)
from aftlib.core.intervals import ratio_interval, t_interval
from aftlib.upstream_backup.experiments.recoveries import SHARES, saved
from aftlib.upstream_backup.experiments.references import BYTES_LIMIT, TIME_LIMIT, explained
from aftlib.upstream_backup.schemes import PROPOSED, UPSTREAM

LOW_RATE = 1000
"""Tuples per second up to which the document finds little difference in counts (D4-2, D4-4)."""
HALF = 0.5
"""What the proposal has to process again of upstream backup's, by the closed form."""
HWANG = ("active standby", "passive standby", "upstream backup")
BOTH = (PROPOSED.name, UPSTREAM.name)
Ratios = list[tuple[float, float, tuple[float, float]]]


def of_both(trials: pd.DataFrame, family: int = 1) -> tuple[float, tuple[float, float]]:
    """Ratio of the proposal's mean to upstream backup's over paired trials, and its interval."""
    x, y = (trials[name].to_numpy(float) for name in BOTH)
    return ratio_interval(x, y, paired=True, family=family)


def ratios(found: pd.DataFrame, measure: str) -> Ratios:
    """Proposal to upstream backup at each rate: rate, ratio, interval; all intervals together."""
    wide = found.pivot_table(index=["rate", "trial"], columns="scheme", values=measure)
    rates = wide.index.get_level_values("rate").unique()
    parts = [(rate, wide.loc[rate]) for rate in rates]
    return [
        (float(rate), *of_both(part, len(parts)))
        for rate, part in parts
        if part[UPSTREAM.name].mean() > 0
    ]


def by_real_kills(real: pd.DataFrame, measure: str) -> dict[str, Finding]:
    """The same ratio among real processes that were killed, as a reading."""
    x, y = (real.loc[real["scheme"] == name, measure].to_numpy(float) for name in BOTH)
    if min(len(x), len(y)) < 2:
        return {}
    return {f"{len(x)} real kills of each scheme": Finding(*ratio_interval(x, y), n=len(x))}


def sends_less(found: pd.DataFrame, real: pd.DataFrame) -> Finding:
    """D4-1: fewer tuples are processed again, at every rate, in simulation and real processes."""
    at, ratio, interval = max(rates := ratios(found, "resent"), key=lambda each: each[2][1])
    near_half = sum(low <= HALF <= high for _, _, (low, high) in rates)
    return Finding(
        ratio,
        interval,
        n=int(found["trial"].nunique()),
        counted="failures per rate",
        control=near_half == len(rates),
        readings=by_real_kills(real, "resent"),
        note=f"Ratio of the means at {at:,.0f}/s, the highest of {len(rates)} rates by the upper "
        "end of the interval. The intervals hold together (Bonferroni). The closed form gives "
        f"exactly one half, and {near_half} of the intervals contain it. The primary fails in "
        "every trial; D4-8 has failures of either node.",
    )


def grows_with_rate(found: pd.DataFrame) -> Finding:
    """D4-2: the difference is small at low rates and grows with the rate.

    The queue of tuples without an ACK is proportional to the rate, so the difference is small on
    the figure's scale, and one half of upstream backup's count at every rate.
    """
    fewer = saved(found, "resent")
    low, most = fewer[fewer["rate"] <= LOW_RATE], fewer.nlargest(1, "rate").iloc[0]
    if low.empty or most["rate"] <= LOW_RATE or most["mean"] <= 0:
        return nothing(f"Growth needs a rate up to {LOW_RATE:,} tuples/s, and one above.")
    near = low.nlargest(1, "rate").iloc[0]
    relative = ratios(found, "resent")[0]
    grows = fewer.sort_values("rate")["mean"].is_monotonic_increasing
    return Finding(
        near["mean"] / most["mean"],
        (near["low"] / most["mean"], near["high"] / most["mean"]),
        n=int(found["trial"].nunique()),
        counted="failures per rate",
        conditions=bool(grows),
        readings={
            "share of upstream backup's count": Finding(
                1 - relative[1], (1 - relative[2][1], 1 - relative[2][0])
            )
        },
        note=f"Difference at {near['rate']:,.0f}/s over the largest, at {most['rate']:,.0f}/s, as "
        f"fig. 5 shows it: {near['mean']:,.0f} and {most['mean']:,.0f} tuples. The difference is "
        f"{'' if grows else 'not '}larger at each higher rate. Relative to upstream backup's own "
        "count it is about one half at every rate, also the lowest.",
    )


def queue_is_empty(found: pd.DataFrame) -> Finding:
    """D4-7: at low rates the level-1 ACK arrives before the next tuple."""
    rate = found["rate"].min()
    queue = found.loc[
        (found["rate"] == rate) & (found["scheme"] == UPSTREAM.name), "queue_at_crash"
    ]
    mean, low, high = (float(value) for value in t_interval(queue.to_numpy(float)))
    return Finding(
        mean,
        (low, high),
        n=len(queue),
        counted="failures",
        missing="" if rate <= LOW_RATE else f"It needs a rate up to {LOW_RATE:,} tuples/s.",
        note=f"Tuples without a level-1 ACK at the failure, upstream backup, {rate:,.0f} tuples/s. "
        "One tuple arrives before the next ACK only below about 30 tuples/s: with an ACK interval "
        "of 25 ms and four hops of 5 ms a tuple waits 32.6 ms on average.",
    )


def recovers_sooner(found: pd.DataFrame, ns3: pd.DataFrame, real: pd.DataFrame) -> Finding:
    """D4-3: recovery is shorter at every rate, by a simulation whose times are ns-3's."""
    rates = ratios(found, "recovery_ms")
    at, ratio, interval = max(rates, key=lambda each: each[2][1])
    both = ns3[ns3["scheme"].isin([*BOTH])]
    off = float(both["recovery_ms_error"].abs().max())
    return Finding(
        ratio,
        interval,
        n=int(found["trial"].nunique()),
        counted="failures per rate",
        control=off <= TIME_LIMIT,
        readings=by_real_kills(real, "recovery_ms"),
        note=f"Ratio of the mean recovery times at {at:,.0f}/s, the highest of {len(rates)} rates "
        "by the upper end of the interval; the intervals hold together (Bonferroni). The simulated "
        f"times of both schemes are within {off:.1%} of ns-3's over the same failures. Real "
        "processes talk over Unix sockets, where a recovery takes some ms and scheduling is most "
        "of it.",
    )


def either_node_fails(either: pd.DataFrame) -> Finding:
    """D4-8: with equal chances of failure the proposal sends as many tuples again."""
    means = either.groupby("node")[["resent"]].mean()["resent"]
    trials = either.pivot_table(index="trial", columns="scheme", values="resent")
    shown = ", ".join(f"{node} {mean:.1f}" for node, mean in means.items())
    return Finding(
        *of_both(trials),
        n=len(trials),
        counted="pairs of failures",
        note="Tuples sent again by the proposal over upstream backup's, when the primary and the "
        f"secondary fail equally often. Means of both schemes by failed node: {shown}. The failure "
        "of upstream backup's idle secondary costs nothing, so what the proposal saves at the "
        "primary it spends at the secondary.",
    )


def either_node_recovers_sooner(either: pd.DataFrame) -> Finding:
    """D4-9: with equal chances of failure the mean recovery is still shorter."""
    trials = either.pivot_table(index="trial", columns="scheme", values="recovery_ms")
    return Finding(
        *of_both(trials),
        n=len(trials),
        counted="pairs of failures",
        note="Mean recovery time of the proposal over upstream backup's, when both nodes fail "
        "equally often; the failure of an idle secondary counts as a recovery of 0 ms.",
    )


def blames_nagle(parts: pd.DataFrame) -> Finding:
    """D4-4: Nagle's algorithm makes the gap at low rates.

    Judged by stored runs of ns-3. They settle it only if the simulation, which has every part of
    TCP but Nagle's algorithm and is run now, makes the same times of them.
    """
    ours = explained(parts, "ms").dropna(axis="columns")
    low = explained(parts, "ns3_ms")
    low, ours = low[low.index <= LOW_RATE], ours[ours.index <= LOW_RATE]
    adds = low["nagle_adds"].clip(lower=0)
    shares = {
        "it slows upstream backup only": adds / (low["gap"] + adds),
        "the connection exists, but is unused": adds / (low["gap"] - low["handshake"] + adds),
    }
    by_rate = "; ".join(
        f"{rate:,.0f}/s: " + " or ".join(f"{share:.0%}" for share in each)
        for rate, *each in pd.DataFrame(shares).itertuples()
    )
    made = ours[["handshake", "initial_window"]].sum() / ours["gap"].sum()
    off = float((parts["ms"] / parts["ns3_ms"] - 1).abs().max())
    kindest = max(shares, key=lambda name: float(shares[name].min()))
    return Finding(
        float(shares[kindest].min()),
        readings={
            name: Finding(float(share.min())) for name, share in shares.items() if name != kindest
        },
        missing="Simulation and ns-3 disagree." if off > TIME_LIMIT else "",
        note=f"Smallest share of the gap that Nagle's algorithm makes at a rate up to {LOW_RATE:,} "
        f"tuples/s, if {kindest}. By rate and reading, {by_rate}. Stored runs of ns-3, one part of "
        "TCP switched at a time. In the simulation, which has no such algorithm, opening the "
        f"connection makes {made['handshake']:.0%} and the initial window "
        f"{made['initial_window']:.0%} of the gap. The document is right that a connection not "
        f"used before makes the gap. Simulation and ns-3 agree within {off:.1%}.",
    )


def costs_as_named(costs: pd.DataFrame, counted: pd.DataFrame) -> Finding:
    """D4-5: bandwidth of the schemes of Hwang et al., by their own denominator.

    Settled only if the closed form gives as many bytes as ns-3 counts.
    """
    highest, lowest = costs["rate"].max(), costs["rate"].min()
    last = costs[costs["rate"] == highest].set_index("scheme")
    low = costs[costs["rate"] == lowest].set_index("scheme")
    titles = ("of all traffic", "of the stream without fault tolerance", "of the input")
    shown = "; ".join(
        f"{title}: " + ", ".join(f"{name} {value:.1%}" for name, value in last[column].items())
        for column, title in zip(SHARES, titles, strict=True)
    )
    off = float(counted["error"].abs().max())
    return replace(
        overhead(last["relative_to_input"]),
        readings={
            "section 2.2, of all traffic": overhead(last["share_of_all"]),
            f"of the input at {lowest:,.0f} tuples/s": overhead(low["relative_to_input"]),
        },
        missing="Closed form and ns-3 disagree." if off > BYTES_LIMIT else "",
        note="Active standby's bandwidth overhead over the stream into the node, which is Hwang et "
        f"al.'s denominator, at {highest:,.0f} tuples/s. Section 2.2 defines the "
        f"overhead as a share of all traffic, by which no scheme can come near 100 %. {shown}. The "
        f"closed form is within {off:.1%} of ns-3.",
    )


def overhead(column: pd.Series) -> Finding:
    """Active standby's bandwidth overhead, and whether the others are ordered as named."""
    active, passive, upstream = (float(column[name]) for name in HWANG)
    return Finding(active, conditions=upstream < passive < active and upstream < 0.1)


def recovers_as_named(restored: pd.DataFrame) -> Finding:
    """D4-6: recovery time by Hwang et al.'s definition: active < passive < upstream backup."""
    settings = restored.groupby("setting", sort=False)
    found = {str(setting): step(rows) for setting, rows in settings}
    first, *_ = found
    value, interval = found.pop(first)
    return Finding(
        value,
        interval,
        n=int(restored["trial"].nunique()),
        counted="failures",
        readings={setting: Finding(*each) for setting, each in found.items()},
        note=f"The smaller of the two steps in ms, {first}: from active to passive standby, and "
        "from passive standby to upstream backup. From detection until the survivor has the state "
        "of the failed node. The document gives no checkpoint interval, and only upstream backup "
        "opens its connection at recovery.",
    )


def step(rows: pd.DataFrame) -> tuple[float, tuple[float, float]]:
    """Smaller mean step between the schemes of Hwang et al., and its interval (both together)."""
    wide = rows.pivot_table(index="trial", columns="scheme", values="restored_ms")[[*HWANG]]
    steps = wide.diff(axis="columns").iloc[:, 1:].to_numpy(float).T
    centre, low, high = t_interval(steps, family=2)
    least = int(centre.argmin())
    return float(centre[least]), (float(low[least]), float(high[least]))


RESENT_FIGURE, RECOVERY_FIGURE = "Tuples processed again (fig. 5)", "Recovery time (fig. 6)"

FEWER = Threshold("fig. 5: fewer at every rate", high=1, strict=True)
SHORTER = Threshold("fig. 6: shorter at every rate", high=1, strict=True)

CLAIMS = [
    Claim(
        "D4-1", "Fewer tuples are processed again than in upstream backup.", sends_less,
        source="section 4.3, fig. 5", expected="fewer at every rate", threshold=FEWER,
        unit="× upstream backup's", figure=RESENT_FIGURE, basis=SIMULATED,
    ),
    Claim(
        "D4-2",
        "At low rates there is hardly any difference in their number; it grows with the rate.",
        grows_with_rate, source="section 4.3, fig. 5",
        expected="small at low rates, growing with the rate",
        threshold=Threshold("ours: hardly any is a tenth of the axis", high=0.1),
        unit="of the largest", figure=RESENT_FIGURE, basis=SIMULATED, recorded=UNDECIDED,
    ),
    Claim(
        "D4-3", "Recovery is shorter at all rates.", recovers_sooner, source="section 4.3, fig. 6",
        expected="shorter at every rate", threshold=SHORTER, unit="× upstream backup's",
        figure=RECOVERY_FIGURE, basis=SIMULATED, recorded=UNDECIDED,
    ),
    Claim(
        "D4-4",
        "Below 1,000 tuples/s the gap in recovery time comes from Nagle's algorithm on a "
        "connection that was not used before.",
        blames_nagle, source="section 4.3, fig. 6",
        expected="most of the gap at each rate up to 1,000 tuples/s",
        threshold=Threshold("ours: the cause of a gap makes at least half of it", low=0.5),
        unit="of the gap",
        figure="Upstream backup's recovery time, TCP's parts switched one by one", basis=SIMULATED,
        recorded=DEVIATES,
    ),
    Claim(
        "D4-5", "Bandwidth overhead: active standby ≈ 100 %, passive between, upstream backup ≈ 0.",
        costs_as_named, source="section 2.2, after Hwang et al.",
        expected="active ≈ 100 %, passive between, upstream ≈ 0",
        threshold=Threshold("ours: about is within a fifth", 0.8, 1.2), unit="of the input",
        basis=DERIVED, figure="Bandwidth overhead", recorded=UNDECIDED,
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
        "D4-8", "When either node fails equally often, the proposal saves no tuples.",
        either_node_fails, expected="as many",
        threshold=Threshold("ours: equal within a tenth", 0.9, 1.1), unit="× upstream backup's",
        basis=SIMULATED, project=True, figure=RESENT_FIGURE,
    ),
    Claim(
        "D4-9", "When either node fails equally often, the mean recovery is still shorter.",
        either_node_recovers_sooner, expected="shorter", threshold=SHORTER,
        unit="× upstream backup's", basis=SIMULATED, project=True, figure=RECOVERY_FIGURE,
    ),
]  # fmt: skip
