"""D4 figs 3 to 6: tuples sent again after a failure, recovery times, and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.core.checks import require_number, require_numbers
from aftlib.core.intervals import t_interval
from aftlib.spark.sweep import sweep
from aftlib.upstream_backup.closed_form import traffic
from aftlib.upstream_backup.failures import Failure, drawn_phases, failure_times
from aftlib.upstream_backup.parameters import NODES, Parameters
from aftlib.upstream_backup.recursion import Simulated, simulate
from aftlib.upstream_backup.schemes import PROPOSED, SCHEMES, UPSTREAM, Scheme

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Parameters(
    rate=1000 / 15, ack_ms=70, heartbeat_ms=20, switching_ms=45, checkpoint_ms=70, write_ms=15
)
"""Our choice, because the figures give no times: a tuple every 15 ms, from 0, three per turn."""

MEASURES = ("queue_at_crash", "resent", "reprocessed", "recovery_ms", "restored_ms", "caught_up_ms")
SHARES = ("share_of_all", "relative", "relative_to_input")
_CHUNK = 5


def example(scheme: str) -> Simulated:
    """Simulate the primary's failure in a stream slow enough to follow by eye (figs 3 and 4)."""
    return simulate(EXAMPLE, scheme, [Failure(182.0)], until_ms=330.0)


def example_table() -> pd.DataFrame:
    """The content of figs 3 and 4: scheme, tuples sent again, their number, recovery time."""
    found = {s.name: example(s.name).recoveries[0] for s in (UPSTREAM, PROPOSED)}
    rows = [
        (name, ", ".join(map(str, one.resent)), len(one.resent), one.recovery_ms)
        for name, one in found.items()
    ]
    return pd.DataFrame(rows, columns=["scheme", "sent again", "tuples", "recovery_ms"])


@dataclass(frozen=True)
class Sweep:
    """Input rates, and failures at the same random times for every scheme and rate.

    The times lie in [steady_ms, steady_ms + spread_ms); the document has 30 s for both. If the
    queues settle after steady_ms, this interval begins when they have settled.
    """

    rates: tuple[float, ...]  # tuples per second
    trials: int  # failures at each rate, each in a stream of its own; an interval needs two
    seed: int = 1  # of the failure times
    steady_ms: float = 2000.0
    spread_ms: float = 2000.0
    parameters: Parameters = field(default_factory=Parameters)  # all but the rate

    def __post_init__(self) -> None:
        require_numbers("rates", self.rates, above=0)
        require_number("trials", self.trials, least=2, whole=True)

    @property
    def failures_ms(self) -> np.ndarray:
        """Failure times, shape (trials,)."""
        steady = max(self.steady_ms, self.parameters.settling_ms + self.parameters.ack_ms)
        return failure_times(self.trials, self.seed, steady, self.spread_ms)

    def drawn(self, rate: float) -> list[tuple[Parameters, float]]:
        """Return, for each trial, the system with random phases and the failure time."""
        phases = drawn_phases(self.trials, self.seed)
        systems = [replace(self.at(rate), phases=one) for one in phases]
        return list(zip(systems, self.failures_ms.tolist(), strict=True))

    def at(self, rate: float) -> Parameters:
        """The system's parameters at one rate."""
        return replace(self.parameters, rate=float(rate))


Point = tuple[str, float, int, Sequence[tuple[Parameters, float]]]


def recoveries(
    spark: SparkSession, case: Sweep, schemes: Sequence[str] = tuple(SCHEMES)
) -> pd.DataFrame:
    """Let the primary fail at every failure time, under every scheme and rate, on Spark.

    One row per trial: scheme, rate, trial, failure_ms, queue_at_crash, resent, reprocessed,
    duplicates (results that came twice), recovery_ms (the experiment's), restored_ms (Hwang et
    al.'s), caught_up_ms (until downstream has everything). Trials are paired: every scheme has the
    same failure times and phases.
    """
    points: list[Point] = [
        (name, rate, i, drawn[i : i + _CHUNK])
        for rate, drawn in ((rate, case.drawn(rate)) for rate in case.rates)
        for name in schemes
        for i in range(0, case.trials, _CHUNK)
    ]
    found = sweep(spark, one_point, points)
    return pd.DataFrame([row for rows in found for row in rows])


