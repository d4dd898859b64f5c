"""The judges of D2's claims about measured times.

Each makes one finding from the variables of notebook 02: `times` by `timing.recovery_times`,
`rates` by `timing.stream_rates`, `killed` by `drivers.kill_drivers`.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from aftlib.core.intervals import LEVELS, t_interval
from aftlib.documents.checkpoint_planning.cases import UNCHARGED
from aftlib.documents.checkpoint_planning.drivers import IN_TIME, LEAST_KILLS, MARGIN
from aftlib.documents.checkpoint_planning.experiments import NotebookParameters
from aftlib.documents.checkpoint_planning.plan import (
    DOCUMENT_RECOVERY_TIME,
    EXACTLY_ONCE,
    PROPOSED,
)
from aftlib.documents.checkpoint_planning.timing import MOST_READINGS, SHARES, wide_steps
from aftlib.notebook.claims import Finding, mean_ratio, not_run
from aftlib.notebook.texts import percent, shown, shown_interval

RESTORED_MS = 2.0
"""Longest T_res in section 6.1."""
FEW = 100
"""D2-7 is about this number of sensors or more."""
SOME = 1_000
"""D2-6 and D2-7 are about at most so many sensors."""
MANY = 10_000
"""D2-12 is about so many sensors or more."""
HALF = 0.5
"""Share of the sensors at which D2-7 is judged."""
MOST_FIXED = 0.5
"""Largest part of a full replay's T_rep that may not grow with |O| in D2-7."""
NEAR = 0.2
"""Deviation from proportionality in the condition of D2-7."""
LARGEST_FACTOR = 5.0
"""Largest ratio of a recovery's time to the fitted time with which D2-8 holds."""
LATEST = 20_000
"""Largest n from which on D2-12 may begin: the document's 10⁴, within a factor of two."""
IN_PROPORTION = (
    "at least {share} of {few} to {many} sensors are replayed, and T_res is of the checkpoint "
    "without the model"
)
"""Condition of D2-7."""
PLANNED = (
    "T_SLA is planned with {factor} times the time fitted on the machine, for {share} of the "
    "recoveries"
)
"""Condition of D2-8."""
SLOW_FROM = (
    "n is at least {n}, nine tenths of the sensors are replayed, and (6) is solved at recovery"
)
"""Condition of D2-12."""
LEAST_REPLAY = 0.5
"""If T_rep of O is less than this share of |O|/n times a full replay's, O was not really read."""


Estimate = tuple[float, tuple[float, float] | None]
"""A geometric mean over turns and its interval, as `mean_ratio` returns them."""


def _over_full_replay(times: pd.DataFrame, part: str, of: str) -> pd.DataFrame:
    """Ratio of `part` to `of` of the full replay: a row per turn, a column per (n, |O|)."""
    wide = times.pivot_table(index="turn", columns=["n", "sensors"], values=part)
    full = times.pivot_table(index="turn", columns=["n", "sensors"], values=of)
    n = wide.columns.get_level_values("n")
    return wide.div(full[[*zip(n, n, strict=True)]].to_numpy())


def _largest_ratio(times: pd.DataFrame, part: str) -> tuple[str, Estimate]:
    """Return the n and |O| < n at which `part` is largest beside a full replay, and the ratio."""
    ratios = _over_full_replay(times, part, "total_ms")
    means = {
        (n, sensors): mean_ratio(ratios[n, sensors].dropna())
        for n, sensors in ratios.columns.to_frame().to_numpy().tolist()
        if sensors < n
    }
    n, sensors = max(means, key=lambda size: means[size][0])
    return f"at n = {n:,}, |O| = {sensors:,}", means[n, sensors]


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
    """D2-6: over n and |O| < n, the largest mean ratio of T_rec to a full replay's in its turn."""
    small = times[times["n"] <= SOME]
    if small.empty:
        return not_run(f"It needs times of at most {SOME:,} sensors.")
    at, (solved, interval) = _largest_ratio(small, "solved_ms")
    prepared_at, (prepared, bounds) = _largest_ratio(small, "total_ms")
    low, high = bounds or (prepared, prepared)
    word = "Reversed" if low >= 1 else "The same" if high < 1 else "Open"
    of_tuples = DOCUMENT_RECOVERY_TIME.per_tuple_ms * _rows(small)
    limit = max(0.0, 1 - DOCUMENT_RECOVERY_TIME.fixed_ms / of_tuples)
    replayed = _over_full_replay(small, "rep_ms", "rep_ms").median()
    shares = replayed.index.get_level_values("sensors") / replayed.index.get_level_values("n")
    return Finding(
        solved,
        interval,
        n=small["turn"].nunique(),
        counted=_counted(small),
        text=f"at most {solved:.3g} {shown_interval(interval)} × full replay's time, "
        f"{at}, with (6) solved at recovery",
        sensitivity=f"{word} if the gain is prepared with the plan: at most {prepared:.3g} "
        f"{shown_interval(bounds)}, {prepared_at}. The document's 10⁵ counts rows. If it counted "
        f"the tuples of all sensors, recovery would be slower above |O| = {limit:.2f} n, by (27) "
        "and (28), with n = 100.",
        control=bool((replayed >= LEAST_REPLAY * shares).all()),
    )


