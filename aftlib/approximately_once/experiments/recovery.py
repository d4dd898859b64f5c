"""What a recovery costs: one stream undisturbed, recovered approximately and exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from aftlib.approximately_once.master import Outage
from aftlib.approximately_once.pipeline import Query, Run, run


def recovery_cost(
    spark: SparkSession, query: Query, directory: Path, outage: Outage
) -> tuple[pd.DataFrame, dict[str, Run]]:
    """The same stream undisturbed, recovered approximately, and recovered exactly.

    Parameters
    ----------
    spark : SparkSession
    query : Query
    directory : path
        New directory for the three runs.
    outage : Outage
        The worker killed and its steps.

    Returns
    -------
    table : DataFrame
        recovery, seconds of the micro-batch with the kill, samples from before the failure that
        were read again, aggregates estimated, share of estimates within ε of the undisturbed run,
        and the largest difference from it among all that was not estimated.
    runs : dict of str to Run
    """
    exact = replace(query, exact=True)
    plans = {"none": (query, []), "approximate": (query, [outage]), "exact": (exact, [outage])}
    runs = {name: run(spark, q, directory / name, o) for name, (q, o) in plans.items()}
    truth = runs["none"].windows.set_index(["start", "key"])["value"]
    rows = [_cost(name, done, truth, query, outage) for name, done in runs.items()]
    return pd.DataFrame(rows), runs


def _cost(name: str, done: Run, truth: pd.Series, query: Query, outage: Outage) -> dict:
    struck = done.shifts[
        (done.shifts.start <= outage.failure) & (outage.failure < done.shifts.stop)
    ]
    own = struck[struck.worker == outage.worker].iloc[0]
    found = done.windows.set_index(["start", "key"])
    guessed = found[found.estimated]
    off = (guessed["value"] - truth.reindex(guessed.index)).abs()
    keys = len(query.assignment.workers[outage.worker])
    return {
        "recovery": name,
        "batch_seconds": own.tasks_s,
        "samples_read_again": max(0, int(outage.failure - own.begin)) * keys if own.attempt else 0,
        "aggregates_estimated": len(guessed),
        "within_epsilon": float((off <= query.requirement.epsilon).mean()) if len(off) else np.nan,
        "largest_other_difference": float((found[~found.estimated]["value"] - truth).abs().max()),
    }
