"""D4's experiments in the order of notebook 04: figs 3 to 6, the costs, either node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Self

import numpy as np
import pandas as pd
from pydantic import model_validator
from pyspark.sql import SparkSession

from aftlib.core.intervals import t_interval
from aftlib.documents.upstream_backup.closed_form import traffic
from aftlib.documents.upstream_backup.simulation import NEVER, Recovery, Route, simulate
from aftlib.documents.upstream_backup.system import (
    MS,
    NODES,
    PROPOSED,
    SCHEMES,
    SIMULATED_SCHEMES,
    STEADY_MS,
    UPSTREAM,
    Scheme,
    System,
    drawn_phases,
    failure_times,
)
from aftlib.notebook.parameters import ParameterModel, parameter
from aftlib.spark.sweep import sweep

EXAMPLE = System(rate=1000 / 15, ack_ms=70, heartbeat_ms=20, switching_ms=45, write_ms=15)
"""Our choice, because figs 3 and 4 give no times: a tuple every 15 ms, from 0, three per turn."""
MEASURES = ("queue_at_crash", "resent", "recovery_ms")
_INTERVAL: Any = {"least": 0.1, "most": 10_000}


class NotebookParameters(ParameterModel):
    """System of notebook 04."""

    rates: list[int | float] = parameter(
        [200, 500, 1000, 2000, 5000, 10000, 15000, 20000],
        "tuples/s",
        above=0,
        smoke=[200, 1000, 20000],
    )
    rate: int | float = parameter(1000, "of the tables, tuples/s", above=0)
    trials: int = parameter(
        100, "failures at each rate, for intervals", least=5, smoke=10, full=1000
    )
    ack_ms: float = parameter(25.0, "interval of level-0 ACKs", **_INTERVAL)
    heartbeat_ms: float = parameter(100.0, "interval of heartbeats", **_INTERVAL)
    switching_ms: float = parameter(100.0, "a node's turn in the proposal", **_INTERVAL)
    seed: int = parameter(1, "of the failure times", least=0)

    @model_validator(mode="after")
    def require_possible_systems(self) -> Self:
        """Refuse impossible systems: a link or node too slow for a rate, a turn without a tuple."""
        for rate in [*self.rates, self.rate]:
            self.at(rate)
        return self

    @property
    def swept_rates(self) -> list[int | float]:
        """The rates of figs 5 and 6 and of the tables, ascending."""
        return sorted({*self.rates, self.rate})

    def at(self, rate: float) -> System:
        """Return the system at one rate."""
        return System(
            rate=float(rate),
            ack_ms=self.ack_ms,
            heartbeat_ms=self.heartbeat_ms,
            switching_ms=self.switching_ms,
        )

    @property
    def failures_ms(self) -> np.ndarray:
        """Failure times, shape (trials,), none before the queues have settled.

        They are the same for both schemes and every rate.
        """
        settled_ms = self.at(self.rate).settling_ms + self.ack_ms
        return failure_times(self.trials, self.seed, max(STEADY_MS, settled_ms))

    def drawn(self, rate: float) -> list[tuple[System, float]]:
        """Return, for each trial, the system with random phases and the failure time."""
        phases = drawn_phases(self.trials, self.seed)
        systems = [replace(self.at(rate), phases=one) for one in phases]
        return list(zip(systems, self.failures_ms.tolist(), strict=True))


def example(scheme: Scheme) -> Recovery:
    """Simulate the primary's failure in a stream slow enough to follow by eye (figs 3 and 4)."""
    return simulate(EXAMPLE, scheme, failure_ms=182.0)


def follow_tuples() -> pd.DataFrame:
    """Messages of `example` under both schemes, one row each, for `figures.recoveries`.

    Columns scheme; kind ("tuple", "result", "ACK", "request", "replayed tuple" or "failure");
    source and target: the nodes; sent_ms, arrived_ms; number: of its tuple, of an ACK the
    newest that it confirms, −1 where there is none.
    """
    rows = [
        (scheme.name, *message)
        for scheme in SIMULATED_SCHEMES
        for message in _list_messages(example(scheme))
    ]
    columns = ["scheme", "kind", "source", "target", "sent_ms", "arrived_ms", "number"]
    messages = pd.DataFrame(rows, columns=columns)
    messages[["sent_ms", "arrived_ms"]] /= MS
    return messages