def replays_in_proportion(times: pd.DataFrame) -> Finding:
    """D2-7: how far T_rep of half the sensors is from half of a full replay's, n = 100 … 1,000.

    With T_rep = fixed + proportional and a fixed share φ of a full replay's, the deviation from
    proportionality at ``|O| = s·n`` is φ(1 − s)/s, at n/2 it is φ.

    It also fails if the median T_res of any n, also above 1,000, is above 2 ms.
    """
    large = times[times["n"].between(FEW, SOME)]
    if large.empty:
        return not_run(f"It needs times of {FEW} to {SOME:,} sensors.")
    off = _off_proportion(large)
    halves = off[off["share"] == HALF]
    worst = halves.iloc[int(halves["centre"].abs().to_numpy().argmax())]
    near = (off[["low", "high"]].abs() <= NEAR).all(axis=1).groupby(off["share"]).all()
    from_here_on = near[::-1].cummin()
    share = from_here_on[from_here_on].index.min()  # NaN without one
    restored = float(times.groupby("n")["state_ms"].median().max())
    loading = float(large.groupby(["n", "sensors"])["gain_ms"].median().max())
    tenth = float(1 + off.loc[off["share"] == min(SHARES), "centre"].max())
    fails = f"T_res is {restored:.2f} ms." if restored > RESTORED_MS else ""
    if np.isnan(share):
        fails = "At no |O| is T_rep within a fifth of proportional."
    sentences = [
        f"A tenth of the sensors takes up to {tenth:.1f} times a tenth of the time (measured).",
        "T_res is without the model, as 5.1 (1) restores the checkpoint alone; our gain matrix "
        f"takes up to {loading:.1f} ms.",
        _restored_with_model(times[times["n"] > SOME]),
    ]
    return Finding(
        float(worst["centre"]),
        (float(worst["low"]), float(worst["high"])),
        n=large["turn"].nunique(),
        counted=_counted(large),
        text=f"replaying half of {worst['n']:,.0f} sensors takes "
        f"{_longer(*worst[['centre', 'low', 'high']])} than half of a full replay's "
        f"time; T_res is {restored:.2f} ms (median; longest {times['state_ms'].max():.2f} ms)",
        fails=fails,
        sensitivity=" ".join(filter(None, sentences)),
        condition=IN_PROPORTION.format(
            share=percent(1 if np.isnan(share) else share),
            few=f"{large['n'].min():,}",
            many=f"{large['n'].max():,}",
        ),
    )


def _off_proportion(times: pd.DataFrame) -> pd.DataFrame:
    """How far T_rep is from |O|/n of a full replay's: n, share; centre, low, high over turns."""
    ratios = _over_full_replay(times, "rep_ms", "rep_ms")
    rows = []
    for n, share in product(sorted(times["n"].unique()), SHARES):
        size = max(1, round(share * n))
        interval = t_interval(ratios[n, size].dropna().to_numpy() * n / size - 1)
        rows.append((n, share, *(float(bound) for bound in interval)))
    return pd.DataFrame(rows, columns=["n", "share", "centre", "low", "high"])


