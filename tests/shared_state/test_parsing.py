"""The compiled parser does what an obvious loop over lines does."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aftlib.core.windows import Windows
from aftlib.shared_state.parsing import PartitionReader, Rules, reason_against
from aftlib.shared_state.stores.tables import END, NEVER, Progress
from tests.refusals import refused

BY_TENS = Windows(20, 10)


def read(path, rules, progress=None, chunk=64):
    reader = PartitionReader(path, rules, progress or Progress(), chunk=chunk)
    blocks = [block.copy() for block in reader.blocks()]
    return np.concatenate([np.empty((3, 0), np.int64), *blocks], axis=1).T.tolist(), reader


def slow(text, rules):
    """Tuples, progress and rejects of a text, line by line."""
    tuples, rejects, at, mark, late, count = [], [], 0, NEVER, 0, 0
    for line in re.findall(rb"[^\n]*\n|[^\n]+", text):
        fields = line.rstrip(b"\n").split(b",")
        if not line.endswith(b"\n"):
            rejects.append((at, "the file ends before the line does"))
        elif (
            len(fields) != 3
            or not all(re.fullmatch(rb"-?\d{1,19}", field) for field in fields)
            or not all(abs(int(field) * 2 + 1) < 2**64 for field in fields)
            or fields[0].startswith(b"-")
        ):
            rejects.append((at, reason_against(line.rstrip(b"\n"))))
        else:
            time, key, value = map(int, fields)
            count += 1
            part = time // rules.windows.pane
            if (part + 1) * rules.windows.pane <= mark:
                late += 1
            else:
                tuples.append([part, key, value])
                mark = mark if rules.delay is None else max(mark, min(time - rules.delay, END - 1))
        at += len(line)
    return tuples, Progress(at, mark, late, count, len(rejects)), rejects


ODD = ["-3", "", "007", "-0", "+1", " 1", "1.5", "x", "12345678", "123456789", "1234567x",
       "0x1F", "NA", '"4"', "1" * 18, "-", "--1", "1-", "9" * 19, "0" * 30, "١", "\r", "1\r",
       "\x00"]  # fmt: skip
LARGE = [str(sign * (2**63 + one)) for sign in (1, -1) for one in (-1, 0, 1)]
NUMBERS = st.one_of(st.integers(0, 200).map(str), st.sampled_from(ODD), st.sampled_from(LARGE))
LINES = st.one_of(
    st.tuples(st.integers(0, 200), st.integers(-9, 9), st.integers(-99, 99)).map(
        lambda row: ",".join(map(str, row))
    ),
    st.tuples(NUMBERS, NUMBERS, st.integers(0, 9).map(str)).map(",".join),
    st.lists(NUMBERS, max_size=5).map(",".join).filter(lambda line: line.count(",") != 2),
)


@settings(max_examples=60)
@given(
    lines=st.lists(LINES, max_size=20), line_end=st.booleans(), delay=st.sampled_from([None, 0, 15])
)
def test_the_parser_is_the_slow_twin(tmp_path_factory, lines, line_end, delay):
    text = "\n".join(lines).encode() + (b"\n" if line_end and lines else b"")
    path = tmp_path_factory.mktemp("log") / "part"
    path.write_bytes(text)
    rules = Rules(BY_TENS, delay)
    rows, reader = read(path, rules, chunk=256)
    tuples, progress, rejects = slow(text, rules)
    assert rows == tuples
    assert reader.progress == progress
    assert [(r.offset, r.reason) for r in reader.rejects] == rejects


def test_a_timestamp_like_the_one_before_is_that_one_and_no_other_is(tmp_path):
    times = [7, 7, 71, 71, 7, 17, 1, 1, 12345678, 12345678, 1234567, 123456789, 7]
    text = b"".join(b"%d,%d,%d\n" % (time, i, i) for i, time in enumerate(times))
    text = text.replace(b"71,3", b"7x,3")  # is not remembered
    (tmp_path / "part").write_bytes(text)
    assert (
        read(tmp_path / "part", Rules(Windows(1, 1)), chunk=512)[0]
        == slow(text, Rules(Windows(1, 1)))[0]
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1,2,3", ""),
        (b"1,-2,-3", ""),
        (b"", "1 fields instead of 3"),
        (b"1,2,3,4", "4 fields instead of 3"),
        (b"1,abc,3", "key is no whole number"),
        (b"1,2,3\r", "value is no whole number"),
        (b"-1,2,3", "timestamp is no whole number from 0 on"),
        (b"1,%d,%d" % (2**63 - 1, -(2**63)), ""),
        (b"1," + b"9" * 19 + b",3", "key does not fit into 64 bits"),
        (b"1," + b"0" * 20 + b",3", "key does not fit into 64 bits"),
    ],
)
def test_reasons_name_the_field(line, reason):
    assert reason_against(line) == reason


def test_many_rejects_in_one_chunk(tmp_path):
    path = tmp_path / "part"
    path.write_bytes(b"x\n1,2,3\n" * 500)
    rows, reader = read(path, Rules(BY_TENS, most_rejected=500), chunk=10_000)
    assert len(rows) == len(reader.rejects) == 500


def test_a_huge_value_is_an_error_and_not_a_reject(tmp_path):
    path = tmp_path / "part"
    path.write_bytes(b"1,2,3\n1,2," + b"9" * 19 + b"\n")
    with pytest.raises(OverflowError, match="value at byte 6 of part does not fit into 64 bits"):
        read(path, Rules(BY_TENS))


def test_reading_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "part"
    path.write_bytes(b"".join(b"%d,%d,1\n" % (i, i % 7) for i in range(0, 300, 3)))
    whole, reader = read(path, Rules(BY_TENS, delay=5))
    first = PartitionReader(path, Rules(BY_TENS, delay=5), chunk=64)
    blocks = first.blocks()
    head = [next(blocks).copy() for _ in range(3)]
    rest, second = read(path, Rules(BY_TENS, delay=5), first.progress)
    assert np.concatenate(head, axis=1).T.tolist() + rest == whole
    assert second.progress == reader.progress


def test_the_largest_numbers_are_read(tmp_path):
    """Once, 19 digits were refused, and the largest delay made every tuple late."""
    path, most = tmp_path / "part", 2**63 - 1
    path.write_bytes(b"%d,%d,%d\n%d,1,%d\n" % (most, most, most, 3, -most - 1))
    rows, reader = read(path, Rules(Windows(1, 1), delay=most))
    assert rows == [[most, most, most], [3, 1, -most - 1]]
    assert reader.progress.late == 0
    _, reader = read(path, Rules(Windows(1, 1), delay=0))
    assert (reader.progress.late, reader.progress.watermark) == (1, END - 1)


test_impossible_rules_are_refused = refused(
    lambda delay, most_rejected=1: Rules(BY_TENS, delay, most_rejected),
    (-1, "delay must be at least 0, got -1"),
    (2**63, "delay must be at most 2⁶³ − 1, got 9223372036854775808"),
    (0, -1, "most_rejected must be at least 0, got -1"),
)
