"""Samples drawn on Spark: the same bytes as without Spark; a log is reused only if it fits."""

import pytest

from aftlib.core.generators import ROWS_PER_RANGE, block_model, draw
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.sweep import write_samples

MODEL = block_model(6, 2)
ROWS = 2 * ROWS_PER_RANGE + 100


def test_bytes_do_not_depend_on_how_spark_cuts_the_work(spark, tmp_path):
    log = write_samples(spark, MODEL, ROWS, 5, tmp_path / "spark")
    alone = SensorLog.write(tmp_path / "alone", draw(MODEL, ROWS, 5), MODEL.names, log.about)
    names = sorted(p.name for p in log.path.iterdir())
    assert names == sorted(p.name for p in alone.path.iterdir())
    for name in names:
        assert (log.path / name).read_bytes() == (alone.path / name).read_bytes()


def test_what_is_there_is_reused_and_another_request_refused(spark, tmp_path):
    path = tmp_path / "log"
    write_samples(spark, MODEL, 10, 5, path)
    before = {p.name: p.stat().st_mtime_ns for p in path.iterdir()}
    assert write_samples(spark, MODEL, 10, 5, path).steps == 10
    assert {p.name: p.stat().st_mtime_ns for p in path.iterdir()} == before
    with pytest.raises(ValueError, match="path holds a log of .*'seed': 5.* got a request for"):
        write_samples(spark, MODEL, 10, 6, path)
