"""A stream is the document's however it is cut; its log is whole, and read from any line."""

import numpy as np
import pytest

from aftlib.shared_state.tuplelog import ROWS_PER_RANGE, TupleLog, TupleStream, whole_lines


def pieces(path, offset=0, size=16):
    return [(bytes(lines[:stop]), at) for lines, stop, at in whole_lines(path, offset, size)]


def test_what_is_written_is_read(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"1,2,3\n", b"", b"bad\n4,5,6"])
    again = TupleLog.open(tmp_path / "log")
    assert again == log
    assert (log.partitions, log.tuples, log.about, log.size(2)) == (3, 2, {}, 9)
    assert log.part(2).read_bytes() == b"bad\n4,5,6"


def test_a_log_is_never_overwritten(tmp_path):
    TupleLog.write(tmp_path / "log", [b""])
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
    found = pieces(path)
    assert b"".join(piece for piece, _ in found) == text
    assert all(piece.endswith(b"\n") for piece, _ in found[:-1])
    assert all(text[at:].startswith(piece) for piece, at in found)
    assert found[-1] == (b"tail", len(text) - 4)
    assert pieces(path, offset=2) == pieces(path, offset=2, size=16)
    assert b"".join(piece for piece, _ in pieces(path, offset=9)) == text[9:]


def test_an_empty_file_has_no_pieces(tmp_path):
    (tmp_path / "text").write_bytes(b"")
    assert pieces(tmp_path / "text") == []


def test_a_line_without_end_is_no_tuple_log(tmp_path):
    (tmp_path / "text").write_bytes(b"1\n" + b"x" * 40)
    with pytest.raises(ValueError, match="line at byte 2 of text is longer than 16 bytes"):
        pieces(tmp_path / "text")


def test_an_offset_beyond_the_file_is_refused(tmp_path):
    (tmp_path / "text").write_bytes(b"1\n")
    with pytest.raises(ValueError, match=r"offset must lie in text, which has 2 bytes, got 3"):
        pieces(tmp_path / "text", offset=3)


def drawn(stream):
    return np.concatenate([np.stack(stream.draw(i)) for i in range(stream.ranges)], axis=1)


def test_values_and_keys_are_uniform_when_asked():
    times, keys, values = drawn(TupleStream(200_000, keys=50))
    assert (times == np.arange(200_000) // 1000).all()
    assert set(values) == set(range(101))
    counts = np.bincount(keys - 100)
    assert len(counts) == 50
    assert np.abs(counts / 4000 - 1).max() < 0.1
    assert len({len(str(key)) for key in keys}) == 1


@pytest.mark.parametrize("skew", [1.0, 1.2, 2.0])
def test_zipf_frequencies_follow_their_law(skew):
    stream = TupleStream(200_000, keys=1000, skew=skew)
    _, keys, _ = drawn(stream)
    found = [np.mean(keys == stream.ids[rank]) for rank in (0, 1, 9)]
    weights = 1 / np.arange(1, 1001) ** skew
    assert found == pytest.approx((weights / weights.sum())[[0, 1, 9]], rel=0.05)


def test_disorder_is_bounded_and_never_before_the_beginning():
    times, _, _ = drawn(TupleStream(100_000, rate=100, disorder=30))
    delays = np.arange(100_000) // 100 - times
    assert (times >= 0).all()
    assert delays.min() == 0
    assert delays.max() == 30


def test_text_has_one_line_a_tuple_of_a_partial_range():
    stream = TupleStream(ROWS_PER_RANGE + 3, keys=10, skew=1.4)
    assert (stream.ranges, stream.ticks) == (2, 66)
    lines = stream.text(1).decode().split()
    assert lines == [",".join(map(str, row)) for row in zip(*stream.draw(1), strict=True)]
    assert len(lines) == 3
    other = TupleStream(2 * ROWS_PER_RANGE, keys=10, skew=1.4)
    assert other.text(1).startswith(stream.text(1))
    assert other.text(1) != TupleStream(2 * ROWS_PER_RANGE, 10, 1.4, seed=2).text(1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tuples", -1),
        ("keys", 0),
        ("skew", -0.1),
        ("skew", float("nan")),
        ("seed", -1),
        ("rate", 0),
        ("disorder", -2),
    ],
)
def test_impossible_parameters_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be at least .*, got {value}"):
        TupleStream(**{"tuples": 1, name: value})
