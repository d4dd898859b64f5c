"""Work spread over tasks: the results of a loop; samples are the same bytes as without Spark."""

import pyarrow as pa
import pytest

from aftlib.core.generators import ROWS_PER_RANGE, block_model, draw
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.sweep import by_number, sweep, write_samples

MODEL = block_model(6, 2)
ROWS = 2 * ROWS_PER_RANGE + 100


def square(point):
    return point, point * point


def test_results_come_in_order(spark):
    points = [7, 3, 3, 0, *range(50)]
    assert sweep(spark, square, points) == [square(p) for p in points]
    assert sweep(spark, square, [5]) == [(5, 25)]
    assert sweep(spark, square, []) == []


@pytest.mark.parametrize("tasks", [None, 2])
def test_every_number_is_worked_on_once(spark, tasks):
    def twice(number):
        yield pa.RecordBatch.from_pydict({"id": [number]})
        yield pa.RecordBatch.from_pydict({"id": [10 * number]})

    frame = by_number(spark, 3, twice, "id long", tasks)
    assert frame.rdd.getNumPartitions() == (tasks or 3)
    assert [row.id for row in frame.collect()] == [0, 0, 1, 10, 2, 20]


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
