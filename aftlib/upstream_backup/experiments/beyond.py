"""What D4 leaves for later: unequal nodes, operators that need order, failures in a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from aftlib.spark.sweep import sweep
from aftlib.upstream_backup.experiments.cases import Case
from aftlib.upstream_backup.failures import Failure
from aftlib.upstream_backup.ordering import aggregate, join, sorting
from aftlib.upstream_backup.parameters import NODES, Parameters
from aftlib.upstream_backup.schemes import PROPOSED, SCHEMES, UPSTREAM, Scheme
from aftlib.upstream_backup.simulation import simulate

WINDOW, LAG = 100, 10
"""Tuples of an aggregate's window, and between the partners of a join."""

SharePoint = tuple[Parameters, str, Sequence[float]]


def unequal_nodes(
    spark: SparkSession, case: Case, rate: float, secondary_us: float, shares: Sequence[float]
) -> pd.DataFrame:
    """A slower secondary, and how the primary's share of the stream makes up for it.

    Parameters
    ----------
    spark : SparkSession
    case : Case
        Its failure times and parameters.
    rate : float
    secondary_us : float
        What the secondary takes for a tuple.
    shares : sequence of float
        Of the tuples that go to the primary.

    Returns
    -------
    DataFrame
        share, failed: node, resent and recovery_ms: means over the failure times; primary_load,
        secondary_load: share of its time that each node works while nothing fails.
    """
    system = replace(case.at(rate), secondary_us=secondary_us)
    points: list[SharePoint] = [
        (replace(system, share=share), node, case.failures_ms.tolist())
        for share in shares
        for node in NODES
    ]
    return pd.DataFrame(sweep(spark, _unequal, points))


def matching_share(parameters: Parameters) -> float:
    """The share that gives both nodes the same load: in proportion to their speeds."""
    primary, secondary = (parameters.cost_ns(node) for node in NODES)
    return secondary / (primary + secondary)


def _unequal(point: SharePoint) -> dict[str, object]:
    parameters, node, times = point
    runs = [simulate(parameters, PROPOSED, [Failure(time, node)]) for time in times]
    found = [run.recoveries[0] for run in runs]
    shares = parameters.share, 1 - parameters.share
    loads = [
        parameters.rate * share * parameters.cost_ns(name) / 1e9
        for share, name in zip(shares, NODES, strict=True)
    ]
    return {
        "share": parameters.share,
        "failed": node,
        "resent": float(np.mean([len(one.resent) for one in found])),
        "recovery_ms": float(np.mean([one.recovery_ms for one in found])),
        "primary_load": loads[0],
        "secondary_load": loads[1],
    }


def orders(case: Case, rate: float, window: int = WINDOW, lag: int = LAG) -> pd.DataFrame:
    """What out-of-order results do to operators after a failure of the primary, for each scheme.

    Returns
    -------
    DataFrame
        scheme, operator, then means over the case's failures: wrong: outputs that are wrong
        without sorting, delay_ms: what sorting adds to an output, and of sorting itself late:
        results that it has to move, waiting: held back at the same time at most, longest_ms: held
        back at most. A filter needs none of it.
    """
    rows = [
        {"scheme": scheme.name, "operator": name} | row
        for scheme in SCHEMES.values()
        for time in case.failures_ms.tolist()
        for name, row in _operators(case.at(rate), scheme, time, window, lag)
    ]
    return pd.DataFrame(rows).groupby(["scheme", "operator"], sort=False).mean().reset_index()


def _operators(
    parameters: Parameters, scheme: Scheme, failure_ms: float, window: int, lag: int
) -> Iterator[tuple[str, dict[str, float]]]:
    delivered = simulate(parameters, scheme, [Failure(failure_ms)]).delivered
    cost = sorting(delivered)
    moved = {"late": cost.late, "waiting": cost.waiting, "longest_ms": cost.longest_ms}
    for name, found in (
        ("aggregate", aggregate(delivered, window)),
        ("join", join(delivered, lag, memory=lag)),
    ):
        yield name, {"wrong": found.wrong, "delay_ms": found.delay_ms, **moved}


def in_a_row(case: Case, rate: float, nodes: Sequence[str]) -> pd.DataFrame:
    """Nodes that fail one after the other, each when the last one is back and has settled.

    Returns
    -------
    DataFrame
        scheme, failure_ms, node, resent, recovery_ms, duplicates, lost: results that never came in
        the whole run (0), of `nodes` in order for upstream backup and for the proposal.
    """
    parameters, rows = case.at(rate), []
    apart = parameters.repair_ms + 2 * parameters.heartbeat_ms + 2 * parameters.settling_ms
    first = float(case.failures_ms[0])
    failures = [Failure(first + i * (apart + 7.3), node) for i, node in enumerate(nodes)]
    for scheme in (UPSTREAM, PROPOSED):
        run = simulate(parameters, scheme, failures)
        for failure, found in zip(failures, run.recoveries, strict=True):
            rows.append(
                {
                    "scheme": scheme.name,
                    "failure_ms": failure.at_ms,
                    "node": failure.node,
                    "resent": len(found.resent),
                    "recovery_ms": found.recovery_ms,
                    "duplicates": found.duplicates,
                    "lost": int((run.copies == 0).sum()),
                }
            )
    return pd.DataFrame(rows)
