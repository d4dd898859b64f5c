"""The ends of a drained stream, with a stand-in for Spark; `test_planned` uses Spark itself."""

from pathlib import Path

import pytest

from aftlib.spark.streams import drain


class Stream:
    """Spark's writer and query in one."""

    def __init__(self, active=True, fails=False):
        self.isActive = active
        self.fails = fails
        self.stopped = 0

    def foreachBatch(self, function):
        self.function = function
        return self

    def option(self, name, value):
        assert name == "checkpointLocation"
        return self

    def start(self):
        return self

    def processAllAvailable(self):
        self.function("frame", 7)
        if self.fails:
            raise ArithmeticError("failed")

    def stop(self):
        self.stopped += 1


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({}, None),
        ({"active": False}, "was stopped by somebody else before its end: let one run"),
        ({"fails": True}, "failed"),
    ],
)
def test_every_end_of_a_stream_is_reported_and_stops_it(how, error):
    """Spark stops a stream without an error when a second run starts in its directory."""
    batches = []
    stream = Stream(**how)

    def each(*batch):
        batches.append(batch)

    if error is None:
        drain(stream, Path(), each)
    else:
        with pytest.raises((RuntimeError, ArithmeticError), match=error):
            drain(stream, Path(), each)
    assert batches == [("frame", 7)]
    assert stream.stopped == 1