def _list_messages(run: Recovery) -> Iterator[tuple[str, str, str, int, int, int]]:
    """Yield the messages of a run as rows of `follow_tuples`, with times in nanoseconds."""
    outage = run.outage
    for route in (run.failed, run.survivor):
        for i, number in enumerate(route.ids.tolist()):
            again = route is run.survivor and number in run.resent
            kind = "replayed tuple" if again else "tuple"
            arrived = route.sent[i] + EXAMPLE.link.delay_ns
            yield kind, "upstream", route.node, route.queued[i], arrived, number
            if route.delivered[i] < NEVER:
                emitted = route.emitted[i]
                yield "result", route.node, "downstream", emitted, route.delivered[i], number
        for tick, newest in _list_acks(route):
            passed = tick + EXAMPLE.hop_ns
            yield "ACK", "downstream", route.node, tick, passed, newest
            if passed < route.crash:
                yield "ACK", route.node, "upstream", passed, passed + EXAMPLE.hop_ns, newest
    yield "request", outage.survivor, "upstream", outage.detected, outage.request, -1
    yield "failure", outage.node, outage.node, outage.crash, outage.crash, -1


def _list_acks(route: Route) -> Iterator[tuple[int, int]]:
    """Yield the times of a route's level-0 ACKs, and the newest tuple that each confirms."""
    every, phase = EXAMPLE.cycle("ack")
    confirmed = 0
    for tick in range(phase + every, int(route.queued[-1]), every):
        count = int(np.searchsorted(route.delivered, tick, side="right"))
        if count > confirmed:
            confirmed = count
            yield tick, int(route.ids[count - 1])


Trial = tuple[dict[str, Any], System, float]
"""Names of a trial (scheme, rate, node, trial), its system and its failure time in ms."""


def recoveries(
    spark: SparkSession, p: NotebookParameters, nodes: Sequence[str] = NODES[:1]
) -> pd.DataFrame:
    """Let each of `nodes` fail at every failure time, under both schemes and every rate, on Spark.

    One row per trial: scheme, rate, node, trial, failure_ms, queue_at_crash, resent, recovery_ms.
    """
    return pd.DataFrame(sweep(spark, run_trial, list_trials(p, nodes)))


def list_trials(p: NotebookParameters, nodes: Sequence[str] = NODES[:1]) -> list[Trial]:
    """Trials of `recoveries`. They are paired: both schemes have the same times and phases."""
    return [
        ({"scheme": scheme.name, "rate": rate, "node": node, "trial": trial}, system, time)
        for rate, scheme, node in product(p.swept_rates, SIMULATED_SCHEMES, nodes)
        for trial, (system, time) in enumerate(p.drawn(rate))
    ]


def run_trial(trial: Trial) -> dict[str, Any]:
    """Simulate one failure; the row begins with the names of the trial."""
    names, system, time = trial
    measures = measure_recovery(system, SCHEMES[names["scheme"]], time, names["node"])
    return {**names, "failure_ms": time, **measures}


def measure_recovery(
    system: System, scheme: Scheme, failure_ms: float, node: str = NODES[0]
) -> dict[str, float]:
    """Simulate one failure of a node; return the measures of its recovery."""
    recovery = simulate(system, scheme, failure_ms, node)
    return {
        "queue_at_crash": recovery.queue_at_crash,
        "resent": len(recovery.resent),
        "recovery_ms": recovery.recovery_ms,
    }


def summarize(trials: pd.DataFrame) -> pd.DataFrame:
    """Means over trials with t intervals: scheme, rate, and each measure with …_low, …_high."""
    columns: dict[str, np.ndarray] = {}
    for name in MEASURES:
        wide = trials.pivot_table(
            index=["scheme", "rate"], columns="trial", values=name, sort=False
        )
        centre, low, high = t_interval(wide.to_numpy(dtype=float))
        columns |= {name: centre, f"{name}_low": low, f"{name}_high": high}
    return pd.DataFrame(columns, index=wide.index).reset_index()


def compare_costs(p: NotebookParameters) -> pd.DataFrame:
    """All five schemes at the rate of the tables: traffic for availability, in percent.

    Its two columns have two denominators.
    """
    costs = [traffic(p.at(p.rate), scheme) for scheme in SCHEMES.values()]
    columns = {
        "of all traffic (%)": [100 * one.share_of_all for one in costs],
        "of the stream without fault tolerance (%)": [100 * one.relative for one in costs],
    }
    return pd.DataFrame(columns, index=pd.Index(list(SCHEMES), name="scheme"))


def compare_either(either: pd.DataFrame) -> pd.DataFrame:
    """Means per failure when each node fails equally often, by rate.

    Columns for replayed tuples and for recovery time (ms): both schemes, and the ratio of the
    proposal's to upstream backup's.
    """
    tables = {}
    for measure, name in (("resent", "replayed tuples"), ("recovery_ms", "recovery time (ms)")):
        means = either.pivot_table(index="rate", columns="scheme", values=measure)
        means = means[[UPSTREAM.name, PROPOSED.name]].rename_axis(columns=None)
        means["ratio"] = means[PROPOSED.name] / means[UPSTREAM.name]
        tables[name] = means
    return pd.concat(tables, axis=1).rename_axis(None)
