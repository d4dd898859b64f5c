"""The judges of D2's claims: each makes one finding from the variables of notebook 02.

`checkpoint_counts` makes `counts`, `sampled_failures` makes `success`, `recovery_times` `times`,
`kill_drivers` `killed`, `kill_at_random` `adaptive`, and `stream_rates` `rates`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from aftlib.core.intervals import share_interval, t_interval
from aftlib.documents.checkpoint_planning.cases import AXES, SPARED, PlanningCase
from aftlib.documents.checkpoint_planning.drivers import (
    IN_TIME,
    MARGIN,
    MOST_KILLS,
    kills_to_decide,
)
from aftlib.documents.checkpoint_planning.experiments import NotebookParameters
from aftlib.documents.checkpoint_planning.plan import (
    ADAPTIVE,
    EXACTLY_ONCE,
    NO_RELAXATION,
    PROPOSED,
)
from aftlib.documents.checkpoint_planning.recoveries import SHARES
from aftlib.notebook.claims import FEWEST, Finding, not_run
from aftlib.notebook.texts import shown_interval

LARGEST_Z = 4.5
"""A sampled rate further from the exact one refutes the formula; of 105 points, some reach 3."""
LARGEST_ERROR = 5.5
"""An error of more standard deviations refutes the operator's variance; of 10⁵, some reach 4.5."""
RESTORED_MS = 2.0
"""Longest T_res in section 6.1."""
NEARLY_EVERYWHERE = 0.9
"""Share of the points at which D2-3 holds."""
FEW, SOME, MANY = 100, 1_000, 10_000
"""Numbers of sensors: D2-7 is about `FEW` to `SOME`, D2-6 up to `SOME`, D2-12 from `MANY` on."""
LEAST_REPLAY = 0.5
"""If T_rep of O is less than this share of |O|/n times a full replay's, O was not really read."""


def _by_method(counts: pd.DataFrame) -> pd.DataFrame:
    """Checkpoints: one row per point of the grid, one column per method."""
    return counts.pivot_table(index=AXES, columns="method", values="checkpoints")


def _reversed_if_spared(is_reversed: bool, text: str) -> str:
    """Return what happens if exactly-once, which estimates nothing, is spared T_est."""
    return f"{'Reversed' if is_reversed else 'The same'} if exactly-once is spared T_est: {text}."


def follows_from_t_sla(case: PlanningCase, counts: pd.DataFrame) -> Finding:
    """D2-1: the largest difference from ⌈w / l⌉ − 1, l = ⌊(T_SLA − fixed) / (n · per tuple)⌋."""
    exact = counts[counts["method"] == EXACTLY_ONCE]
    steps = exact["t_sla_ms"].map(case.recovery_time.max_tuples) // case.model.size
    by_hand = np.ceil(case.window / steps) - 1
    off = (exact["checkpoints"] - by_hand).abs()
    return Finding(
        int(off.max()),
        n=len(exact),
        counted="combinations of ε, δ and T_SLA, ours",
        text=f"{(off == 0).sum()} of {len(exact)} counts follow from T_SLA alone",
    )


def are_ordered(counts: pd.DataFrame) -> Finding:
    """D2-2: points at which the methods are out of order; each must also save somewhere."""
    wide = _by_method(counts)
    proposed, unrelaxed, exact = wide[PROPOSED], wide[NO_RELAXATION], wide[EXACTLY_ONCE]
    disorder = int(((proposed > unrelaxed) | (unrelaxed > exact)).sum())
    spared = int(((proposed > unrelaxed) | (unrelaxed > wide[SPARED])).sum())
    saves = (unrelaxed < exact).any() and (proposed < unrelaxed).any()
    return Finding(
        disorder,
        n=len(wide),
        counted="combinations of ε, δ and T_SLA, ours",
        text=f"{disorder} of {len(wide)} combinations violate "
        "proposed ≤ no-relaxation ≤ exactly-once",
        fails="" if saves else "One of the methods never saves a checkpoint.",
        sensitivity=_reversed_if_spared(
            (spared > 0) != (disorder > 0), f"{spared} of {len(wide)} violate it"
        ),
    )


