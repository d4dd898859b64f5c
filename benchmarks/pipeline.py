"""The streaming pipeline against the same aggregation in plain Spark, and what recovery costs."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from aftlib.approximately_once import experiments
from aftlib.approximately_once.assignment import assign_spread
from aftlib.approximately_once.master import Outage
from aftlib.approximately_once.pipeline import Query, recover_stream
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.samples import write_samples
from aftlib.spark.session import session

STEPS, WIDTH, M, REPEATS = 200_000, 100, 10, 3


def run() -> dict:
    """Rows (samples) per second both ways, the recovery table, and the grid's seconds."""
    spark = session("benchmark")
    with tempfile.TemporaryDirectory(prefix="aft-") as name:
        place, model = Path(name), block_model()
        log = write_samples(spark, model, STEPS, 1, place / "log")
        requirement, windows = Requirement(0.1, 0.05), Windows(WIDTH, WIDTH)
        means = model.aggregate(WIDTH)
        assignment = assign_spread(means, M, requirement)
        query = Query(log, windows, means, assignment, requirement, every=STEPS // 4)
        plain_spark(spark, log, WIDTH)  # warm
        recover_stream(spark, query, place / "warm")
        ours = [timed(recover_stream, spark, query, place / f"run{i}") for i in range(REPEATS)]
        plain = [timed(plain_spark, spark, log, WIDTH) for _ in range(REPEATS)]
        outage = Outage(3, int(0.7 * STEPS), int(0.7 * STEPS) + 2 * WIDTH)
        cost, _ = experiments.recovery_cost(spark, query, place / "cost", [outage])
        return {
            "samples": STEPS * 120,
            "pipeline_rows_per_second": STEPS * 120 / median(ours),
            "plain_spark_rows_per_second": STEPS * 120 / median(plain),
            "ratio_pipeline_to_plain": median(plain) / median(ours),
            "recovery": json.loads(cost.to_json(orient="records")),
            "grid_seconds": grid_seconds(spark, place),
        }


def timed(call, *arguments) -> float:  # noqa: ANN001, ANN002
    """Seconds of one call."""
    began = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began


def plain_spark(spark: SparkSession, log: SensorLog, width: int) -> None:
    """The window means of every key by Spark's own aggregation, written as Parquet."""
    wide = spark.read.parquet(*map(str, sorted(log.path.glob("*.parquet"))))
    means = [f.avg(name).alias(name) for name in log.names]
    out = wide.groupBy(f.floor(f.col("step") / width).alias("window")).agg(*means)
    with tempfile.TemporaryDirectory(prefix="aft-") as name:
        out.write.parquet(f"{name}/out")


def grid_seconds(spark: SparkSession, place: Path) -> float:
    """The (ε, m) grid of figs 10–13 with the notebook's defaults, Spark already running."""
    case = experiments.block_case(
        spark, place, dimensions=120, blocks=10, rows=1000, replications=20, seed=1,
        windows=Windows(3, 1),
    )  # fmt: skip
    return timed(experiments.grid, spark, case, experiments.ROWS, 0.05, 1)
