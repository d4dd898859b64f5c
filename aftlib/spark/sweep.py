"""One Spark job per call: numbered work, one function over many points, seeded samples as a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import draw_range
from aftlib.core.sensorlog import ROWS_PER_RANGE, SensorLog, rows_of, write_manifest, write_part
from aftlib.core.storage import atomic_directory

Point = TypeVar("Point")
Result = TypeVar("Result")


def by_number(
    spark: SparkSession,
    numbers: int,
    work: Callable[[int], Iterator[pa.RecordBatch]],
    schema: str | StructType,
    tasks: int | None = None,
) -> DataFrame:
    """Frame of the results of `work` for 0 … `numbers` − 1, by default one task for each."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(number)

    spread = spark.range(0, numbers, 1, tasks or numbers)
    return spread.mapInArrow(each, schema)


def sweep(
    spark: SparkSession, function: Callable[[Point], Result], points: Sequence[Point]
) -> list[Result]:
    """Apply `function` to every point in parallel; results come in the order of the points.

    `function` and the points are pickled to the tasks. `function` must depend on its point alone,
    so that results do not depend on how points are spread over tasks.
    """
    context = spark.sparkContext
    tasks = min(len(points), 4 * context.defaultParallelism) or None
    return context.parallelize(points, tasks).map(function).collect()


def write_samples(
    spark: SparkSession, model: GaussianModel, rows: int, seed: int, path: Path | str
) -> SensorLog:
    """Draw rows of the model in Spark tasks and store them as a log; reuse a log that exists.

    Every row range has its own random stream (`generators.draw`), so the files are the same bytes
    however Spark splits the work. ValueError when `path` holds a log of other parameters.
    """
    about = {"rows": rows, "seed": seed, "model": model.digest().hexdigest()[:16]}
    if Path(path).exists():
        log = SensorLog.open(path)
        if log.about != about:
            raise ValueError(
                f"path holds a log of {log.about}, got a request for {about}; "
                "give another path or delete the directory"
            )
        return log
    ranges = -(-rows // ROWS_PER_RANGE)
    with atomic_directory(Path(path)) as scratch:

        def write(index: int) -> Iterator[pa.RecordBatch]:
            part = rows_of(index, rows)
            values = draw_range(model, seed, index)[: part.stop - part.start]
            write_part(scratch, index, values, model.names)
            yield pa.RecordBatch.from_pydict({"id": [index]})

        tasks = min(ranges, 4 * spark.sparkContext.defaultParallelism)
        by_number(spark, ranges, write, "id long", tasks).count()
        write_manifest(scratch, model.names, rows, about)
    return SensorLog.open(path)
