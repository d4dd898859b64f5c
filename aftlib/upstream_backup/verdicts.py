"""What the experiments say about D4's claims."""

from __future__ import annotations

import pandas as pd

from aftlib.reports.claims import Settled, settle
from aftlib.upstream_backup.experiments.recoveries import saved
from aftlib.upstream_backup.experiments.references import explained

LOW_RATE = 1000
"""Tuples a second up to which the document finds little difference in counts (D4-2, D4-4)."""


def verdicts(trials: pd.DataFrame, parts: pd.DataFrame, costs: pd.DataFrame) -> list[Settled]:
    """Settle D4-1 … D4-5.

    Parameters
    ----------
    trials, parts, costs : DataFrame
        Results of `recoveries`, `tcp_parts` and `overheads`.
    """
    fewer, sooner = saved(trials, "resent"), saved(trials, "recovery_ms")
    return [
        sends_less(fewer),
        grows_with_rate(fewer),
        recovers_sooner(sooner),
        blames_nagle(explained(parts)),
        costs_as_named(trials, costs),
    ]


def sends_less(fewer: pd.DataFrame) -> Settled:
    """D4-1: fewer tuples are processed again, at every rate."""
    least = fewer.iloc[int((fewer["low"] / fewer["rate"]).to_numpy().argmin())]
    above = fewer["low"] > 0
    where = "Every" if above.all() else f"Not every ({above.sum()} of {len(fewer)})"
    return settle(
        "D4-1",
        expected="fewer at every rate",
        measured=float(fewer["ratio"].max()),
        holds=bool(above.all()),
        note="Largest ratio of the proposal's mean to upstream backup's over "
        f"{len(fewer)} rates; by the closed form it is exactly one half. {where} interval of the "
        f"paired difference lies above 0; the lowest against its rate is [{least['low']:.1f}, "
        f"{least['high']:.1f}] tuples at {least['rate']:,.0f}/s.",
    )


def grows_with_rate(fewer: pd.DataFrame) -> Settled:
    """D4-2: the difference is small at low rates and grows."""
    grown = fewer.sort_values("rate")
    first, last = grown.iloc[0], grown.iloc[-1]
    holds = bool(grown["mean"].is_monotonic_increasing and last["mean"] >= 10 * first["mean"])
    for_both = ": what is still unacknowledged grows with the rate for both" if holds else ""
    least, most = 1 - grown["ratio"].max(), 1 - grown["ratio"].min()
    return settle(
        "D4-2",
        expected="small at low rates, growing with the rate",
        measured=f"{first['mean']:.0f} tuples at {first['rate']:,.0f}/s, {last['mean']:,.0f} at "
        f"{last['rate']:,.0f}/s",
        holds=holds,
        note="In tuples, as fig. 5 shows it. Relative to upstream backup's count the difference is "
        f"{least:.2f} … {most:.2f}, where the closed form gives one half at every rate{for_both}.",
    )


def recovers_sooner(sooner: pd.DataFrame) -> Settled:
    """D4-3: recovery is shorter at every rate."""
    return settle(
        "D4-3",
        expected="shorter at every rate",
        measured=float(sooner["ratio"].max()),
        holds=bool((sooner["low"] > 0).all()),
        note="Largest ratio of the proposal's mean recovery time to upstream backup's; saved "
        f"between {sooner['mean'].min():.1f} and {sooner['mean'].max():.1f} ms.",
    )


def blames_nagle(parts: pd.DataFrame) -> Settled:
    """D4-4: Nagle's algorithm makes the gap at low rates."""
    low = parts[parts.index <= LOW_RATE]
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
    rest = low[["handshake", "initial_window"]].sum() / low["gap"].sum()
    return settle(
        "D4-4",
        expected="most of the gap up to 1,000 tuples/s",
        measured=", ".join(f"{value:.0%} at {rate:,.0f}/s" for rate, value in share.items()),
        holds=holds,
        note="Share of the gap that Nagle's algorithm makes if it slows upstream backup only; "
        "stored runs of ns-3, all of default parameters, with one part of TCP switched at a time. "
        f"The gap in ms, Nagle off, {shown}. Nagle's "
        f"algorithm {'does' if holds else 'does not'} make most of it; without it, opening the "
        f"connection makes {rest['handshake']:.0%} and the initial window "
        f"{rest['initial_window']:.0%} of the gap.",
    )


def costs_as_named(trials: pd.DataFrame, costs: pd.DataFrame) -> Settled:
    """D4-5: bandwidth and recovery time of the schemes of Hwang et al."""
    means = trials.groupby(["rate", "scheme"])["restored_ms"].mean().unstack("scheme")
    active, passive, upstream = (means[name] for name in _COMPARED)
    ordered = bool(((active < passive) & (passive < upstream)).all())
    last = costs[costs["rate"] == costs["rate"].max()].set_index("scheme")
    active, passive, upstream = last.loc[[*_COMPARED], ["share_of_all", "relative"]].to_numpy()
    whole = bool(((active > 0.8) & (active < 1.2)).all())
    between = bool(((upstream < passive) & (passive < active)).all())
    none = bool((upstream < 0.1).all())
    shown = "; ".join(
        f"{title}: " + ", ".join(f"{name} {value:.1%}" for name, value in last[column].items())
        for column, title in _DENOMINATORS.items()
    )
    first, *others = (f"{name} {last.loc[name, 'relative']:.1%}" for name in _COMPARED)
    return settle(
        "D4-5",
        expected="active ≈ 100 %, passive between, upstream ≈ 0; recovery in this order",
        measured=f"{first}, {', '.join(others)} of the plain stream",
        holds=ordered and whole and between and none,
        note=f"At {costs['rate'].max():,.0f} tuples/s. {shown}. Both by the document's "
        f"definition, a share of all traffic, and by the plain stream: active standby is "
        f"{_is(whole)} near 100 %, passive standby {_is(between)} between, upstream backup "
        f"{_is(none)} below 10 %. {'' if whole else _WHY}Recovery by Hwang et al.'s definition is "
        f"{_is(ordered)} in the order named at every rate.",
    )


def _is(true: bool) -> str:
    return "indeed" if true else "not"


_WHY = (
    "A second copy of the first hop only is half of the plain stream, so of active standby's "
    "variants only the WAN one can reach 100 % of it, and none can of all traffic. "
)
_COMPARED = ("active standby", "passive standby", "upstream backup")
_DENOMINATORS = {
    "share_of_all": "of all traffic",
    "relative": "of the plain stream",
    "relative_to_input": "of the stream into the node",
}
