"""A pure function over many parameter sets, as one Spark job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

Point = TypeVar("Point")
Result = TypeVar("Result")


def sweep(
    spark: SparkSession, function: Callable[[Point], Result], points: Sequence[Point]
) -> list[Result]:
    """Apply `function` to every point in parallel; results come in the order of the points.

    It and the points are pickled to the tasks. It must depend on its point alone, so that results
    do not depend on how points are spread over tasks. ValueError when there is no point.
    """
    if not points:
        raise ValueError("points must hold at least one parameter set, got none; give one")
    context = spark.sparkContext
    tasks = min(len(points), 4 * context.defaultParallelism)
    # neighbours often cost alike: deal them out in turn
    dealt = sorted(enumerate(points), key=lambda pair: pair[0] % tasks)
    found = context.parallelize(dealt, tasks).map(lambda pair: (pair[0], function(pair[1])))
    return [result for _, result in sorted(found.collect(), key=lambda pair: pair[0])]
