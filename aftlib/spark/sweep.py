"""Work that is the same but for its number or its parameters, as one Spark job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

Point = TypeVar("Point")
Result = TypeVar("Result")


def by_number(
    spark: SparkSession,
    numbers: int,
    work: Callable[[int], Iterator[pa.RecordBatch]],
    schema: str,
    tasks: int | None = None,
    barrier: bool = False,
) -> DataFrame:
    """Frame of what `work` yields for each number from 0 on, by default a Spark task each."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(number)

    spread = spark.range(0, numbers, 1, tasks or numbers)
    return spread.mapInArrow(each, schema, barrier=barrier)


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
