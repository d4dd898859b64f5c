"""The compiled parser does what an obvious loop over lines does; a bad line is shown."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aftlib.core.windows import Windows
from aftlib.documents.shared_state.parsing import END, NEVER, PartitionReader, Progress, TupleSource
from aftlib.documents.shared_state.tuples import TupleLog
from tests.documents.shared_state.slow import text_of
from tests.refusals import refused

NUMBER = re.compile(rb"-?\d{1,19}")


def read(path, pane, delay=None, progress=None, chunk=256, rows=5):
    reader = PartitionReader(path, pane, delay, progress or Progress(), chunk)
    blocks = [block.copy() for block in reader.blocks(rows)]
    return np.concatenate([np.empty((3, 0), np.int64), *blocks], axis=1).T.tolist(), reader


def slow(text, pane, delay):
    """Tuples and progress of a text, line by line; or the offset of the first bad line."""
    tuples, at, mark, late, count = [], 0, NEVER, 0, 0
    for line in text.splitlines(keepends=True):
        fields = line.removesuffix(b"\n").split(b",")
        whole = len(fields) == 3 and all(NUMBER.fullmatch(each) for each in fields)
        if not whole or fields[0][:1] == b"-" or any(abs(2 * int(f) + 1) >= 2**64 for f in fields):
            return at
        time, key, value = map(int, fields)
        count += 1
        if (time // pane + 1) * pane <= mark:
            late += 1
        else:
            tuples.append([time // pane, key, value])
            mark = mark if delay is None else max(mark, min(time - delay, END - 1))
        at += len(line)
    return tuples, Progress(at, END, count, late)


ODD = ["-3", "", "007", "-0", "+1", " 1", "1.5", "x", "12345678", "123456789", "1234567x", "NA",
       '"4"', "1" * 18, "-", "1-", "9" * 19, "0" * 30, "١", "1\x00",
       *(str(sign * (2**63 + one)) for sign in (1, -1) for one in (-1, 0, 1))]  # fmt: skip
PLAIN = st.tuples(st.integers(0, 200), st.integers(-9, 9), st.integers(-99, 99)).map(
    lambda row: ",".join(map(str, row))
)
LINES = st.one_of(
    *[PLAIN] * 9,
    st.lists(st.sampled_from(["7", *ODD]), min_size=3, max_size=3).map(",".join),
    st.lists(st.just("1"), max_size=4).map(",".join).filter(lambda line: line.count(",") != 2),
)


@settings(max_examples=100)
@given(lines=st.lists(LINES, max_size=20), delay=st.sampled_from([None, 0, 15]))
def test_the_parser_is_the_slow_twin(tmp_path_factory, lines, delay):
    text = "".join(f"{line}\n" for line in lines).encode()
    path = tmp_path_factory.mktemp("log") / "part"
    path.write_bytes(text)
    expected = slow(text, 10, delay)
    if isinstance(expected, int):
        with pytest.raises(ValueError, match=f"line at byte {expected} of part must be"):
            read(path, 10, delay)
        return
    rows, reader = read(path, 10, delay)
    assert (rows, reader.progress) == expected


def test_reading_goes_on_at_an_offset_in_any_pieces(tmp_path):
    rows = [(i // 3, i % 5, i) for i in range(200)]
    (tmp_path / "part").write_bytes(text_of(rows))
    whole, end = read(tmp_path / "part", 1, 0)
    reader = PartitionReader(tmp_path / "part", 1, 0, chunk=64)
    first, begin = [], None
    for block in reader.blocks(7):
        first += block.T.tolist()
        if len(first) > 90:
            begin = reader.progress
            break
    rest, other = read(tmp_path / "part", 1, 0, begin, chunk=100)
    assert first + rest == whole and other.progress == end.progress


def test_a_source_deals_its_partitions_out_and_leaves_finished_ones(tmp_path):
    source = TupleSource(TupleLog.write(tmp_path / "log", [b"1,1,1\n"] * 5), Windows(1, 1))
    assert [*source.partitions(0, 2), *source.partitions(1, 2)] == [0, 2, 4, 1, 3]
    assert [*source.readers(0, 2, {2: Progress(6, END, 1)})] == [0, 4]


def read_text(text, tmp_path):
    (tmp_path / "part").write_bytes(text)
    read(tmp_path / "part", 1)


test_a_bad_line_is_shown_with_its_offset = refused(
    read_text,
    (b"1,2,3\n1,2\n", "line at byte 6 of part must be .*, got '1,2': correct or remove the line"),
    (b"1,2,3\n4,5,6", "line at byte 6 of part must end with a line end, got b'4,5,6'"),
    (b"1" * 300, "line at byte 0 of part must be shorter than 256 bytes"),
)


def test_an_offset_of_another_log_is_refused(tmp_path):
    (tmp_path / "part").write_bytes(b"1,2,3\n")
    with pytest.raises(ValueError, match="offset must be at most 6, the bytes of part, got 9"):
        read(tmp_path / "part", 1, progress=Progress(9))