def _longer(centre: float, low: float, high: float) -> str:
    """Return a deviation with its interval as text.

    >>> _longer(0.09, 0.07, 0.11), _longer(-0.05, -0.07, -0.03)
    ('9 % [7 %, 11 %] longer', '5 % [3 %, 7 %] less')
    """
    sign = -1 if centre < 0 else 1
    bounds = ", ".join(percent(bound) for bound in sorted((sign * low, sign * high)))
    text = f"{percent(sign * centre)} [{bounds}] {'longer' if sign > 0 else 'less'}"
    return text.replace("-", "−")


def _restored_with_model(times: pd.DataFrame) -> str:
    """Return how long T_res of the most sensors is with the model; empty without times."""
    if times.empty:
        return ""
    n = int(times["n"].max())
    partial = times[(times["sensors"] < times["n"]) & (times["n"] == n)]
    restored = partial["state_ms"] + partial["gain_ms"]
    median = float(restored.groupby(partial["sensors"]).median().max())
    word = "Reversed" if median > RESTORED_MS else "The same"
    return (
        f"{word} with it at {n:,} sensors: up to {shown(median)} ms (median; longest "
        f"{shown(float(restored.max()))} ms)."
    )


def recovers_in_time(killed: pd.DataFrame) -> Finding:
    """D2-8: the largest ratio of T_rec to the time fitted to pilots, as a tolerance limit."""
    if killed.empty:
        return not_run("No process was killed.")
    n = len(killed)
    factor = float((killed["total_ms"] / killed["fitted_ms"]).max())
    late = int((killed["total_ms"] > killed["t_sla_ms"]).sum())
    longer = 1 - LEVELS[0] ** (1 / n)
    few = f" At least {LEAST_KILLS} kills are needed." if n < LEAST_KILLS else ""
    return Finding(
        factor,
        n=n,
        counted="kills with 0 < |O| < n",
        text=f"slowest of {n} recoveries {factor:.2f} × the fitted time; with {MARGIN:g} ×, {late} "
        f"of {n} are late",
        sensitivity="T_rec ends before the interval's commit, which is not timed. "
        f"A guarantee without exceptions cannot be measured: up to {percent(longer)} "
        f"may be late. 5.1 says that T_rec must be measured beforehand on the system.{few}",
        condition=PLANNED.format(
            factor=f"{np.ceil(round(10 * factor, 6)) / 10:.1f}", share=percent(IN_TIME)
        ),
        control=n >= LEAST_KILLS,
    )


def raises_throughput(rates: pd.DataFrame, parameters: NotebookParameters) -> Finding:
    """D2-11: the proposed plan's throughput over exactly-once's, pair by pair."""
    wide = rates.pivot_table(index="turn", columns="plan", values="rate")
    ratio, interval = mean_ratio(wide[PROPOSED] / wide[EXACTLY_ONCE])
    uncharged, bounds = mean_ratio(wide[PROPOSED] / wide[UNCHARGED])
    taken = rates.groupby("plan")["checkpoints"].first()
    sensors = f"{parameters.sensors} sensors" if parameters.data is None else "the file's sensors"
    return Finding(
        ratio,
        interval,
        n=len(wide),
        counted=f"pairs of windows; ε = {parameters.epsilon:g}, δ = {parameters.delta:g}, "
        f"T_SLA = {parameters.t_sla:g} ms, {sensors}",
        text=f"{ratio:.2f} {shown_interval(interval)} × exactly-once's samples per second, at "
        f"one point; {taken[PROPOSED]} checkpoints instead of {taken[EXACTLY_ONCE]}",
        sensitivity="If exactly-once is not charged the time of estimating, it takes "
        f"{taken[UNCHARGED]} checkpoints, and the ratio is {uncharged:.2f} "
        f"{shown_interval(bounds)}.",
    )


