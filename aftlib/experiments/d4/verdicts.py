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
    least = fewer.loc[(fewer["mean"] / fewer["rate"]).idxmin()]
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
        f"one half at every rate ({1 - grown['ratio'].max():.2f} … {1 - grown['ratio'].min():.2f}): "
        "what is still unacknowledged grows with the rate for both.",
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
    shares = (low["nagle_adds"] / low["gap"]).clip(lower=0)
    shown = "; ".join(
        f"{rate:,.0f}/s: gap {p.gap:.1f} ms = handshake {p.handshake:.1f} + initial window "
        f"{p.initial_window:.1f} + tuples {p.tuples:.1f}, Nagle would add {p.nagle_adds:.1f}, an "
        f"initial window of 1 segment {p.window_1_adds:.1f}"
        for rate, p in parts.iterrows()
    )
    return settle(
        "D4-4",
        expected="Nagle's algorithm makes the gap below 1,000 tuples/s",
        measured=float(shares.max()),
        holds=bool((shares >= 0.5).all()),
        note="Largest share of the gap that Nagle's algorithm makes up to 1,000 tuples/s, ns-3 with "
        f"one part of TCP switched at a time. {shown}. TCP does make the gap at low rates, but by "
        "opening the connection and by its initial window.",
    )


def _costs(trials: pd.DataFrame, costs: pd.DataFrame) -> Settled:
    means = trials.groupby(["rate", "scheme"])["restored_ms"].mean().unstack("scheme")
    a, p, u = (means[n] for n in ("active standby", "passive standby", "upstream backup"))
    ordered = bool(((a < p) & (p < u)).all())
    wide = {c: costs.pivot_table(index="rate", columns="scheme", values=c) for c in _DENOMINATORS}
    most = wide["relative"].iloc[-1]
    near = all(
        0.8 <= w["active standby"].iloc[-1] <= 1.2 for w in (wide["share_of_all"], wide["relative"])
    )
    shown = "; ".join(
        f"{name}: " + ", ".join(f"{scheme} {value:.1%}" for scheme, value in w.iloc[-1].items())
        for name, w in zip(_DENOMINATORS.values(), wide.values(), strict=True)
    )
    return settle(
        "D4-5",
        expected="active ≈ 100 %, passive between, upstream ≈ 0; recovery active < passive < upstream",
        measured=f"active {most['active standby']:.0%}, passive {most['passive standby']:.0%}, "
        f"upstream {most['upstream backup']:.1%} of the plain stream",
        holds=ordered and near,
        note=f"At {wide['relative'].index[-1]:,.0f} tuples/s. {shown}. Recovery by Hwang et al.'s "
        f"definition is {'in' if ordered else 'not in'} the order named at every rate.",
    )


_DENOMINATORS = {
    "share_of_all": "of all traffic",
    "relative": "of the plain stream",
    "relative_to_input": "of the stream into the node",
}
