"""The judges of D2's claims about measured times.

Each makes one finding from the variables of notebook 02: `times` by `timing.recovery_times`,
`rates` by `timing.stream_rates`, `killed` by `drivers.kill_drivers`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from aftlib.core.intervals import share_interval, t_interval
from aftlib.documents.checkpoint_planning.cases import SPARED
from aftlib.documents.checkpoint_planning.drivers import (
    IN_TIME,
    MARGIN,
    MOST_KILLS,
    kills_to_decide,
)
from aftlib.documents.checkpoint_planning.experiments import NotebookParameters
from aftlib.documents.checkpoint_planning.plan import (
    DOCUMENT_RECOVERY_TIME,
    EXACTLY_ONCE,
    PROPOSED,
)
from aftlib.documents.checkpoint_planning.timing import MOST_READINGS, SHARES, wide_steps
from aftlib.notebook.claims import FEWEST, Finding, not_run
from aftlib.notebook.texts import percent, shown, shown_interval

RESTORED_MS = 2.0
"""Longest T_res in section 6.1."""
FEW = 100
"""D2-7 is about this number of sensors or more."""
SOME = 1_000
"""D2-6 and D2-7 are about at most so many sensors."""
MANY = 10_000
"""D2-12 is about so many sensors or more."""
LEAST_REPLAY = 0.5
"""If T_rep of O is less than this share of |O|/n times a full replay's, O was not really read."""


def _over_full_replay(times: pd.DataFrame, part: str, of: str) -> pd.DataFrame:
    """Ratio of `part` to `of` of the full replay: a row per turn, a column per (n, |O|)."""
    wide = times.pivot_table(index="turn", columns=["n", "sensors"], values=part)
    full = times.pivot_table(index="turn", columns=["n", "sensors"], values=of)
    n = wide.columns.get_level_values("n")
    return wide.div(full[[*zip(n, n, strict=True)]].to_numpy())


def _largest_ratio(
    times: pd.DataFrame, part: str
) -> tuple[tuple[int, int], float, tuple[float, float] | None]:
    """Return n and |O| < n with the largest mean ratio of T_rec to a full replay's, and both.

    The mean is geometric, over turns; its interval is None below five turns.
    """
    ratios = _over_full_replay(times, part, "total_ms")
    sizes = [(n, sensors) for n, sensors in ratios.columns.to_frame().to_numpy() if sensors < n]
    logs = {size: np.log(ratios[size].dropna().to_numpy()) for size in sizes}
    at = max(sizes, key=lambda size: logs[size].mean())
    worst = logs[at]
    if len(worst) < FEWEST:
        return at, float(np.exp(worst.mean())), None
    centre, low, high = (float(np.exp(bound)) for bound in t_interval(worst))
    return at, centre, (low, high)


def _at_size(at: tuple[int, int]) -> str:
    return f"at n = {at[0]:,}, |O| = {at[1]:,}"


