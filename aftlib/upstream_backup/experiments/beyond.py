"""What D4 leaves for later: unequal nodes, operators that need order, failures in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.core.checks import with_value
from aftlib.spark.sweep import sweep
from aftlib.upstream_backup.experiments.recoveries import Sweep
from aftlib.upstream_backup.failures import Failure
from aftlib.upstream_backup.ordering import aggregate, join, sorting
from aftlib.upstream_backup.parameters import NODES, Parameters
from aftlib.upstream_backup.recursion import simulate
from aftlib.upstream_backup.schemes import PROPOSED, SCHEMES, UPSTREAM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW, LAG = 100, 10
"""Tuples of an aggregate's window, and between the partners of a join."""

SharePoint = tuple[float, str, Sequence[tuple[Parameters, float]]]


def unequal_nodes(
    spark: SparkSession, case: Sweep, rate: float, secondary_us: float, shares: Sequence[float]
) -> pd.DataFrame:
    """A slower secondary, and how the primary's share of the stream makes up for it.

    `case` gives failure times and parameters, `secondary_us` is the slower node's time for a tuple,
    `shares` are of the tuples that go to the primary. Rows: share, failed (node), resent and
    recovery_ms (means over the failure times), primary_load and secondary_load (share of its time
    that each node works while nothing fails).
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
    streams = [simulate(one, PROPOSED, [Failure(time, node)]) for one, time in drawn]
    found = [stream.recoveries[0] for stream in streams]
    system, parts = drawn[0][0], dict(zip(NODES, (share, 1 - share), strict=True))
    return {
        "share": share,
        "failed": node,
        "resent": float(np.mean([len(one.resent) for one in found])),
        "recovery_ms": float(np.mean([one.recovery_ms for one in found])),
    } | {
        f"{name}_load": system.rate * part * system.cost_ns(name) / 1e9
        for name, part in parts.items()
    }


def orders(case: Sweep, rate: float, window: int = WINDOW, lag: int = LAG) -> pd.DataFrame:
    """What out-of-order results do to operators after a failure of the primary, for each scheme.

    scheme, operator, then means over the case's failures: wrong: outputs that are wrong without
    sorting, delay_ms: what sorting adds to an output, and of sorting itself late: results that it
    has to move, waiting: held back at the same time at most, longest_ms: held back at most. A
    filter needs none of it.
    """
    rows = []
    least_ms = 2000 * (window + 1) / rate  # two windows, at any rate
    for scheme in SCHEMES.values():
        for system, time in case.drawn(rate):
            failure = Failure(max(time, least_ms))
            delivered = simulate(system, scheme, [failure]).delivered
            cost = sorting(delivered)
            moved = {"late": cost.late, "waiting": cost.waiting, "longest_ms": cost.longest_ms}
            operators = {
                "aggregate": aggregate(delivered, window),
                "join": join(delivered, lag, memory=lag),
            }
            for name, found in operators.items():
                row = {"scheme": scheme.name, "operator": name, "wrong": found.wrong}
                rows.append(row | {"delay_ms": found.delay_ms} | moved)
    return pd.DataFrame(rows).groupby(["scheme", "operator"], sort=False).mean().reset_index()


def in_a_row(case: Sweep, rate: float, nodes: Sequence[str]) -> pd.DataFrame:
    """Nodes that fail one after the other, each when the last one is back and has settled.

    Of `nodes` in order, for upstream backup and for the proposal: scheme, failure_ms, node, resent,
    recovery_ms, interrupted (the survivor died before the end of it), duplicates, lost (results
    that never came in the whole stream: 0).
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