def saves_where_estimating_does_not(counts: pd.DataFrame) -> Finding:
    """D2-3: share of the points where no-relaxation saves nothing but proposed does."""
    wide = _by_method(counts)
    useless = wide[(wide[NO_RELAXATION] >= wide[EXACTLY_ONCE]) & (wide[EXACTLY_ONCE] > 0)]
    if useless.empty:
        return not_run("No-relaxation saves checkpoints at every point.")
    saves = useless[PROPOSED] < useless[EXACTLY_ONCE]
    spared = wide[(wide[NO_RELAXATION] >= wide[SPARED]) & (wide[SPARED] > 0)]
    share = (spared[PROPOSED] < spared[SPARED]).mean()
    return Finding(
        saves.mean(),
        n=len(useless),
        counted="points where no-relaxation saves nothing",
        text=f"{saves.sum()} of {len(useless)} points where no-relaxation saves nothing",
        sensitivity=_reversed_if_spared(
            (share < NEARLY_EVERYWHERE) != (saves.mean() < NEARLY_EVERYWHERE),
            f"{share:.0%} of {len(spared)} points".replace("%", " %"),
        )
        if len(spared)
        else "",
    )


def saves_most_at_short_t_sla(counts: pd.DataFrame) -> Finding:
    """D2-4: share of the pairs (ε, δ) at which the shortest T_SLA saves the most checkpoints."""
    wide = _by_method(counts)
    saved = (wide[EXACTLY_ONCE] - wide[PROPOSED]).unstack("t_sla_ms")
    spared = _first_is_largest((wide[SPARED] - wide[PROPOSED]).unstack("t_sla_ms"))
    most = _first_is_largest(saved)
    shares = (saved / wide[EXACTLY_ONCE].unstack("t_sla_ms")).fillna(0)
    as_share = int((shares.iloc[:, 0] >= shares.max(axis=1)).sum())
    means = ", ".join(f"{mean:.0f}" for mean in saved.mean())
    return Finding(
        float(most.mean()),
        n=len(saved),
        counted="combinations of ε and δ, ours",
        text=f"{most.sum()} of {len(saved)} combinations; "
        f"saved on average, by rising T_SLA: {means} checkpoints",
        sensitivity=_reversed_if_spared(
            spared.all() != most.all(), f"{spared.sum()} of {len(saved)} combinations"
        )
        + f" As a share of exactly-once's checkpoints the saving is largest there at {as_share}.",
    )


def _first_is_largest(saved: pd.DataFrame) -> pd.Series:
    first = saved.iloc[:, 0]
    return (first >= saved.max(axis=1)) & (first > saved.iloc[:, -1]) & (first > 0)


def saves_most_where_loose(counts: pd.DataFrame) -> Finding:
    """D2-13: share of the T_SLA at which no-relaxation saves most at the largest ε and δ."""
    wide = _by_method(counts)
    saved = (wide[EXACTLY_ONCE] - wide[NO_RELAXATION]).unstack("t_sla_ms")
    loosest = saved.iloc[-1]
    most = (loosest >= saved.max()) & (loosest > 0)
    return Finding(
        most.mean(),
        n=len(most),
        counted="values of T_SLA, ours",
        text=f"{most.sum()} of {len(most)} values of T_SLA; other ε and δ may save as many",
    )


