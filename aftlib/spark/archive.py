"""Make the archive of Spark's classes, which a JVM maps into memory to start some seconds sooner.

``python -m aftlib.spark.archive`` makes it for the Java and the Spark that are installed, by class
data sharing (JEP 350). Another Java starts without an archive until this command has run with it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from aftlib.core.storage import flush, require_writable
from aftlib.spark.java import (
    BASE,
    SILENT,
    SPARK,
    Java,
    archive_folder,
    archive_stem,
    archives,
    find_java,
)
from aftlib.spark.session import environment, session
from aftlib.spark.streams import drain

_PATIENCE_S = 300


def make(java: Java) -> list[Path]:
    """Make the archives of `java`, replace those of the same release, and return the new ones.

    A Java without an archive of its own classes gets one, too. The list is empty if the JVM writes
    no archive. A session runs in this process meanwhile; ValueError when one is running already.
    """
    if SparkContext._active_spark_context is not None:
        raise ValueError("no Spark session may run while the archive is made: stop it first")
    folder = require_writable(archive_folder())
    for old in folder.glob(f"*-{java.version}-*-*.jsa"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        draft = Path(scratch) / "draft"
        if not (java.home / "lib" / "server" / "classes.jsa").exists():
            dump = [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"]
            subprocess.run(dump, check=False, capture_output=True, timeout=_PATIENCE_S)
            _store(BASE, java, draft)
        user_options = os.environ.get("SPARK_SUBMIT_OPTS", "")
        options = f"{user_options} {SILENT} -XX:ArchiveClassesAtExit={draft}"
        with environment(SPARK_SUBMIT_OPTS=options):
            spark = session("archive")
        rehearse(spark, Path(scratch))
        jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
        jvm.stdin.close()  # the JVM ends, and writes the classes that it has loaded
        jvm.wait(_PATIENCE_S)
        _store(SPARK, java, draft)
    return archives(java)


def rehearse(spark: SparkSession, scratch: Path) -> None:
    """Use the parts of Spark that notebooks use, so that their classes are loaded."""
    place = str(scratch / "rows")
    spark.range(0, 100, 1, 2).withColumn("key", f.col("id") % 7).write.parquet(place)
    rows = spark.read.parquet(place)
    rows.groupBy("key").agg(f.sum("id"), f.count("id")).toPandas()
    rows.repartition(2, "key").mapInArrow(lambda parts: parts, rows.schema).toArrow()
    spark.sparkContext.parallelize([0, 1], 2).map(str).collect()
    stream = spark.readStream.schema("id long, key long").parquet(place)
    counts = stream.groupBy("key").count().writeStream.outputMode("complete")
    drain(counts, scratch, lambda batch, _: batch.toArrow())


def _store(name: str, java: Java, draft: Path) -> None:
    """Move the file that a JVM has written into the folder of archives, if it wrote one."""
    if draft.exists():
        flush(draft)
        size = draft.stat().st_size
        draft.rename(archive_folder() / f"{archive_stem(name, java)}-{size}.jsa")


if __name__ == "__main__":
    installed = find_java()
    if not any(path.name.startswith(SPARK) for path in archives(installed)):
        make(installed)
