"""D4's claims, and how the frames of its experiments judge them.

The parameters are results of experiments: `found` of `recoveries`, `parts` of `tcp_parts`, `costs`
of `overheads`, `ns3` of `against_ns3`, `counted` of `counted_traffic`.
"""

from __future__ import annotations

import pandas as pd

from aftlib.core.claims import DERIVED, DEVIATES, SIMULATED, Claim, Finding
from aftlib.upstream_backup.experiments.recoveries import SHARES, saved
from aftlib.upstream_backup.experiments.references import BYTES_LIMIT, TIME_LIMIT, explained

LOW_RATE = 1000
"""Tuples a second up to which the document finds little difference in counts (D4-2, D4-4)."""
HALF = 0.5
"""What the proposal has to process again of upstream backup's, by the closed form."""
HWANG = ("active standby", "passive standby", "upstream backup")


def sends_less(found: pd.DataFrame) -> Finding:
    """D4-1: fewer tuples are processed again, at every rate.

    Each interval of the paired difference lies above 0, and no mean is far from one half: farther
    than three half-widths and than a tenth of upstream backup's.
    """
    fewer = saved(found, "resent")
    least = fewer.iloc[int((fewer["low"] / fewer["rate"]).to_numpy().argmin())]
    above = fewer["low"] > 0
    where = "Every" if above.all() else f"Not every ({above.sum()} of {len(fewer)})"
    allowed = (3 * (fewer["mean"] - fewer["low"])).clip(lower=0.1 * fewer["upstream"])
    near_half = (fewer["mean"] - HALF * fewer["upstream"]).abs() <= allowed
    return Finding(
        fewer["ratio"].max(),
        conditions=bool(above.all() and near_half.all()),
        note="Largest ratio of the proposal's mean to upstream backup's over "
        f"{len(fewer)} rates; by the closed form it is exactly one half, which "
        f"{near_half.sum()} of them agree with. {where} interval of the paired difference lies "
        f"above 0; the lowest against its rate is [{least['low']:.1f}, {least['high']:.1f}] tuples "
        f"at {least['rate']:,.0f}/s.",
    )


def grows_with_rate(found: pd.DataFrame) -> Finding:
    """D4-2: the difference is small at low rates and grows with the rate.

    What is still unacknowledged grows with the rate, so the difference by the rate must be one
    number: each interval of it reaches within a factor of two of the median.
    """
    fewer = saved(found, "resent")
    grown = fewer.sort_values("rate")
    first, last = grown.iloc[0], grown.iloc[-1]
    typical = (grown["mean"] / grown["rate"]).median()
    low, high = grown["low"] / grown["rate"], grown["high"] / grown["rate"]
    alike = (low <= 2 * typical) & (high >= typical / 2)
    for_both = ": what is still unacknowledged grows with the rate for both" if alike.all() else ""
    least, most = 1 - grown["ratio"].max(), 1 - grown["ratio"].min()
    return Finding(
        f"{first['mean']:.0f} tuples at {first['rate']:,.0f}/s, {last['mean']:,.0f} at "
        f"{last['rate']:,.0f}/s",
        conditions=bool(typical > 0 and alike.all()),
        missing="Growth needs two rates." if len(fewer) < 2 else "",
        note="In tuples, as fig. 5 shows it. Relative to upstream backup's count the difference is "
        f"{least:.2f} … {most:.2f}, where the closed form gives one half at every rate{for_both}.",
    )


def recovers_sooner(found: pd.DataFrame, ns3: pd.DataFrame) -> Finding:
    """D4-3: recovery is shorter at every rate, by a simulation whose times are ns-3's."""
    sooner = saved(found, "recovery_ms")
    both = ns3[ns3["scheme"].isin(["upstream backup", "proposed"])]
    off = float(both["recovery_ms_error"].abs().max())
    return Finding(
        sooner["ratio"].max(),
        conditions=bool((sooner["low"] > 0).all() and off <= TIME_LIMIT),
        note="Largest ratio of the proposal's mean recovery time to upstream backup's; saved "
        f"between {sooner['mean'].min():.1f} and {sooner['mean'].max():.1f} ms. The simulated "
        f"times of both are within {off:.1%} of ns-3's over the same failures.",
    )


def blames_nagle(parts: pd.DataFrame) -> Finding:
    """D4-4: Nagle's algorithm makes the gap at low rates.

    Judged by stored runs of ns-3. They settle it only if the simulation, which has every part of
    TCP but Nagle's algorithm and is run now, makes the same times of them.
    """
    ours = explained(parts, "ms").dropna(axis="columns")
    low = explained(parts, "ns3_ms")
    low, ours = low[low.index <= LOW_RATE], ours[ours.index <= LOW_RATE]
    # the reading that is kindest to the document: Nagle slows upstream backup, not the proposal
    share = low["nagle_adds"].clip(lower=0) / (low["gap"] + low["nagle_adds"])
    shown = "; ".join(
        f"{rate:,.0f}/s: {p.gap:.1f} = handshake {p.handshake:.1f} + initial window "
        f"{p.initial_window:.1f} + tuples {p.tuples:.1f}; Nagle adds {p.nagle_adds:.1f} to "
        f"upstream backup, and with it in both schemes the gap is {p.gap_with_nagle:.1f}; an "
        f"initial window of one segment adds {p.window_1_adds:.1f}"
        for rate, p in low.iterrows()
    )
    holds = bool((share >= 0.5).all())
    made = ours[["handshake", "initial_window"]].sum() / ours["gap"].sum()
    off = float((parts["ms"] / parts["ns3_ms"] - 1).abs().max())
    return Finding(
        ", ".join(f"{value:.0%} at {rate:,.0f}/s" for rate, value in share.items()),
        conditions=holds,
        missing="Simulation and ns-3 disagree." if off > TIME_LIMIT else "",
        note="Share of the gap that Nagle's algorithm makes if it slows upstream backup only; "
        "stored runs of ns-3, all of default parameters, with one part of TCP switched at a time. "
        f"The gap in ms, Nagle off, {shown}. Nagle's "
        f"algorithm {'does' if holds else 'does not'} make most of it; in the simulation, which "
        f"has none, opening the connection makes {made['handshake']:.0%} and the initial window "
        f"{made['initial_window']:.0%} of the gap. Both agree within {off:.1%}.",
    )