def stays_below_delta(success: pd.DataFrame, parameters: NotebookParameters) -> Finding:
    """D2-5: the largest failure rate of a point of fig. 7, divided by its δ, by formula (12)."""
    if success.empty:
        return not_run("No plan estimates anything.")
    largest, hardest = success[["failed", "hardest"]].div(success["delta"], axis=0).max()
    missed, parts = success[["missed", "parts"]].max()
    largest_z = success["z"].abs().max()
    point = [parameters.epsilon, parameters.delta, parameters.t_sla]
    here = success[(success[AXES] == point).all(axis=1)]
    row = (here if len(here) else success.nsmallest(1, "restored")).iloc[0]
    met = row["restored"] >= 1 - row["delta"]
    reverses = "The same" if met else "Reversed"
    return Finding(
        float(largest),
        n=len(success),
        counted=f"points, {success['checkpoints'].sum()} checkpoints",
        text=f"largest failure rate of a plan: {largest:.3f} δ; hardest sensor at one checkpoint: "
        f"{hardest:.5f} δ",
        sensitivity=f"{reverses} if the restored checkpoint is meant: "
        f"{'' if met else 'only '}{row['restored']:.0%} of the estimated sensors "
        f"({row['restored_all']:.0%} of all) are within ε there (ε = {row['epsilon']:g}, τ = "
        f"{row['tau']:,.0f}). By chance, {missed} of {parts} drawn data sets miss 1 − δ "
        "somewhere.".replace("%", " %"),
        control=bool(largest_z <= LARGEST_Z),
    )


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
    return Finding(
        centre,
        interval,
        n=small["turn"].nunique(),
        counted="turns",
        text=f"at most {centre:.3g} {shown_interval(interval)} × full replay's time, "
        f"{_at_size(at)}, the gain solved at recovery",
        sensitivity=f"{reverses} if the gain is prepared: at most {prepared:.3g}, "
        f"{_at_size(prepared_at)}. 10⁵ counts rows; by (27), (28) reversed if it counted the "
        "tuples of all sensors.",
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
    huge = times[times["n"] > SOME]
    with_model = ""
    if len(huge):
        parts = huge[huge["sensors"] < huge["n"]]
        longest = float((parts["state_ms"] + parts["gain_ms"]).max())
        word = "Reversed" if longest > RESTORED_MS else "The same"
        with_model = f" {word} with it at {int(huge['n'].max()):,} sensors: up to {longest:.3g} ms."
    few = times[times["n"] < FEW]
    most_off = ""
    if len(few):
        small = _over_full_replay(few, "rep_ms", "rep_ms").median()
        n = int(few["n"].min())
        off = small[n, round(n / 2)] * n / round(n / 2) - 1
        most_off = f" With {n} sensors it takes {off:.0%} longer, because of opening the log."
    return Finding(
        float(centre[at]),
        (float(low[at]), float(high[at])),
        n=large["turn"].nunique(),
        counted="turns",
        text=f"replaying half of {halves[at][0]:,} sensors takes {centre[at]:.0%} "
        f"[{low[at]:.0%}, {high[at]:.0%}] longer than half of a full replay's time; T_res is "
        f"{restored:.2f} ms".replace("%", " %").replace("-", "−"),
        fails=f"T_res is {restored:.2f} ms." if restored > RESTORED_MS else "",
        sensitivity=f"Up to {fixed:.0%} of T_rep is fixed, so a tenth of the sensors takes up to "
        f"{(fixed + (1 - fixed) / 10) * 10:.1f} times a tenth of the time. T_res is without the "
        "model, as 5.1 (1) restores the checkpoint alone; our gain matrix takes up to "
        f"{loading:.1f} ms.{with_model}"
        f"{most_off}".replace("%", " %"),
    )


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
        text=f"{in_time} of {n} kills in time, {in_time / n:.0%} ".replace("%", " %")
        + f"{shown_interval(interval)}; T_SLA is {MARGIN:g} × the fitted time",
        sensitivity=f"As a bound without exceptions it {'is met' if in_time == n else 'fails'}: "
        f"{n - in_time} of {n} kills were late. With this share, {closing} decide between it and "
        f"{IN_TIME:.0%}. Median T_rec {killed['total_ms'].median():.1f} ms, T_SLA "
        f"{killed['t_sla_ms'].iloc[0]:.1f} ms.".replace("%", " %"),
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
        text=f"{centre:.3g} × full replay's time {_at_size(at)}".replace(
            "time", f"time {shown_interval(interval)}" if interval else "time"
        )
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


def adaptive_keeps_epsilon(
    counts: pd.DataFrame, adaptive: pd.DataFrame, parameters: NotebookParameters
) -> Finding:
    """D2-14: the largest failure probability of a result of adaptive after kills, over δ."""
    wide = _by_method(counts)
    saved = wide[PROPOSED] - wide[ADAPTIVE]
    more = int((saved < 0).sum())
    best = wide.reset_index().iloc[int(saved.to_numpy().argmax())]
    kills = int(adaptive.groupby("stream")["kills"].first().sum())
    largest = float(adaptive["failed"].max()) / parameters.delta
    repeated = int((adaptive["recovered"] > 1).sum())
    return Finding(
        largest,
        n=kills,
        counted=f"kills; {repeated} windows with several failed intervals",
        text=f"failure probability at most {largest:.3f} δ; at best {best[ADAPTIVE]:.0f} "
        f"checkpoints instead of {best[PROPOSED]:.0f} "
        f"(ε = {best['epsilon']:g}, T_SLA = {best['t_sla_ms']:g} ms)",
        fails=f"At {more} combinations it needs more checkpoints than proposed." if more else "",
        sensitivity="The rest of a window must be planned again after each failure, because the "
        "first may spend all of ε.",
        control=bool(adaptive["z"].max() <= LARGEST_ERROR and repeated > 0),
    )
