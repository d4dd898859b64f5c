"""The ends of a drained stream, with a stand-in for Spark; `test_planned` uses Spark itself."""

import gc
import weakref
from functools import partial
from pathlib import Path
from socket import SHUT_RDWR
from types import SimpleNamespace

import pytest

from aftlib.spark.streams import drain


class Stream:
    """Spark's writer and query in one; it holds a reference to the function, as the JVM does."""

    def __init__(self, active=True, starts=True, stops=True, fails=False):
        self.isActive, self.starts, self.stops, self.fails = active, starts, stops, fails
        self.stopped, self.closed = 0, 0
        client = SimpleNamespace(get_thread_connection=lambda: SimpleNamespace(socket=self))
        context = SimpleNamespace(_gateway=SimpleNamespace(_gateway_client=client))
        self.frame = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))

    def foreachBatch(self, function):  # noqa: N802
        self.function = function
        return self

    def option(self, name, value):
        assert name == "checkpointLocation"
        return self

    def start(self):
        if not self.starts:
            raise ArithmeticError("no start")
        return self

    def processAllAvailable(self):  # noqa: N802
        self.function(self.frame, 7)
        if self.fails:
            raise ArithmeticError("failed")

    def shutdown(self, how):
        self.closed += how == SHUT_RDWR

    def stop(self):
        self.stopped += 1
        if not self.stops:
            raise ArithmeticError("no stop")


@pytest.mark.parametrize(
    ("how", "error", "stopped"),
    [
        ({}, None, 1),
        ({"active": False}, "was stopped by somebody else before its end: let one run", 1),
        ({"fails": True}, "failed", 1),
        ({"starts": False}, "no start", 0),
        ({"stops": False}, "no stop", 1),
    ],
)
def test_every_end_of_a_stream_is_reported_and_releases_the_function(how, error, stopped):
    """Spark stops a stream without an error when a second run starts in its directory."""
    batches, stream = [], Stream(**how)
    held = partial(lambda *batch: batches.append(batch))
    if error is None:
        drain(stream, Path(), held)
    else:
        with pytest.raises((RuntimeError, ArithmeticError), match=error):
            drain(stream, Path(), held)
    assert batches == [(stream.frame, 7)] * how.get("starts", True) and stream.stopped == stopped
    assert stream.closed == len(batches)
    held = weakref.ref(held)
    gc.collect()
    assert held() is None
