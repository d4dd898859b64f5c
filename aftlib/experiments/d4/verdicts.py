"""What the experiments say about D4's claims."""

from __future__ import annotations

import pandas as pd

from aftlib.claims import Settled, settle
from aftlib.experiments.d4.recoveries import saved
from aftlib.experiments.d4.tcp import explained

LOW_RATE = 1000
"""Tuples a second up to which the document finds little difference in counts (D4-2, D4-4)."""


def verdicts(trials: pd.DataFrame, parts: pd.DataFrame, costs: pd.DataFrame) -> list[Settled]:
    """Settle D4-1 … D4-5.

    Parameters
    ----------
    trials, parts, costs : DataFrame
        Results of `recoveries`, `tcp_parts` and `overheads`.
    """
    fewer, quicker = saved(trials, "resent"), saved(trials, "recovery_ms")
    return [
        _sends_less(fewer),
        _grows_with_rate(fewer),
        _is_quicker(quicker),
        _is_not_nagle(explained(parts)),
        _costs(trials, costs),
    ]


def _sends_less(fewer: pd.DataFrame) -> Settled:
    least = fewer.iloc[int((fewer["low"] / fewer["rate"]).to_numpy().argmin())]
    return settle(
        "D4-1",
        expected="fewer at every rate",
        measured=float(fewer["ratio"].max()),
        holds=bool((fewer["low"] > 0).all()),
        note="Largest ratio of the proposal's mean to upstream backup's over "
        f"{len(fewer)} rates; in expectation it is exactly one half. Every interval of the paired "
        f"difference lies above 0; the lowest against its rate is [{least['low']:.1f}, "
        f"{least['high']:.1f}] tuples at {least['rate']:,.0f}/s.",
    )


def _grows_with_rate(fewer: pd.DataFrame) -> Settled:
    grown = fewer.sort_values("rate")
    first, last = grown.iloc[0], grown.iloc[-1]
    return settle(
        "D4-2",
        expected="small at low rates, growing with the rate",
        measured=f"{first['mean']:.0f} tuples at {first['rate']:,.0f}/s, {last['mean']:,.0f} at "
        f"{last['rate']:,.0f}/s",
        holds=bool(grown["mean"].is_monotonic_increasing and last["mean"] >= 10 * first["mean"]),
        note="In tuples, as fig. 5 shows it. Relative to upstream backup's count the difference is "
        f"one half at every rate ({1 - grown['ratio'].max():.2f} … {1 - grown['ratio'].min():.2f}):"
        " what is still unacknowledged grows with the rate for both.",
    )


def _is_quicker(quicker: pd.DataFrame) -> Settled:
    return settle(
        "D4-3",
        expected="shorter at every rate",
        measured=float(quicker["ratio"].max()),
        holds=bool((quicker["low"] > 0).all()),
        note="Largest ratio of the proposal's mean recovery time to upstream backup's; saved "
        f"between {quicker['mean'].min():.1f} and {quicker['mean'].max():.1f} ms.",
    )


def _is_not_nagle(parts: pd.DataFrame) -> Settled:
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
    return settle(
        "D4-4",
        expected="most of the gap up to 1,000 tuples/s",
        measured=", ".join(f"{value:.0%} at {rate:,.0f}/s" for rate, value in share.items()),
        holds=bool((share >= 0.5).all()),
        note="Share of the gap that Nagle's algorithm makes if it slows upstream backup only; "
        "stored runs of ns-3, all of default parameters, with one part of TCP switched at a time. "
        f"The gap in ms, Nagle off, {shown}. TCP does "
        "make the gap at low rates, but by opening the connection and by its initial window.",
    )


def _costs(trials: pd.DataFrame, costs: pd.DataFrame) -> Settled:
    means = trials.groupby(["rate", "scheme"])["restored_ms"].mean().unstack("scheme")
    active, passive, upstream = (means[name] for name in _COMPARED)
    ordered = bool(((active < passive) & (passive < upstream)).all())
    last = costs[costs["rate"] == costs["rate"].max()].set_index("scheme")
    whole = last.loc["active standby", ["share_of_all", "relative"]]
    shown = "; ".join(
        f"{title}: " + ", ".join(f"{name} {value:.1%}" for name, value in last[column].items())
        for column, title in _DENOMINATORS.items()
    )
    first, *others = (f"{name} {last.loc[name, 'relative']:.1%}" for name in _COMPARED)
    return settle(
        "D4-5",
        expected="active ≈ 100 %, passive between, upstream ≈ 0; recovery in this order",
        measured=f"{first}, {', '.join(others)} of the plain stream",
        holds=ordered and bool(((whole > 0.8) & (whole < 1.2)).all()),
        note=f"At {costs['rate'].max():,.0f} tuples/s. {shown}. A second copy of the first hop "
        "only is half of the plain stream, so active standby reaches 100 % by the stream into the "
        "node alone, its WAN variant by the plain stream, and neither by the document's own "
        f"definition, a share of all traffic. Recovery by Hwang et al.'s definition is "
        f"{'in' if ordered else 'not in'} the order named at every rate.",
    )


_COMPARED = ("active standby", "passive standby", "upstream backup")
_DENOMINATORS = {
    "share_of_all": "of all traffic",
    "relative": "of the plain stream",
    "relative_to_input": "of the stream into the node",
}
