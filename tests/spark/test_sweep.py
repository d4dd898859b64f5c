"""A sweep returns the results of a loop, for any number of tasks."""

import pyarrow as pa
import pytest

from aftlib.spark.sweep import by_number, sweep


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
