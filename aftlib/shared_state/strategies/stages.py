"""What Spark says a job's stages cost: the measured price of a shuffle's two sides."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def stage_seconds(spark: SparkSession) -> Iterator[list[float]]:
    """List that holds, after the block, the run time of each stage that ran in it.

    Yields
    ------
    list of float
        Seconds of all tasks of a stage together, in the order of the stages; a stage that Spark
        skipped is not there.
    """
    context, group, found = spark.sparkContext, uuid.uuid4().hex, []  # type: ignore[var-annotated]
    context.setJobGroup(group, "timed")
    try:
        yield found
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup(group))]
    stages = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
    attempts = [store.lastStageAttempt(stage) for stage in stages]
    found += [a.executorRunTime() / 1e3 for a in attempts if a.status().toString() == "COMPLETE"]
