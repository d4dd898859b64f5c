"""Beyond D4: unequal nodes, operators that need order, failures in a row, real processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.core.checks import with_value
from aftlib.spark.faults import Fault
from aftlib.spark.sweep import sweep
from aftlib.upstream_backup.experiments.recoveries import Sweep, recovery_row
from aftlib.upstream_backup.failures import Failure, drawn_phases
from aftlib.upstream_backup.node_process import ACK_S, HEARTBEAT_S
from aftlib.upstream_backup.parameters import MS, NODES, Link, Parameters, Tcp
from aftlib.upstream_backup.processes import BATCH, PAUSE_S, TURN, deliver
from aftlib.upstream_backup.recursion import simulate
from aftlib.upstream_backup.schemes import ACTIVE, PASSIVE, PROPOSED, SCHEMES, UPSTREAM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW, LAG = 100, 10
"""Tuples of an aggregate's window, and between the partners of a join."""
LOOPBACK = Link(bandwidth_mbps=10_000, delay_ms=0.05)
"""A guess; no compared value depends on it."""
PHASES = 25

SharePoint = tuple[float, str, Sequence[tuple[Parameters, float]]]


def unequal_nodes(
    spark: SparkSession, case: Sweep, rate: float, secondary_us: float, shares: Sequence[float]
) -> pd.DataFrame:
    """Recovery with a slower secondary, by the primary's share of the stream.

    `case` gives failure times and parameters. `secondary_us` is the secondary's time per tuple.
    `shares` are shares of the tuples that go to the primary.

    Columns share; failed: the node; resent, recovery_ms: means over the failure times;
    primary_load, secondary_load: share of its time that each node works while nothing fails.
    """
    points: list[SharePoint] = []
    for share in with_value(shares):
        drawn = [
            (replace(system, secondary_us=secondary_us, share=share), time)
            for system, time in case.drawn(rate)
        ]
        points += [(share, node, drawn) for node in NODES]
    return pd.DataFrame(sweep(spark, one_share, points))


def one_share(point: SharePoint) -> dict[str, object]:
    """One row of `unequal_nodes`."""
    share, node, drawn = point
    runs = [simulate(one, PROPOSED, [Failure(at, node)]).recoveries[0] for one, at in drawn]
    resent, recovery_ms = np.mean([(len(one.resent), one.recovery_ms) for one in runs], axis=0)
    system, parts = drawn[0][0], zip(NODES, (share, 1 - share), strict=True)
    loads = {f"{n}_load": system.rate * part * system.cost_ns(n) / 1e9 for n, part in parts}
    row = {"share": share, "failed": node, "resent": resent, "recovery_ms": recovery_ms}
    return row | loads


def orders(case: Sweep, rate: float) -> pd.DataFrame:
    """Effect of out-of-order results on operators after a failure of the primary, by scheme.

    Tuples sent again arrive after later tuples that went to the survivor. Results of two nodes of
    different speed overtake each other at every switch. A filter does not depend on the order. A
    windowed aggregate and a join of neighbours do: without sorting they close a window, or forget a
    partner, too early.

    Columns scheme, operator, then means over the case's failures. wrong: outputs that are wrong
    without sorting; delay_ms: delay of an output by sorting; late: results that sorting moves;
    waiting: most results held back at once; longest_ms: longest time that one is held back.
    """
    rows = []
    least_ms = 2000 * (WINDOW + 1) / rate  # two windows, at any rate
    for scheme in SCHEMES.values():
        for system, time in case.drawn(rate):
            failure = Failure(max(time, least_ms))
            delivered = simulate(system, scheme, [failure]).delivered
            outputs = {"aggregate": aggregate(delivered, WINDOW), "join": join(delivered, LAG)}
            for name, measures in outputs.items():
                rows.append(
                    {"scheme": scheme.name, "operator": name, **measures, **sorting(delivered)}
                )
    return pd.DataFrame(rows).groupby(["scheme", "operator"], sort=False).mean().reset_index()


