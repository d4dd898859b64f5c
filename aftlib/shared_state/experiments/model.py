"""D3 figs 5 and 6 beyond this machine: modelled from measured costs and the exact imbalance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aftlib.shared_state.scaling import MergeCosts, ShuffleCosts, expected_states, load_imbalance
from aftlib.shared_state.stream.tuples import TupleStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Costs = ShuffleCosts | MergeCosts


def fitted(frame: pd.DataFrame) -> dict[tuple[str, float], Costs]:
    """Costs of each strategy at each skew: medians over the runs of `measured`.

    A tuple's costs are those of a single task, which shares the machine with nobody. What merging
    a sum costs is taken where there are most of them, at the least skew.
    """
    costs: dict[tuple[str, float], Costs] = {}
    alone = frame[frame["tasks"] == frame.groupby(["strategy", "skew"])["tasks"].transform("min")]
    for strategy, rows in alone.groupby("strategy"):
        uniform = rows[rows["skew"] == rows["skew"].min()]
        merge_s = float((uniform["merge_s"] / uniform["states"]).median())
        for skew, at in rows.groupby("skew").median(numeric_only=True).iterrows():
            if np.isfinite(at["sender_s"]):
                fixed = at["seconds"] - at["sender_s"] - at["receiver_s"]
                sender, receiver = at["sender_s"] / at["tuples"], at["receiver_s"] / at["tuples"]
                cost: Costs = ShuffleCosts(max(0.0, fixed), sender, receiver)
            else:
                work = at["read_s"] + at["parse_s"] + at["sum_s"]
                fixed = max(0.0, at["seconds"] - work - at["merge_s"])
                cost = MergeCosts(fixed, work / at["tuples"], merge_s)
            costs[str(strategy), skew] = cost  # type: ignore[index]
    return costs


def imbalances(
    spark: SparkSession, streams: Sequence[TupleStream], tasks: Sequence[int]
) -> pd.DataFrame:
    """Largest task over the mean behind Spark's own shuffle, from each key's exact share.

    Columns skew, tasks, imbalance, and top1: share of the most frequent key.
    """
    rows = []
    for stream in streams:
        hashed = spark_hashes(spark, stream.ids)
        for p in tasks:
            imbalance = load_imbalance(stream.shares, hashed % p, p)
            top1 = float(stream.shares.max())
            rows.append({"skew": stream.skew, "tasks": p, "imbalance": imbalance, "top1": top1})
    return pd.DataFrame(rows)


def spark_hashes(spark: SparkSession, keys: np.ndarray) -> np.ndarray:
    """What Spark's `repartition` goes by, for each key, shape (keys,): its task is that mod p."""
    ranked = spark.createDataFrame(pd.DataFrame({"rank": range(len(keys)), "key": keys}))
    table = ranked.selectExpr("rank", "hash(key) AS hash").toPandas().sort_values("rank")
    return table["hash"].to_numpy(np.int64)


def modelled(
    costs: Mapping[tuple[str, float], Costs],
    imbalance: pd.DataFrame,
    streams: Sequence[TupleStream],
    tuples: int,
    pipelined: bool = False,
) -> pd.DataFrame:
    """Throughput of every strategy for `tuples` tuples at each parallelism of `imbalance`.

    Columns strategy, skew, tasks, throughput.
    """
    by_skew = {stream.skew: stream for stream in streams}
    rows = []
    for (strategy, skew), cost in costs.items():
        loads = imbalance[imbalance["skew"] == skew].set_index("tasks")["imbalance"]
        for tasks, load in zip(loads.index.tolist(), loads.tolist(), strict=True):
            if isinstance(cost, ShuffleCosts):
                speed = cost.throughput(tuples, tasks, load / tasks, pipelined)
            else:
                states = expected_states(by_skew[skew].shares, tuples // tasks)
                speed = cost.throughput(tuples, tasks, states)
            rows.append((strategy, skew, tasks, speed))
    return pd.DataFrame(rows, columns=["strategy", "skew", "tasks", "throughput"])


def calibrated(
    measured: pd.DataFrame,
    costs: Mapping[tuple[str, float], Costs],
    imbalance: pd.DataFrame,
    streams: Sequence[TupleStream],
) -> pd.DataFrame:
    """The model beside what was measured, for the same number of tuples and tasks.

    The costs come from the least parallelism, so there the two agree more or less by construction;
    at the others it is seen how far the model may be trusted. Columns strategy, skew, tasks,
    measured (median) and modelled throughput, and ratio: modelled over measured.
    """
    at = ["strategy", "skew", "tasks"]
    middle = measured.groupby(at, as_index=False)[["tuples", "throughput"]].median()
    model = modelled(costs, imbalance, streams, int(middle["tuples"].iloc[0]))
    both = middle.merge(model, on=at, how="inner", suffixes=("_measured", "_modelled"))
    both["ratio"] = both["throughput_modelled"] / both["throughput_measured"]
    names = {"throughput_measured": "measured", "throughput_modelled": "modelled"}
    return both.drop(columns="tuples").rename(columns=names)


def costs_table(
    costs: Mapping[tuple[str, float], Costs], streams: Sequence[TupleStream], tuples: int
) -> pd.DataFrame:
    """Measured costs in nanoseconds, b, and where growth ends: strategy, skew, ….

    `ends_at` is 1 / (b · top1) behind a shuffle (infinite where the senders are the limit), and
    the best parallelism where sums are merged one after another.
    """
    by_skew = {stream.skew: stream for stream in streams}
    rows = []
    for (strategy, skew), cost in costs.items():
        stream = by_skew[skew]
        row = {"strategy": strategy, "skew": skew, "fixed_s": cost.fixed_s}
        if isinstance(cost, ShuffleCosts):
            row |= {"sender_ns": 1e9 * cost.sender_s, "receiver_ns": 1e9 * cost.receiver_s}
            row |= {"b": cost.receiver_share}
            row |= {"ends_at": cost.saturation(float(stream.shares.max()))}
        else:
            states = expected_states(stream.shares, tuples)
            row |= {"sender_ns": 1e9 * cost.tuple_s, "merge_ns": 1e9 * cost.merge_s}
            row |= {"ends_at": cost.best_tasks(tuples, states)}
        rows.append(row)
    return pd.DataFrame(rows)
