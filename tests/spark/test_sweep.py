"""A sweep gives what a loop gives, however it is spread over tasks."""

import pytest

from aftlib.spark.sweep import sweep


def square(point):
    return point, point * point


def test_results_come_in_order(spark):
    points = [7, 3, 3, 0, *range(50)]
    assert sweep(spark, square, points) == [square(p) for p in points]
    assert sweep(spark, square, [5]) == [(5, 25)]


def test_a_sweep_needs_a_point(spark):
    with pytest.raises(ValueError, match="points must hold at least one parameter set, got none"):
        sweep(spark, square, [])