def sorting(delivered: np.ndarray) -> dict[str, float]:
    """Cost of passing results on in the order of their numbers; `delivered`: arrival times, ns.

    late: results that come after one with a larger number; waiting: most results held back at one
    time; longest_ms: longest delay of a result.
    """
    released = np.maximum.accumulate(delivered)
    after = np.minimum.accumulate(delivered[::-1])[::-1]
    arrived = np.arange(1, len(delivered) + 1)
    waiting = arrived - np.searchsorted(released, np.sort(delivered), side="right")
    return {
        "late": int((delivered[:-1] > after[1:]).sum()),
        "waiting": int(max(waiting.max(), 0)),
        "longest_ms": float((released - delivered).max() / MS),
    }


def aggregate(delivered: np.ndarray, window: int) -> dict[str, float]:
    """Two or more tumbling windows, each closed by the first result of a later window.

    wrong: windows of which a result arrives after that; delay_ms: mean delay by sorting.
    """
    count = len(delivered) // window
    times = delivered[: count * window].reshape(count, window)
    first, last = times.min(axis=1), times.max(axis=1)
    closed = np.minimum.accumulate(first[::-1])[::-1][1:]
    held = np.maximum.accumulate(last) - last
    return {"wrong": int((last[:-1] > closed).sum()), "delay_ms": float(held[:-1].mean() / MS)}


def join(delivered: np.ndarray, lag: int) -> dict[str, float]:
    """Pairs (i, i + lag) by an operator that remembers the last `lag` results.

    wrong: pairs that are missing, because the first of the two is forgotten when the second comes;
    delay_ms: mean delay by sorting, with which no pair is missing.
    """
    rank = np.empty(len(delivered), dtype=np.int64)
    rank[np.argsort(delivered, kind="stable")] = np.arange(len(delivered))
    apart = np.abs(rank[lag:] - rank[:-lag])
    both = np.maximum(delivered[lag:], delivered[:-lag])
    held = np.maximum.accumulate(delivered)[lag:] - both
    return {"wrong": int((apart > lag).sum()), "delay_ms": float(held.mean() / MS)}


def in_a_row(case: Sweep, rate: float, nodes: Sequence[str]) -> pd.DataFrame:
    """Let nodes fail one after the other, each when the one before is back and queues are steady.

    One row per scheme (upstream backup, the proposal) and failure, in the order of `nodes`: scheme,
    failure_ms, node, resent, recovery_ms; interrupted: whether the survivor failed before the
    recovery's end; duplicates; lost: results of the whole stream that never arrived.
    """
    parameters, rows = case.at(rate), []
    apart = parameters.repair_ms + 2 * parameters.heartbeat_ms + 2 * parameters.settling_ms
    first = float(case.failures_ms[0])
    failures = [Failure(first + i * (apart + 7.3), node) for i, node in enumerate(nodes)]
    for scheme in (UPSTREAM, PROPOSED):
        stream = simulate(parameters, scheme, failures)
        lost = int((stream.copies == 0).sum())
        rows += [
            {"scheme": scheme.name, "failure_ms": one.downtime.failure.at_ms,
             "node": one.downtime.failure.node, "resent": len(one.resent),
             "recovery_ms": one.recovery_ms, "interrupted": one.interrupted,
             "duplicates": one.duplicates, "lost": lost}
            for one in stream.recoveries
        ]  # fmt: skip
    return pd.DataFrame(rows)


def either_node(case: Sweep) -> pd.DataFrame:
    """Let each node fail at every failure time, under upstream backup and the proposal.

    One row per rate, scheme, node and trial: resent and recovery_ms, which are 0 where an idle node
    fails.
    """
    rows = []
    for rate, scheme, node in product(case.rates, (UPSTREAM, PROPOSED), NODES):
        for trial, (system, time) in enumerate(case.drawn(rate)):
            row = {"rate": rate, "scheme": scheme.name, "node": node, "trial": trial}
            rows.append(row | recovery_row(system, scheme, time, node))
    return pd.DataFrame(rows)[["rate", "scheme", "node", "trial", "resent", "recovery_ms"]]


