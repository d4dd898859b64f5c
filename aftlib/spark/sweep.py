"""Numbered work, or one function over many parameters, as one Spark job.

`by_number` runs numbered work, `sweep` applies a function to many points, `require_shared` checks
from tasks that all machines share a folder, and `write_samples` writes seeded samples of a model.
"""

from __future__ import annotations

import fcntl
import os
import platform
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from aftlib.core.checks import require_number
from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import draw_range
from aftlib.core.paths import atomic_directory
from aftlib.core.sensorlog import ROWS_PER_RANGE, SensorLog, rows_of, write_manifest, write_part

Point = TypeVar("Point")
Result = TypeVar("Result")


def by_number(
    spark: SparkSession,
    numbers: int,
    work: Callable[[int], Iterator[pa.RecordBatch]],
    schema: str | StructType,
    tasks: int | None = None,
    barrier: bool = False,
) -> DataFrame:
    """Frame of the results of `work` for 0 … `numbers` − 1, by default one task for each."""

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

    `function` and the points are pickled to the tasks. `function` must depend on its point alone,
    so that results do not depend on how points are spread over tasks. ValueError when there is no
    point.
    """
    if not points:
        raise ValueError("points must hold at least one parameter set, got none; give one")
    context = spark.sparkContext
    tasks = min(len(points), 4 * context.defaultParallelism)
    # neighbours often cost alike: deal them out in turn
    pairs = sorted(enumerate(points), key=lambda pair: pair[0] % tasks)
    results = context.parallelize(pairs, tasks).map(lambda pair: (pair[0], function(pair[1])))
    return [result for _, result in sorted(results.collect(), key=lambda pair: pair[0])]


_SHARED: set[tuple[str, Path]] = set()
"""Application and folder of each folder that was found to be shared."""
_OTHERS: dict[str, set[str]] = {}
"""Hosts that are other machines, by application."""
_SCHEMA = "machine string, host string, trouble string"


def require_shared(spark: SparkSession, *folders: Path | str) -> None:
    """Refuse a folder that not all machines of the cluster share; a local master accepts any.

    Tasks check it once per application: they must read the driver's file there, write
    another one, and find the driver's lock held. Folders are made when missing; folders inside a
    checked one are not checked again. The ValueError names the fault and the machine.
    """
    if is_local(spark):
        return
    temporary = Path(tempfile.gettempdir()).resolve()
    for folder in (Path(folder).resolve() for folder in folders):
        place = temporary if folder.is_relative_to(temporary) else folder
        known = {at for app, at in _SHARED if app == spark.sparkContext.applicationId}
        if known & {place, *place.parents}:
            continue
        for _, host, trouble in look_from_tasks(spark, place):
            if trouble:
                raise ValueError(
                    f"folder must be one that all machines of {spark.sparkContext.master} share, "
                    f"got {str(place)!r}, which {host} {trouble}: name a folder on shared storage "
                    "with locks, such as NFS 4; for temporary folders set TMPDIR to such a folder"
                )
        _SHARED.add((spark.sparkContext.applicationId, place))


def other_machines(spark: SparkSession) -> set[str]:
    """Hosts of tasks that ran on another machine than this process, found once per application."""
    if is_local(spark):
        return set()
    application = spark.sparkContext.applicationId
    if application not in _OTHERS:
        rows = look_from_tasks(spark, Path(tempfile.gettempdir()))
        _OTHERS[application] = {host for machine, host, _ in rows if machine != this_machine()}
    return _OTHERS[application]


def look_from_tasks(spark: SparkSession, folder: Path) -> list[tuple[str, str, str]]:
    """Return for each task its machine, its host, and the folder's fault there (empty if none).

    There are twice as many tasks as the cluster runs at once, so that each executor gets some.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tasks, token = 2 * spark.sparkContext.defaultParallelism, secrets.token_hex(16)
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".aft-shared-") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(token)
        file.flush()
        os.fsync(file.fileno())
        path = Path(file.name)

        def look(index: int) -> Iterator[pa.RecordBatch]:
            row = this_machine(), platform.node(), find_trouble(path, token, index)
            names = ["machine", "host", "trouble"]
            yield pa.RecordBatch.from_arrays([[each] for each in row], names=names)

        return [tuple(row) for row in by_number(spark, tasks, look, _SCHEMA).collect()]


def find_trouble(path: Path, token: str, index: int) -> str:
    """Fault that prevents work next to a file that another process holds locked; empty if none."""
    mine = path.with_name(f"{path.name}-{index}")
    try:
        if path.read_text() != token:
            return "sees with something else in it"
        mine.write_text(token)
        mine.unlink()
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return "sees, but without the driver's lock"
    except BlockingIOError:
        return ""
    except OSError as error:
        with suppress(OSError):
            mine.unlink()
        return f"cannot read and write ({error.strerror})"


def this_machine() -> str:
    """Return a name that only this machine has: its kernel's boot id, or else its host name."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else platform.node()


def is_local(spark: SparkSession) -> bool:
    """Whether all tasks run in this machine's one process of Spark."""
    return str(spark.sparkContext.master).startswith("local")


def write_samples(
    spark: SparkSession, model: GaussianModel, rows: int, seed: int, path: Path | str
) -> SensorLog:
    """Draw rows of the model in Spark tasks and store them as a log; reuse a log that exists.

    Every row range has its own random stream (`generators.draw`), so the files are the same bytes
    however Spark splits the work. ValueError when `rows` is no whole number ≥ 1, `seed` is no whole
    number ≥ 0, `path` holds a log of other parameters, or not all machines of a cluster share it.
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
        by_number(spark, ranges, write, "id long", tasks).count()
        write_manifest(scratch, model.names, rows, about)
    return SensorLog.open(path)
