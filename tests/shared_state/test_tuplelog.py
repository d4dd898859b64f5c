"""A log is whole or not there, and is read again from any line."""

import pytest

from aftlib.shared_state.tuplelog import TupleLog, whole_lines


def pieces(path, offset=0, size=16):
    return [(bytes(lines[:stop]), at) for lines, stop, at in whole_lines(path, offset, size)]


def test_what_is_written_is_read(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"1,2,3\n", b"", b"bad\n4,5,6"], {"seed": 1})
    again = TupleLog.open(tmp_path / "log")
    assert again == log
    assert (log.partitions, log.tuples, log.about, log.size(2)) == (3, 2, {"seed": 1}, 9)
    assert log.part(2).read_bytes() == b"bad\n4,5,6"


def test_a_log_is_never_overwritten(tmp_path):
    TupleLog.write(tmp_path / "log", [b""])
    with pytest.raises(FileExistsError, match="already there"):
        TupleLog.write(tmp_path / "log", [b""])


def test_an_incomplete_log_is_refused(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"1,2,3\n", b""])
    log.part(0).write_bytes(b"1,2")
    with pytest.raises(ValueError, match=r"files have \[3, 0\] bytes, got \[6, 0\]"):
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