def one_point(point: Point) -> list[dict[str, object]]:
    """Simulate some trials of one scheme at one rate, one row each."""
    name, rate, first, drawn = point
    return [
        {"scheme": name, "rate": rate, "trial": trial, "failure_ms": time}
        | recovery_row(parameters, name, time)
        for trial, (parameters, time) in enumerate(drawn, start=first)
    ]


def recovery_row(
    parameters: Parameters, scheme: Scheme | str, failure_ms: float, node: str = NODES[0]
) -> dict[str, float]:
    """Simulate one failure of a node; return the measures of its recovery."""
    found = simulate(parameters, scheme, [Failure(failure_ms, node)]).recoveries[0]
    measures = {name: getattr(found, name) for name in (*MEASURES, "duplicates")}
    return measures | {"resent": len(found.resent)}


def summary(trials: pd.DataFrame) -> pd.DataFrame:
    """Means over trials with t intervals: scheme, rate, and each measure with …_low, …_high."""
    rows = []
    for (scheme, rate), group in trials.groupby(["scheme", "rate"], sort=False):
        row = {"scheme": scheme, "rate": rate, "trials": len(group)}
        for name in [m for m in MEASURES if m in group]:
            centre, low, high = t_interval(group[name].to_numpy(dtype=float))
            row |= {name: float(centre), f"{name}_low": float(low), f"{name}_high": float(high)}
        rows.append(row)
    return pd.DataFrame(rows)


def saved(trials: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Mean of upstream backup minus the proposal over paired trials, with its interval, by rate.

    Columns rate, mean, low, high; upstream: mean of upstream backup; ratio: the proposal's mean
    over it, 1 if both are 0.
    """
    wide = trials.pivot_table(index=["rate", "trial"], columns="scheme", values=measure)
    less = (wide[UPSTREAM.name] - wide[PROPOSED.name]).unstack("trial")
    centre, low, high = t_interval(less.to_numpy())
    means = wide.groupby("rate").mean()
    ratio, upstream = means[PROPOSED.name] / means[UPSTREAM.name], means[UPSTREAM.name]
    bounds = pd.DataFrame({"mean": centre, "low": low, "high": high}, index=less.index)
    return bounds.assign(ratio=ratio.fillna(1.0), upstream=upstream).reset_index()


def savings(trials: pd.DataFrame) -> pd.DataFrame:
    """Savings of the proposal, one row per rate: `saved`, in tuples and in ms of recovery."""
    parts = {"tuples": saved(trials, "resent"), "ms of recovery": saved(trials, "recovery_ms")}
    shown = {t: part.set_index("rate").drop(columns="upstream") for t, part in parts.items()}
    return pd.concat(shown, axis=1)


def overheads(case: Sweep) -> pd.DataFrame:
    """Bandwidth overhead while nothing fails, with each denominator (D4 section 2.2).

    Columns scheme; rate; share_of_all; relative: to the stream without fault tolerance;
    relative_to_input: to the stream into the node.
    """
    rows = []
    for rate, scheme in product(case.rates, SCHEMES.values()):
        found = traffic(case.at(rate), scheme)
        row = {"scheme": scheme.name, "rate": rate}
        rows.append(row | {name: getattr(found, name) for name in SHARES})
    return pd.DataFrame(rows)


def comparison(means: pd.DataFrame, costs: pd.DataFrame, rate: float) -> pd.DataFrame:
    """All schemes at one rate: three recovery times and three overheads.

    A ValueError when the rate was not simulated.
    """
    if rate not in set(means["rate"]):
        known = ", ".join(f"{r:g}" for r in sorted(means["rate"].unique()))
        raise ValueError(f"rate must be one of {known}, got {rate!r}")
    times = ["scheme", "resent", "reprocessed", "recovery_ms", "restored_ms", "caught_up_ms"]
    left = means[means["rate"] == rate][times]
    right = costs[costs["rate"] == rate][["scheme", *SHARES]]
    return left.merge(right, on="scheme").set_index("scheme")