def costs_as_named(costs: pd.DataFrame, counted: pd.DataFrame) -> Finding:
    """D4-5: bandwidth of the schemes of Hwang et al., by D4's definition: a share of all.

    Settled only if the closed form says as many bytes as ns-3 counts.
    """
    last = costs[costs["rate"] == costs["rate"].max()].set_index("scheme")
    named = {}
    for column in SHARES:
        active, passive, upstream = last.loc[[*HWANG], column]
        named[column] = 0.8 < active < 1.2 and upstream < passive < active and upstream < 0.1
    titles = ("of all traffic", "of the plain stream", "of the stream into the node")
    shown = "; ".join(
        f"{title}: " + ", ".join(f"{name} {value:.1%}" for name, value in last[column].items())
        for column, title in zip(SHARES, titles, strict=True)
    )
    into = "" if named["relative_to_input"] else "not "
    off = float(counted["error"].abs().max())
    first, *others = (f"{name} {last.loc[name, 'share_of_all']:.1%}" for name in HWANG)
    return Finding(
        f"{first}, {', '.join(others)} of all traffic",
        conditions=named["share_of_all"],
        missing="Closed form and ns-3 disagree." if off > BYTES_LIMIT else "",
        note=f"At {costs['rate'].max():,.0f} tuples/s. {shown}. The document defines overhead as a "
        "share of all traffic, by which a second copy of one hop of two makes a third and no "
        f"scheme comes near 100 %. By the stream into the node, Hwang et al.'s own measure, the "
        f"claim does {into}hold. By the closed form; ns-3 counts the same within {off:.1%}.",
    )


def recovers_as_named(found: pd.DataFrame) -> Finding:
    """D4-6: recovery time by Hwang et al.'s definition: active < passive < upstream backup."""
    means = found.groupby(["rate", "scheme"])["restored_ms"].mean().unstack("scheme")[[*HWANG]]
    ordered = (means.diff(axis="columns").iloc[:, 1:] > 0).all(axis="columns")
    shown = {name: f"{mean:.1f} ms" for name, mean in means.mean().items()}
    named = ", ".join(f"{name} {mean}" for name, mean in shown.items())
    return Finding(
        " < ".join(shown.values()) if ordered.all() else named,
        conditions=bool(ordered.all()),
        note="From detection until the survivor is where the dead node was, means over all rates; "
        f"in this order at {ordered.sum()} of {len(means)} rates.",
    )


RESENT_FIGURE, RECOVERY_FIGURE = "Tuples processed again (fig. 5)", "Recovery time (fig. 6)"

CLAIMS = [
    Claim(
        "D4-1", "Fewer tuples are processed again than in upstream backup.", sends_less,
        source="fig. 5", expected="fewer at every rate", unit="× upstream backup's",
        figure=RESENT_FIGURE, basis=SIMULATED,
    ),
    Claim(
        "D4-2",
        "At low rates there is hardly any difference in their number; it grows with the rate.",
        grows_with_rate, source="fig. 5", expected="small at low rates, growing with the rate",
        figure=RESENT_FIGURE, basis=SIMULATED,
    ),
    Claim(
        "D4-3", "Recovery is shorter at all rates.", recovers_sooner, source="fig. 6",
        expected="shorter at every rate", unit="× upstream backup's", figure=RECOVERY_FIGURE,
        basis=SIMULATED,
    ),
    Claim(
        "D4-4",
        "Below 1,000 tuples/s the gap in recovery time comes from Nagle's algorithm on a "
        "connection that was not used before.",
        blames_nagle, source="fig. 6", expected="most of the gap up to 1,000 tuples/s",
        figure="Upstream backup's recovery time, TCP's parts switched one by one",
        recorded=DEVIATES, basis=SIMULATED,
    ),
    Claim(
        "D4-5", "Bandwidth overhead: active standby ≈ 100 %, passive between, upstream backup ≈ 0.",
        costs_as_named, source="after Hwang et al.",
        expected="active ≈ 100 %, passive between, upstream ≈ 0", basis=DERIVED,
        figure="Bandwidth overhead", recorded=DEVIATES,
    ),
    Claim(
        "D4-6", "Recovery time: active standby < passive standby < upstream backup.",
        recovers_as_named, source="after Hwang et al.",
        expected="active < passive < upstream backup", figure=RECOVERY_FIGURE, basis=SIMULATED,
    ),
]  # fmt: skip
