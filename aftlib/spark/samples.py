"""Seeded samples of a model, written by Spark tasks as a sensor log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from aftlib.core.checks import require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import draw_range
from aftlib.core.paths import atomic_directory
from aftlib.core.sensorlog import ROWS_PER_RANGE, SensorLog, rows_of, write_manifest, write_part
from aftlib.spark.machines import require_shared
from aftlib.spark.sweep import by_number


def write_samples(
    spark: SparkSession, model: GaussianModel, rows: int, seed: int, path: Path | str
) -> SensorLog:
    """Draw rows of the model in Spark tasks and keep them as a log; reuse it when it is there.

    Every row range has its own random stream (`generators.draw`), so the files are the same bytes
    however Spark cuts the work. ValueError when `rows` is no whole number from 1, or `seed`
    none from 0, `path` holds a log of other parameters, or not all machines of a cluster share it.
    """
    require_number("rows", rows, least=1, whole=True)
    require_number("seed", seed, least=0, whole=True)
    about = {"rows": rows, "seed": seed, "model": model.digest().hexdigest()[:16]}
    if Path(path).exists():
        log = SensorLog.open(path)
        if log.about != about:
            raise ValueError(
                f"path holds a log of {log.about}, got a request for {about}; "
                "give another path or delete the directory"
            )
        return log
    require_shared(spark, Path(path).parent)
    ranges = -(-rows // ROWS_PER_RANGE)
    with atomic_directory(Path(path)) as scratch:

        def write(index: int) -> Iterator[pa.RecordBatch]:
            part = rows_of(index, rows)
            values = draw_range(model, seed, index)[: part.stop - part.start]
            write_part(scratch, index, values, model.names)
            yield pa.RecordBatch.from_pydict({"id": [index]})

        tasks = min(ranges, 4 * spark.sparkContext.defaultParallelism)
        written = by_number(spark, ranges, write, "id long", tasks).count()
        if written != ranges:
            raise RuntimeError(f"wrote {written} of {ranges} row ranges; run again")
        write_manifest(scratch, model.names, rows, about)
    return SensorLog.open(path)
