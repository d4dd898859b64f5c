"""A stream is the document's however it is cut; its log is whole, and read from any line."""

import numpy as np
import pytest

from aftlib.shared_state.tuplelog import ROWS_PER_RANGE, TupleLog, TupleStream, whole_lines
from tests.refusals import refused


def pieces(path, offset=0, size=16):
    return [(bytes(lines[:stop]), at) for lines, stop, at in whole_lines(path, offset, size)]


def test_what_is_written_is_read(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"1,2,3\n", b"", b"bad\n4,5,6"])
    again = TupleLog.open(tmp_path / "log")
    assert again == log
    assert (log.partitions, log.tuples, log.about, log.size(2)) == (3, 2, {}, 9)
    assert log.part(2).read_bytes() == b"bad\n4,5,6"
    assert (pieces(log.part(1)), pieces(log.part(2))) == ([], [(b"bad\n", 0), (b"4,5,6", 4)])
    with pytest.raises(FileExistsError, match="already there"):
        TupleLog.write(tmp_path / "log", [b""])


def test_an_incomplete_log_is_refused(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"1,2,3\n", b""])
    log.part(0).write_bytes(b"1,2")
    with pytest.raises(ValueError, match=r"manifest, \[6, 0\] bytes, got \[3, 0\]"):
        TupleLog.open(log.path)
    manifest = log.path / "manifest.json"
    for text in ("[]", manifest.read_text().replace("sizes", "lengths")):
        manifest.write_text(text)
        with pytest.raises(ValueError, match="path holds no complete tuple log"):
            TupleLog.open(log.path)
    log.part(1).unlink()
    with pytest.raises(ValueError, match="path holds no complete tuple log"):
        TupleLog.open(log.path)


def test_pieces_end_with_lines_and_cover_the_file(tmp_path):
    text = b"".join(b"%d\n" % (7**i) for i in range(17)) + b"tail"
    path = tmp_path / "text"
    path.write_bytes(text)
    parts = pieces(path)
    assert b"".join(piece for piece, _ in parts) == text
    assert all(piece.endswith(b"\n") for piece, _ in parts[:-1])
    assert all(text[at:].startswith(piece) for piece, at in parts)
    assert parts[-1] == (b"tail", len(text) - 4)
    assert b"".join(piece for piece, _ in pieces(path, offset=9)) == text[9:]


def read_pieces(offset, tmp_path):
    (tmp_path / "text").write_bytes(b"1\n" + b"x" * 40)
    pieces(tmp_path / "text", offset)


test_what_is_no_line_of_the_log_is_refused = refused(
    read_pieces,
    (0, "line at byte 2 of text is longer than 16 bytes"),
    (43, "offset must lie in text, which has 42 bytes, got 43"),
)


def drawn(stream):
    return np.concatenate([np.stack(stream.draw(i)) for i in range(stream.ranges)], axis=1)


def test_values_and_uniform_keys_are_equally_frequent():
    times, keys, values = drawn(TupleStream(200_000, keys=50, disorder=30))
    delays = np.arange(200_000) // 1000 - times
    assert (times >= 0).all() and (delays.min(), delays.max()) == (0, 30)
    assert set(values) == set(range(101))
    counts = np.bincount(keys - 100)
    assert len(counts) == 50
    assert np.abs(counts / 4000 - 1).max() < 0.1
    assert len({len(str(key)) for key in keys}) == 1


@pytest.mark.parametrize("skew", [1.0, 1.2, 2.0])
def test_zipf_frequencies_follow_their_law(skew):
    stream = TupleStream(200_000, keys=1000, skew=skew)
    _, keys, _ = drawn(stream)
    shares = [np.mean(keys == stream.ids[rank]) for rank in (0, 1, 9)]
    weights = 1 / np.arange(1, 1001) ** skew
    assert shares == pytest.approx((weights / weights.sum())[[0, 1, 9]], rel=0.05)


def test_text_has_one_line_a_tuple_of_a_partial_range():
    stream = TupleStream(ROWS_PER_RANGE + 3, keys=10, skew=1.4)
    assert (stream.ranges, stream.ticks) == (2, 66)
    lines = stream.text(1).decode().split()
    assert lines == [",".join(map(str, row)) for row in zip(*stream.draw(1), strict=True)]
    assert len(lines) == 3
    other = TupleStream(2 * ROWS_PER_RANGE, keys=10, skew=1.4)
    assert other.text(1).startswith(stream.text(1))
    assert other.text(1) != TupleStream(2 * ROWS_PER_RANGE, 10, 1.4, seed=2).text(1)


NEGATIVE = {"tuples": -1, "skew": -0.1, "seed": -1, "disorder": -2}
test_impossible_parameters_are_refused = refused(
    lambda name, value: TupleStream(**{"tuples": 1, name: value}),
    *((name, value, f"{name} must be at least 0, got {value}") for name, value in NEGATIVE.items()),
    *((name, 0, f"{name} must be at least 1, got 0") for name in ("keys", "rate")),
    ("skew", float("nan"), "skew must be at least 0, got nan"),
)