def solving_is_as_slow(times: pd.DataFrame) -> Finding:
    """D2-12: the n from which on T_est, solved at recovery, takes as long as the avoided replay."""
    sizes = sorted(int(n) for n in times["n"].unique())
    largest = sizes[-1]
    if largest < MANY or len(sizes) < 2:
        return not_run(f"It needs times of at least {MANY:,} sensors, and of fewer.")
    most = max(SHARES)
    ratios = _solving_over_avoided(times, most)
    crossover, interval = _mean_crossover(ratios)
    growth = np.log(ratios).mean()
    grows = growth.iloc[-1] > growth.iloc[-2]
    others = ", and ".join(
        _no_faster(_mean_crossover(_solving_over_avoided(times, share))[0], None, largest)
        + f" at |O| = .{10 * share:.0f} n"
        for share in sorted(SHARES, reverse=True)
        if HALF <= share < most
    )
    _, (prepared, bounds) = _largest_ratio(times, "total_ms")
    _, high = bounds or (prepared, prepared)
    word = "faster" if high < 1 else "not shown to be faster"
    return Finding(
        crossover,
        interval,
        n=len(ratios),
        counted=_counted(times),
        text=f"recovery is {_no_faster(crossover, interval, largest)}, at |O| = "
        f".{10 * most:.0f} n (document: 10⁴)",
        fails="" if grows else "T_est does not grow faster with n than the avoided replay.",
        sensitivity=f"Recovery is {others}. With the gain prepared with the plan it is {word} up "
        f"to n = {largest:,}: it takes at most {prepared:.3g} {shown_interval(bounds)} × full "
        "replay's time. Loading Σ is left out, which favours recovery. If a full replay were "
        "charged T_est, too, as D2-2 assumes, recovery would be faster at every n.",
        condition=SLOW_FROM.format(n=rounded(crossover)),
    )


def _solving_over_avoided(times: pd.DataFrame, share: float) -> pd.DataFrame:
    """Ratio of T_est, solved at recovery, to the replay that is avoided: rows turns, columns n.

    The avoided replay is n − |O| times what a sensor takes, the slope of a line through T_rep of
    all |O|, because a difference of two T_rep is lost in their noise. The ratio is infinite where
    nothing is avoided. Turns that lack an n are left out.
    """
    solve = times.pivot_table(index="turn", columns=["n", "sensors"], values="solve_ms")
    replay = times.pivot_table(index="turn", columns=["n", "sensors"], values="rep_ms")
    ratios = {}
    for n in sorted(times["n"].unique()):
        of_n = pd.DataFrame(replay[n]).dropna()
        size = max(1, round(share * n))
        of_one = np.polyfit(of_n.columns.to_numpy(float), of_n.to_numpy(float).T, 1)[0]
        avoided = pd.Series(of_one * (n - size), of_n.index)
        ratios[n] = (solve[n, size] / avoided).where(avoided > 0, np.inf).where(avoided.notna())
    return pd.DataFrame(ratios).dropna()


def _mean_crossover(ratios: pd.DataFrame) -> Estimate:
    """Return the geometric mean over turns of the n from which on the ratio is at least 1."""
    return mean_ratio([_crossover(turn) for _, turn in ratios.iterrows()])


def _crossover(ratios: pd.Series) -> float:
    """Return the n from which on the ratio is at least 1, between two n by powers of n.

    Above the largest n the ratio is taken to grow with n², as n³ of solving over n of replaying.
    """
    sizes = np.log(ratios.index.to_numpy(float))
    logs = np.log(ratios.to_numpy(float))
    below = np.flatnonzero(logs < 0)
    if not below.size:
        return float(ratios.index[0])
    last = below[-1]
    if last == len(logs) - 1:
        return float(np.exp(sizes[last] - logs[last] / 2))
    return float(np.exp(np.interp(0, logs[last : last + 2], sizes[last : last + 2])))


def rounded(n: float) -> str:
    """Return a number of sensors with three digits.

    >>> rounded(9317.4)
    '9,320'
    """
    return f"{float(f'{n:.3g}'):,.0f}"


def _no_faster(n: float, interval: tuple[float, float] | None, largest: int) -> str:
    """Return from which n on a recovery is no faster, as text.

    It is extrapolated to twice the largest measured n.
    """
    most = 2 * largest
    if n > most:
        return f"still faster at n = {most:,} (extrapolated)"
    bounds = ""
    if interval is not None:
        low, high = (rounded(bound) if bound <= most else f"above {most:,}" for bound in interval)
        bounds = f" [{low}, {high}]"
    return f"no faster from n = {rounded(n)}{bounds} on{' (extrapolated)' if n > largest else ''}"
