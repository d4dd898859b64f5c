"""Spark's classes as a file that a JVM maps into memory: each then starts some seconds sooner.

python -m aftlib.spark.archive makes it, for the Java and the Spark that are installed here (class
data sharing, JEP 350). It lies in the folder of the Python environment, and goes with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from aftlib.core.paths import flush, require_writable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BASE, SPARK = "java", "spark"
_SILENT = "-Xlog:cds=off,cds+dynamic=off"
"""An archive that does not fit is passed over without a word."""
_PATIENCE_S = 300


def archive_options(java: Path) -> list[str]:
    """Return what `java` starts with so that it uses what was made for it, if anything was."""
    files = [str(path) for path in archives(java)]
    return [_SILENT, f"-XX:SharedArchiveFile={os.pathsep.join(files)}"] if files else []


def home() -> Path:
    """Return the folder of archives."""
    return Path(sys.prefix) / "share" / "aftlib"


def archives(java: Path) -> list[Path]:
    """Return what there is for `java`, its own classes first.

    A file that is not as long as it was is left out: a JVM crashes on one that was cut.
    """
    found = [path for name in (BASE, SPARK) for path in home().glob(f"{name}-{_key(java)}-*.jsa")]
    return [path for path in found if path.stem.endswith(f"-{path.stat().st_size}")]


def make(java: Path) -> list[Path]:
    """Make the archives of `java` in place of others, and return them; none where it cannot.

    A Java that came without an archive of its own classes has that made, too. A session runs in
    this process meanwhile; a ValueError says that there is one already.
    """
    from pyspark import SparkContext

    from aftlib.spark.session import environment, session

    if SparkContext._active_spark_context is not None:
        raise ValueError("a session is running, which must not become the archive's: stop it first")
    folder = require_writable(home())
    for old in folder.glob("*.jsa"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        draft = Path(scratch) / "draft"
        if not (java.parent.parent / "lib" / "server" / "classes.jsa").exists():
            dump = [str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"]
            subprocess.run(dump, check=False, capture_output=True, timeout=_PATIENCE_S)
            _keep(BASE, java, draft)
        own = os.environ.get("SPARK_SUBMIT_OPTS", "")
        kept = f"{own} {_SILENT} -XX:ArchiveClassesAtExit={draft}"
        with environment(SPARK_SUBMIT_OPTS=kept):
            spark = session("archive")
        rehearse(spark, Path(scratch))
        jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
        jvm.stdin.close()  # it ends, and writes what it has loaded
        jvm.wait(_PATIENCE_S)
        _keep(SPARK, java, draft)
    return archives(java)


def rehearse(spark: SparkSession, scratch: Path) -> None:
    """Do a little of all that notebooks ask of Spark, so that its classes are loaded."""
    from pyspark.sql import functions as f

    from aftlib.spark.drain import drain

    place = str(scratch / "rows")
    spark.range(0, 100, 1, 2).withColumn("key", f.col("id") % 7).write.parquet(place)
    rows, stream = spark.read.parquet(place), spark.readStream.schema("id long, key long")
    rows.groupBy("key").agg(f.sum("id"), f.count("id")).toPandas()
    rows.repartition(2, "key").mapInArrow(lambda parts: parts, rows.schema).toArrow()
    spark.sparkContext.parallelize([0, 1], 2).map(str).collect()
    counted = stream.parquet(place).groupBy("key").count().writeStream.outputMode("complete")
    drain(counted, scratch, lambda batch, _: batch.toArrow())


def _keep(name: str, java: Path, draft: Path) -> None:
    """Give what a JVM has written its name, where it could."""
    if draft.exists():
        flush(draft)
        draft.rename(home() / f"{name}-{_key(java)}-{draft.stat().st_size}.jsa")


@cache
def _key(java: Path) -> str:
    """Of this Java and Spark's jars; where one is renewed, there is no archive until it is made."""
    spark = find_spec("pyspark")
    jars = sorted(Path(spark.origin).parent.glob("jars/*.jar")) if spark and spark.origin else []
    stats = [(str(path), path.stat()) for path in (java, *jars)]
    told = repr([(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats])
    return sha256(told.encode()).hexdigest()[:16]


if __name__ == "__main__":
    from aftlib.spark.java import find_java

    usual = find_java().home / "bin" / "java"
    if not any(path.name.startswith(SPARK) for path in archives(usual)):
        make(usual)
