"""Captions of the figures and tables of notebook 02, computed from the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.documents.checkpoint_planning.cases import AXES, PlanningCase
from aftlib.documents.checkpoint_planning.experiments import (
    COVARIANCE,
    VARIANCE,
    NotebookParameters,
)
from aftlib.documents.checkpoint_planning.plan import EXACTLY_ONCE, METHODS, PROPOSED
from aftlib.documents.checkpoint_planning.success_rates import BOTH_LEARNED, SIGMA_LEARNED
from aftlib.documents.checkpoint_planning.timing import partial_medians
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
    each = ", ".join(f"{name} {first[name]:.0f} and {last[name]:.0f}" for name in METHODS)
    return (
        f"Checkpoints at {spoken.format(line.index[0])} and {spoken.format(line.index[-1])} "
        f"({at(point, x)}): {each}."
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
    for name in (BOTH_LEARNED, SIGMA_LEARNED):
        shares = mean[name]
        enough = shares.index[shares >= 1 - point["delta"]]
        met = f"1 − δ is met from {enough[0]:,} rows on" if len(enough) else "1 − δ is not met"
        each.append(f"{name}: {percent(shares.iloc[0])} to {percent(shares.iloc[-1])}, {met}")
    rows = curve["rows"]
    return (
        f"Share of estimates within ε by the true model, with {rows.min():,} to {rows.max():,} "
        f"rows ({at(point)}). {'; '.join(each)}."
    )


def recovery_times(times: pd.DataFrame) -> str:
    """Say how large a part of a recovery is the replay (fig. 5)."""
    partial = times[times["sensors"] < times["n"]]
    share = (partial["rep_ms"] / partial["total_ms"]).groupby(partial["n"]).median()
    each = ", ".join(f"{percent(part)} with n = {n:,}" for n, part in share.items())
    return f"Medians, gain prepared. Replay (blue) takes this part of a recovery: {each}."


def solving_times(times: pd.DataFrame) -> str:
    """Say how T_est grows with n if (6) is solved at recovery (fig. 5)."""
    median = times.groupby(["n", "sensors"])["solve_ms"].median()
    sizes = sorted(times["n"].unique())
    half = {n: median[n, round(n / 2)] for n in (sizes[0], sizes[-1])}
    each = " and ".join(f"{ms:,.3g} ms for n = {n:,}" for n, ms in half.items())
    return f"With (6) solved at recovery and |O| = n/2, T_est is {each}."


def recovery_surface(times: pd.DataFrame) -> str:
    """Say where a recovery takes longer than a full replay."""
    partial = partial_medians(times)
    prepared = (partial["total_ms"] >= partial["full_ms"]).sum()
    solved = (partial["solved_ms"] >= partial["full_ms"]).sum()
    return (
        f"Recovery takes as long as a full replay or longer at {prepared} of {len(partial)} points "
        f"with the gain prepared with the plan, and at {solved} with (6) solved at recovery."
    )


def throughput(rates: pd.DataFrame, point: Mapping[str, float]) -> str:
    """Say what fewer checkpoints give, by the geometric mean over pairs, as claim D2-11 does."""
    rate = rates.pivot_table(index="turn", columns="plan", values="rate")
    taken = rates.groupby("plan")["checkpoints"].first()
    ratio = np.exp(np.log(rate[PROPOSED] / rate[EXACTLY_ONCE]).mean())
    return (
        f"Medians and ranges of windows ({at(point)}). With {taken[PROPOSED]} checkpoints against "
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
        f"$\\varepsilon$; the model guarantees {percent(1 - delta)}."
    )