def settings_of_hwang(
    case: Sweep, rate: float, checkpoints_ms: Sequence[float] = (10, 25, 50, 100)
) -> pd.DataFrame:
    """Recoveries of the schemes of Hwang et al. under settings that the document does not give.

    A setting is an interval of checkpoint messages, with connections opened as each scheme does or
    with all of them open. One row per setting, scheme and trial: rate, restored_ms. The first
    setting is the case's own.
    """
    rows, own = [], case.parameters
    intervals = [own.checkpoint_ms, *(ms for ms in checkpoints_ms if ms != own.checkpoint_ms)]
    opened = {"as opened": own.tcp, "all open": Tcp(handshake=False, initial_window=None)}
    for (name, tcp), ms in product(opened.items(), intervals):
        for scheme in (ACTIVE, PASSIVE, UPSTREAM):
            for trial, (system, time) in enumerate(case.drawn(rate)):
                setting = f"connections {name}, checkpoints every {ms:g} ms"
                row = {"setting": setting, "rate": rate, "scheme": scheme.name, "trial": trial}
                changed = replace(system, tcp=tcp, checkpoint_ms=ms)
                rows.append(row | recovery_row(changed, scheme, time))
    return pd.DataFrame(rows)[["setting", "rate", "scheme", "trial", "restored_ms"]]


def real_kills(kills: int, seed: int) -> pd.DataFrame:
    """Kill the primary of a real system `kills` times under each scheme, and simulate it.

    Each kill hits a system of its own, at a random moment of its stream; `seed` draws the moments.
    The simulation has the measured rate, the real intervals, and the measured time to decode and
    encode a tuple. Its results are means over failures at other moments.

    Columns scheme; kill; rate: tuples per second; lost: results that never arrived; twice: results
    that arrived more than once; requests: failures detected (more than one: a node answered too
    late); unnoticed_ms: from the kill until its request; resent: tuples sent again then;
    recovery_ms: from this request until downstream has their last result. The last three also as
    simulated (…_simulated).
    """
    ids = list(range(100_000))
    began = perf_counter()
    json.loads(json.dumps(json.loads(json.dumps(ids))))  # on its way a tuple passes two sockets
    work_us = 1e6 * (perf_counter() - began) / len(ids)

    chance, beat, rows = np.random.default_rng([seed, 5]), round(HEARTBEAT_S / PAUSE_S) * BATCH, []
    tuples = 5 * beat  # the last kill is noticed two beats later, and the stream still goes on
    for scheme in (UPSTREAM, PROPOSED):
        for kill in range(kills):
            after = int(chance.integers(beat, 2 * beat))
            delivery = deliver(scheme, tuples, [Fault("kill", "primary", after)])
            noticed = next(r for r in delivery.requests if r.unnoticed_ms is not None)
            batch_ms = 1000 * BATCH / delivery.rate
            system = Parameters(
                rate=delivery.rate, ack_ms=1000 * ACK_S, heartbeat_ms=1000 * HEARTBEAT_S,
                switching_ms=TURN * batch_ms, write_ms=batch_ms, processing_us=work_us,
                link=LOOPBACK, tcp=Tcp(handshake=False, initial_window=None),
            )  # fmt: skip
            moments = system.settling_ms + system.heartbeat_ms * (3 + np.arange(PHASES) / PHASES)
            same = [
                simulate(replace(system, phases=one), scheme, [Failure(at)]).recoveries[0]
                for at, one in zip(moments, drawn_phases(PHASES, seed), strict=True)
            ]
            unnoticed = [(one.downtime.request - one.downtime.crash) / MS for one in same]
            rows.append({
                "scheme": scheme.name, "kill": kill + 1, "rate": delivery.rate,
                "lost": tuples - len(set(delivery.released)), "twice": delivery.duplicates,
                "requests": len(delivery.requests),
                "unnoticed_ms": noticed.unnoticed_ms, "unnoticed_ms_simulated": np.mean(unnoticed),
                "resent": len(noticed.resent),
                "resent_simulated": np.mean([len(one.resent) for one in same]),
                "recovery_ms": noticed.recovery_ms,
                "recovery_ms_simulated": np.mean([one.recovery_ms for one in same]),
            })  # fmt: skip
    return pd.DataFrame(rows)
