"""A stream is the document's however it is cut; its log is whole."""

import numpy as np
import pytest

from aftlib.documents.shared_state.tuples import (
    ROWS_PER_RANGE,
    TupleLog,
    TupleStream,
    draw_log,
    write_tuples,
)
from tests.refusals import refused


def drawn(stream):
    return np.concatenate([np.stack(stream.draw(i)) for i in range(stream.ranges)], axis=1)


def test_what_is_written_is_read(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"1,2,3\n", b""])
    assert TupleLog.open(tmp_path / "log") == log
    assert (log.partitions, log.part(0).read_bytes()) == (2, b"1,2,3\n")
    with pytest.raises(ValueError, match="path must hold part-.*, got .*other.: write a log first"):
        TupleLog.open(tmp_path / "other")


@pytest.mark.parametrize("skew", [0.0, 1.4])
def test_keys_follow_zipfs_law_and_values_are_uniform(skew):
    stream = TupleStream(200_000, keys=50, skew=skew, disorder=30)
    times, keys, values = drawn(stream)
    delays = np.arange(200_000) // 1000 - times
    assert delays.min() >= 0 and delays.max() == 30
    weights = np.arange(1, 51) ** -skew
    counts = np.array([np.count_nonzero(keys == key) for key in stream.ids])
    expected = 200_000 * weights / weights.sum()
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected))
    assert np.all(np.abs(np.bincount(values) - 200_000 / 101) < 5 * np.sqrt(200_000 / 101))
    assert len({len(str(key)) for key in keys}) == 1


def test_a_stream_is_the_same_however_it_is_cut(tmp_path):
    stream = TupleStream(2 * ROWS_PER_RANGE + 5, keys=9, skew=1.2, seed=3)
    lines = []
    for partitions in (1, 2):
        log = draw_log(tmp_path / f"{partitions}", stream, partitions)
        texts = [log.part(p).read_text() for p in range(partitions)]
        lines.append(sorted("".join(texts).splitlines()))
    assert lines[0] == lines[1] and len(lines[0]) == stream.tuples


def test_spark_draws_the_same_log_and_reuses_it(spark, tmp_path):
    stream = TupleStream(ROWS_PER_RANGE + 9, keys=9)
    log = write_tuples(spark, stream, 2, tmp_path)
    here = draw_log(tmp_path / "here", stream, 2)
    for partition in (0, 1):
        assert log.part(partition).read_bytes() == here.part(partition).read_bytes()
    log.part(0).write_bytes(b"")
    assert write_tuples(spark, stream, 2, tmp_path) == log
    assert log.part(0).read_bytes() == b""


test_odd_streams_are_refused = refused(
    lambda options: TupleStream(**options),
    ({"tuples": -1}, "tuples must be at least 0, got -1"),
    ({"tuples": 1, "keys": 0}, "keys must be at least 1, got 0"),
    ({"tuples": 1, "skew": -1}, "skew must be at least 0, got -1"),
)
