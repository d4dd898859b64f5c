"""What fault tolerance costs while nothing fails: D1's stream, D2's checkpoints.

python -m benchmarks pipeline
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from aftlib import recoverable
from aftlib.core.gaussian import GaussianModel
from aftlib.documents.checkpoint_planning.state import Checkpoint, CheckpointStore, IntervalRecord
from aftlib.spark.session import session
from benchmarks.timing import best_of
from benchmarks.turns import SETTINGS, Turns, Windows, mean_of, promise_of, summarize

COMMITS = 300
SENSORS, SAMPLES = 20, (100_000, 1_000_000)
"""D1's stream: samples of one sensor per window, so 2 and 20 million rows per micro-batch."""
TURNS, SKIPPED = 15, 3
"""Windows of each system, in turn, and those of them that are left out: Spark loads its code."""


def run() -> dict:
    """Seconds with and without fault tolerance, and their ratios."""
    spark = session("benchmark", **SETTINGS)
    known = [known_model(spark, samples) for samples in SAMPLES]
    spark.stop()
    with tempfile.TemporaryDirectory(prefix="aft-") as name:
        return {"known_model": known, "durable_checkpoint": durable_checkpoint(Path(name))}


def known_model(spark: SparkSession, samples: int) -> dict:
    """D1's stream, whose workers may fail, against Spark's windowed mean of the same files."""
    names = [f"s{i}" for i in range(SENSORS)]
    covariance = 0.5 + 0.01 * np.eye(SENSORS)
    model = GaussianModel(np.zeros(SENSORS), covariance, names)
    promise = promise_of(SENSORS, samples, model=model)
    with tempfile.TemporaryDirectory(prefix="aft-") as name, Turns(spark, Path(name)) as turns:
        turns.start(
            {
                "plain_spark": mean_of,
                "recoverable": lambda stream: recoverable(stream, promise, group="site"),
            }
        )
        times = [turns.give(Windows(1, SENSORS, samples, first)) for first in range(TURNS)]
    summary = summarize(pd.DataFrame(times[SKIPPED:]))
    return {
        "rows_per_micro_batch": SENSORS * samples,
        "speed_to_plain_spark": summary["speed"]["recoverable/plain_spark"]["median"],
        **summary,
    }


def durable_checkpoint(place: Path) -> dict:
    """Milliseconds of a committed checkpoint of D2, and of an fsync of the bytes that it adds."""
    n = 100
    store = CheckpointStore(place / "store")
    log = place / "store" / "state.sqlite-wal"
    commits, syncs = [], []
    with (place / "bytes").open("wb") as file:
        for batch in range(COMMITS):
            sums = np.full(n, float(batch))
            counts = np.full(n, batch, dtype=np.int64)
            checkpoint = Checkpoint(0, batch, sums, counts, np.zeros(n), (0, 10_000), "")
            record = IntervalRecord(batch, batch, batch + 1, False, n, 0.0, 0.0, 0.0)
            before = log.stat().st_size
            commits.append(best_of(1, partial(store.commit, checkpoint, None, record))[0])
            file.write(bytes(max(log.stat().st_size - before, 4096)))
            file.flush()
            syncs.append(best_of(1, partial(os.fsync, file.fileno()))[0])
    return {
        "commits": COMMITS,
        "commit_ms": 1e3 * median(commits),
        "fsync_ms": 1e3 * median(syncs),
        "times_an_fsync": median(commits) / median(syncs),
    }
