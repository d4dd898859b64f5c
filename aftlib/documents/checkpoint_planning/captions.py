"""Captions of the figures and tables of notebook 02, computed from the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.documents.checkpoint_planning.cases import AXES, SPARED, PlanningCase
from aftlib.documents.checkpoint_planning.experiments import (
    COVARIANCE,
    VARIANCE,
    NotebookParameters,
)
from aftlib.documents.checkpoint_planning.plan import (
    ADAPTIVE,
    EXACTLY_ONCE,
    NO_RELAXATION,
    PROPOSED,
)
from aftlib.documents.checkpoint_planning.success_rates import BOTH
from aftlib.documents.checkpoint_planning.success_rates import COVARIANCE as LEARNED_COVARIANCE
from aftlib.notebook.texts import percent

DOCUMENT = {"sensors": 100, "groups": 5, "window": 10_000}
"""Generated data of the document (section 6.2)."""
_SPOKEN = {"epsilon": "ε = {:g}", "delta": "δ = {:g}", "t_sla_ms": "T_SLA = {:g} ms"}


def at(point: Mapping[str, float], *without: str) -> str:
    """Return the values of a point, ε in sensor units, but those of some axes.

    >>> at({"epsilon": 0.12, "delta": 0.05, "t_sla_ms": 50.0}, "delta")
    'ε = 0.12, T_SLA = 50 ms'
    """
    return ", ".join(_SPOKEN[axis].format(point[axis]) for axis in AXES if axis not in without)


def _line(frame: pd.DataFrame, x: str, point: Mapping[str, float]) -> pd.DataFrame:
    """Return the rows along an axis through a point, in order."""
    others = [axis for axis in AXES if axis != x]
    on_line = (frame[others] == [point[axis] for axis in others]).all(axis=1)
    return frame[on_line].sort_values(x)


def setting(parameters: NotebookParameters, case: PlanningCase) -> str:
    """Say which sensors are planned for, and how generated ones differ from the document's."""
    p = parameters
    cost = (
        "A recovery takes $28.33 + 9.332\\cdot10^{-4}\\,|o|$ ms (27, 28), the document's time for "
        "100 sensors."
    )
    if p.data is not None:
        about = case.samples.about
        return (
            f"There are {case.model.size} sensors of {Path(p.data).name}, with {about['rows']:,} "
            f"rows, of which {about['rows'] - about['whole']:,} with gaps are left out. Mean and "
            f"covariance are learned from the first half; the second, {case.samples.steps:,} rows, "
            f"is streamed in windows of {p.window:,} steps. {cost}"
        )
    same = all(getattr(p, name) == value for name, value in DOCUMENT.items())
    start = "As in the document, there" if same else "Unlike in the document, there"
    groups = "one group" if p.groups == 1 else f"{p.groups} equal groups"
    return (
        f"{start} are {p.sensors} sensors in {groups}, variance {VARIANCE:g}, "
        f"covariance {COVARIANCE:g} in a group, and windows of {p.window:,} steps. {cost}"
    )


def counts(frame: pd.DataFrame, x: str, point: Mapping[str, float]) -> str:
    """Say how many checkpoints each method needs at both ends of an axis (fig. 6)."""
    line = _line(frame, x, point).pivot_table(index=x, columns="method", values="checkpoints")
    first = line.iloc[0]
    last = line.iloc[-1]
    spoken = _SPOKEN[x]
    methods = [EXACTLY_ONCE, NO_RELAXATION, PROPOSED, ADAPTIVE]
    each = ", ".join(f"{name} {first[name]:.0f} and {last[name]:.0f}" for name in methods)
    return (
        f"Checkpoints at {spoken.format(line.index[0])} and {spoken.format(line.index[-1])} "
        f"({at(point, x)}): {each}."
    )


def spared(frame: pd.DataFrame, point: Mapping[str, float]) -> str:
    """Say what becomes of the counts if exactly-once is spared T_est."""
    shortest = frame["t_sla_ms"].min()
    rows = frame[frame["t_sla_ms"] == shortest]
    means = rows.groupby("method")["checkpoints"].mean()
    here = rows[(rows["epsilon"] == point["epsilon"]) & (rows["delta"] == point["delta"])]
    proposed = here.loc[here["method"] == PROPOSED, "checkpoints"].item()
    favours = "This favours the document: without" if means[SPARED] < means[PROPOSED] else "Without"
    return (
        "Exactly-once estimates nothing, but the document's $T_{rec}(|o|)$ includes the time of "
        f"estimating, $T_{{est}}$, for all methods. {favours} $T_{{est}}$, exactly-once needs "
        f"{means[SPARED]:.1f} checkpoints at {shortest:g} ms, and the proposed plan "
        f"{means[PROPOSED]:.1f} on average over ε and δ ({proposed} at ε = {point['epsilon']:g}, "
        f"δ = {point['delta']:g})."
    )


def plan(point: Mapping[str, float]) -> str:
    """Describe the figure of plans."""
    return f"Height: sensors that a failure replays; marks: checkpoints ({at(point)})."


def success(frame: pd.DataFrame, x: str, point: Mapping[str, float]) -> str:
    """Say how the success rates along an axis compare with 1 − δ (fig. 7)."""
    line = _line(frame, x, point)
    if line.empty:
        return f"No plan estimates anything ({at(point, x)})."
    below = int((line["failed"] > line["delta"]).sum())
    return (
        f"By formula {below} of {len(line)} points lie below 1 − δ ({at(point, x)}; the slider "
        f"begins there). The samples (open marks) are at most {line['z'].abs().max():.1f} standard "
        "errors off the formula."
    )