def _rows(times: pd.DataFrame) -> int:
    """Rows that a recovery replays."""
    return int(times["tuples"].iloc[0] // times["sensors"].iloc[0])


def _counted(times: pd.DataFrame) -> str:
    """Text: what is counted, and how much T_rep of the most sensors is scaled."""
    rows = _rows(times)
    largest = int(times["n"].max())
    scale = rows / wide_steps(largest, rows)
    if scale <= 1:
        return "turns"
    return (
        f"turns; T_rep scaled to {rows:,} rows above {MOST_READINGS // rows:,} sensors "
        f"(× {scale:.0f} at {largest:,})"
    )


def beats_full_replay(times: pd.DataFrame) -> Finding:
    """D2-6: the largest ratio of T_rec to a full replay's in the same turn, over n and |O| < n."""
    small = times[times["n"] <= SOME]
    if small.empty:
        return not_run(f"It needs times of at most {SOME:,} sensors.")
    at, centre, interval = _largest_ratio(small, "solved_ms")
    prepared_at, prepared, _ = _largest_ratio(small, "total_ms")
    replayed = _over_full_replay(small, "rep_ms", "rep_ms").median()
    shares = replayed.index.get_level_values("sensors") / replayed.index.get_level_values("n")
    reverses = "Reversed" if prepared >= 1 else "The same"
    of_tuples = DOCUMENT_RECOVERY_TIME.per_tuple_ms * _rows(small)
    limit = max(0.0, 1 - DOCUMENT_RECOVERY_TIME.fixed_ms / of_tuples)
    return Finding(
        centre,
        interval,
        n=small["turn"].nunique(),
        counted=_counted(small),
        text=f"at most {centre:.3g} {shown_interval(interval)} × full replay's time, "
        f"{_at_size(at)}, the gain solved at recovery",
        sensitivity=f"{reverses} if the gain is prepared: at most {prepared:.3g}, "
        f"{_at_size(prepared_at)}. 10⁵ counts rows; by (27), (28), n = 100, slower above |O| = "
        f"{limit:.2f} n if it counted the tuples of all sensors.",
        control=bool((replayed >= LEAST_REPLAY * shares).all()),
    )


def replays_in_proportion(times: pd.DataFrame) -> Finding:
    """D2-7: how far T_rep of half the sensors is from half of a full replay's, n = 100 … 1,000."""
    large = times[times["n"].between(FEW, SOME)]
    if large.empty:
        return not_run(f"It needs times of {FEW} to {SOME:,} sensors.")
    ratios = _over_full_replay(large, "rep_ms", "rep_ms")
    halves = [(n, round(n / 2)) for n in large["n"].unique()]
    centre, low, high = t_interval(np.array([ratios[n, m] * n / m - 1 for n, m in halves]))
    at = int(np.abs(centre).argmax())
    restored = float(times.groupby("n")["state_ms"].median().max())
    loading = float(large.groupby(["n", "sensors"])["gain_ms"].median().max())
    fixed = max(_fixed_share(ratios, int(n)) for n in large["n"].unique())
    text = (
        f"replaying half of {halves[at][0]:,} sensors takes {percent(centre[at])} "
        f"[{percent(low[at])}, {percent(high[at])}] longer than half of a full replay's time; "
        f"T_res is {restored:.2f} ms"
    )
    sentences = [
        f"Up to {percent(fixed)} of T_rep is fixed, so a tenth of the sensors takes up to "
        f"{(fixed + (1 - fixed) / 10) * 10:.1f} times a tenth of the time.",
        "T_res is without the model, as 5.1 (1) restores the checkpoint alone; our gain matrix "
        f"takes up to {loading:.1f} ms.",
        _restored_with_model(times[times["n"] > SOME]),
        _off_with_few(times[times["n"] < FEW]),
    ]
    return Finding(
        float(centre[at]),
        (float(low[at]), float(high[at])),
        n=large["turn"].nunique(),
        counted="turns",
        text=text.replace("-", "−"),
        fails=f"T_res is {restored:.2f} ms." if restored > RESTORED_MS else "",
        sensitivity=" ".join(filter(None, sentences)),
    )


def _restored_with_model(times: pd.DataFrame) -> str:
    """Return how long T_res of the most sensors is with the model; empty without times."""
    if times.empty:
        return ""
    partial = times[times["sensors"] < times["n"]]
    longest = float((partial["state_ms"] + partial["gain_ms"]).max())
    word = "Reversed" if longest > RESTORED_MS else "The same"
    return f"{word} with it at {int(times['n'].max()):,} sensors: up to {shown(longest)} ms."


def _off_with_few(times: pd.DataFrame) -> str:
    """Return how far T_rep of the fewest sensors is from proportional; empty without times."""
    if times.empty:
        return ""
    ratios = _over_full_replay(times, "rep_ms", "rep_ms").median()
    n = int(times["n"].min())
    half = round(n / 2)
    off = ratios[n, half] * n / half - 1
    return f"With {n} sensors it takes {percent(off)} longer, because of opening the log."


def _fixed_share(ratios: pd.DataFrame, n: int) -> float:
    """Share of T_rep that does not grow with |O|: the intercept of a line through all |O|."""
    of_n = pd.DataFrame(ratios[n]).median()
    slope, intercept = np.polyfit(of_n.index.to_numpy(float) / n, of_n.to_numpy(float), 1)
    return float(intercept / (slope + intercept))


def recovers_in_time(killed: pd.DataFrame) -> Finding:
    """D2-8: share of the kills after which T_rec of the new process was within T_SLA."""
    if killed.empty:
        return not_run("No process was killed.")
    n = len(killed)
    in_time = int((killed["total_ms"] <= killed["t_sla_ms"]).sum())
    interval = share_interval(in_time, n) if n >= FEWEST else None
    needed = kills_to_decide(in_time / n)
    closing = f"some {needed:,} kills" if needed else f"more than {MOST_KILLS:,} kills"
    return Finding(
        in_time / n,
        interval,
        n=n,
        counted="kills with 0 < |O| < n",
        text=f"{in_time} of {n} kills in time, {percent(in_time / n)} {shown_interval(interval)}; "
        f"T_SLA is {MARGIN:g} × the fitted time",
        sensitivity=f"As a bound without exceptions it {'is met' if in_time == n else 'fails'}: "
        f"{n - in_time} of {n} kills were late. With this share, {closing} decide between it and "
        f"{percent(IN_TIME)}. Median T_rec {killed['total_ms'].median():.1f} ms, T_SLA "
        f"{killed['t_sla_ms'].iloc[0]:.1f} ms.",
    )


def raises_throughput(rates: pd.DataFrame, parameters: NotebookParameters) -> Finding:
    """D2-11: the proposed plan's throughput over exactly-once's, pair by pair."""
    wide = rates.pivot_table(index="turn", columns="plan", values="rate")

    def over(plan: str) -> tuple[float, float, float]:
        logs = np.log((wide[PROPOSED] / wide[plan]).to_numpy())
        centre, low, high = (float(np.exp(bound)) for bound in t_interval(logs))
        return centre, low, high

    centre, low, high = over(EXACTLY_ONCE)
    taken = rates.groupby("plan")["checkpoints"].first()
    sensors = f"{parameters.sensors} sensors" if parameters.data is None else "the file's sensors"
    point = (
        f"ε = {parameters.epsilon:g}, δ = {parameters.delta:g}, T_SLA = {parameters.t_sla:g} ms, "
        f"{sensors}"
    )
    spared = over(SPARED)
    return Finding(
        centre,
        (low, high),
        n=len(wide),
        counted=f"pairs of windows; {point}",
        text=f"{centre:.2f} {shown_interval((low, high))} × exactly-once's samples per second, at "
        f"one point; {taken[PROPOSED]} checkpoints instead of {taken[EXACTLY_ONCE]}",
        sensitivity=f"If exactly-once is spared T_est, it takes {taken[SPARED]} checkpoints, and "
        f"the ratio is {spared[0]:.2f} {shown_interval(spared[1:])}.",
    )


def solving_is_as_slow(times: pd.DataFrame) -> Finding:
    """D2-12: the largest ratio of T_rec, T_est solved at recovery, to a full replay's, n ≥ 10⁴."""
    large = times[times["n"] >= MANY]
    if large.empty:
        return not_run(f"It needs times of at least {MANY:,} sensors.")
    at, centre, interval = _largest_ratio(large, "solved_ms")
    _, prepared, _ = _largest_ratio(large, "total_ms")
    ratios = _over_full_replay(large, "solved_ms", "total_ms").mean()[at[0]]
    faster = ratios[ratios < 1]
    changes = [f"|O| = {size:,}: {ratio:.2f}" for size, ratio in faster.items() if size not in at]
    solved = times.groupby(["n", "sensors"])["solve_ms"].median()
    bounds = f"{shown_interval(interval)} " if interval else ""
    grows = [
        solved[smaller, round(smaller * share)] < solved[larger, round(larger * share)]
        for smaller, larger in pairwise(sorted(times["n"].unique()))
        for share in SHARES[1::2]
    ]
    return Finding(
        centre,
        interval,
        n=large["turn"].nunique(),
        counted="turns, T_rep scaled to 10⁵ rows",
        text=f"{centre:.3g} × full replay's time {bounds}{_at_size(at)}"
        + _growth_of_solving(solved),
        fails="" if all(grows) else "T_est does not grow with n.",
        sensitivity=f"Below 1 for fewer replayed sensors ({'; '.join(changes)}); with the gain "
        f"prepared, at most {prepared:.3g}. Loading Σ is left out, which favours recovery."
        if changes
        else "",
    )


def _growth_of_solving(solved: pd.Series) -> str:
    """Text: T_est at half of the sensors, from the fewest sensors to the most."""
    ns = sorted(solved.index.get_level_values("n").unique())
    few, many = (float(solved[n, round(n / 2)]) for n in (ns[0], ns[-1]))
    return f"; T_est at n/2 is {few:.2g} ms at n = {ns[0]:,} and {many:,.3g} ms at n = {ns[-1]:,}"