def chance(frame: pd.DataFrame) -> str:
    """Say in how many drawn data sets some point lies below 1 − δ."""
    if frame.empty:
        return "No plan estimates anything."
    missed, parts = frame[["missed", "parts"]].max()
    return (
        f"In {missed} of {parts} drawn data sets of the log's length, some point of the grid lies "
        "below $1-\\delta$ by chance."
    )


def measured(frame: pd.DataFrame, point: Mapping[str, float]) -> str:
    """Say how often results of the log's windows are within ε, beside the model's prediction."""
    if frame.empty:
        return f"The plan estimates nothing ({at(point)})."
    mean = frame[["predicted", "measured"]].mean()
    return (
        f"In {frame['windows'].iloc[0]} windows of the log, {percent(mean['measured'])} of the "
        f"estimates are within ε, {percent(mean['predicted'])} by the model (mean over the "
        f"checkpoints; {at(point)})."
    )


def learned(curve: pd.DataFrame, point: Mapping[str, float]) -> str:
    """Say from how many rows on learned models keep the guarantee on average."""
    if curve.empty:
        return f"No plan estimates anything ({at(point)})."
    mean = curve.groupby(["curve", "rows"])["success"].mean()
    each = []
    for name in (BOTH, LEARNED_COVARIANCE):
        shares = mean[name]
        enough = shares.index[shares >= 1 - point["delta"]]
        met = f"1 − δ is met from {enough[0]:,} rows on" if len(enough) else "1 − δ is not met"
        each.append(f"{name}: {percent(shares.iloc[0])} to {percent(shares.iloc[-1])}, {met}")
    return f"True success from the fewest to the most rows ({at(point)}). {'; '.join(each)}."


def recovery_times(times: pd.DataFrame) -> str:
    """Say how large a part of a recovery is the replay (fig. 5)."""
    partial = times[times["sensors"] < times["n"]]
    share = (partial["rep_ms"] / partial["total_ms"]).groupby(partial["n"]).median()
    each = ", ".join(f"{percent(part)} with n = {n:,}" for n, part in share.items())
    return f"Medians. Replay (blue) takes this part of a recovery: {each}."


def solving_times(times: pd.DataFrame) -> str:
    """Say how T_est grows with n if the gain is solved at recovery (fig. 5)."""
    median = times.groupby(["n", "sensors"])["solve_ms"].median()
    sizes = sorted(times["n"].unique())
    half = {n: median[n, round(n / 2)] for n in (sizes[0], sizes[-1])}
    each = " and ".join(f"{ms:,.3g} ms for n = {n:,}" for n, ms in half.items())
    return f"For |O| = n/2, T_est is {each}."


def recovery_surface(times: pd.DataFrame) -> str:
    """Say where a recovery takes longer than a full replay."""
    parts = ["total_ms", "solved_ms"]
    median = times.groupby(["n", "sensors"])[parts].median().reset_index()
    full = median[median["sensors"] == median["n"]].set_index("n")["total_ms"]
    partial = median[median["sensors"] < median["n"]]
    ratios = partial[parts].div(partial["n"].map(full), axis=0)
    slower = (ratios >= 1).sum()
    return (
        f"Recovery takes as long as a full replay or longer at {slower['total_ms']} of "
        f"{len(ratios)} points with the gain prepared, and at {slower['solved_ms']} with the gain "
        "solved at recovery."
    )


def adaptive(frame: pd.DataFrame, parameters: NotebookParameters) -> str:
    """Count the windows that failed under kills of adaptive drivers, and their wrong results."""
    kills = int(frame.groupby("stream")["kills"].first().sum())
    outside = frame.loc[frame["recovered"] > 0, "outside"].mean()
    return (
        f"*adaptive* after {kills} kills at random: of {len(frame)} windows, "
        f"{int((frame['recovered'] > 0).sum())} had a failed interval and "
        f"{int((frame['recovered'] > 1).sum())} several. By formula a result errs by more than ε = "
        f"{parameters.epsilon:g} with probability at most {frame['failed'].max():.4f} (δ = "
        f"{parameters.delta:g}); {percent(outside)} of the results of windows with failures did."
    )


def throughput(rates: pd.DataFrame, point: Mapping[str, float]) -> str:
    """Say what fewer checkpoints give, by the geometric mean over pairs, as claim D2-11 does."""
    rate = rates.pivot_table(index="turn", columns="plan", values="rate")
    taken = rates.groupby("plan")["checkpoints"].first()
    ratio = np.exp(np.log(rate[PROPOSED] / rate[EXACTLY_ONCE]).mean())
    if taken[PROPOSED] == taken[EXACTLY_ONCE]:
        return (
            f"Medians and ranges of windows ({at(point)}). Both plans have {taken[PROPOSED]} "
            f"checkpoints, so nothing but chance makes the ratio of {ratio:.2f}, pair by pair."
        )
    return (
        f"Medians and ranges of windows ({at(point)}). With "
        f"{taken[PROPOSED]} checkpoints instead of "
        f"{taken[EXACTLY_ONCE]}, throughput is {ratio:.2f} times as high, pair by pair."
    )


def beijing(frame: pd.DataFrame, delta: float) -> str:
    """Say how often real sensors whose hours depend on each other are within ε."""
    replayed = frame["replayed"].max()
    nothing = "Nothing is replayed" if replayed == 0 else f"At most {replayed} are replayed"
    first = frame.iloc[0]
    last = frame.iloc[-1]
    return (
        f"{nothing}, and {percent(first['within'])} ($\\tau={first['tau']:.0f}$) to "
        f"{percent(last['within'])} ($\\tau={last['tau']:.0f}$) of the estimates are within "
        f"$\\varepsilon$; the model promises {percent(1 - delta)}."
    )
