"""Metrics on disk: every whole line is read, also beside one that a crash cut."""

import json

import pytest

from aftlib.streaming.metrics import append_line, read_records


@pytest.mark.parametrize("cut", ["", '{"batch": 7, "ti'])
def test_a_line_behind_one_that_a_crash_cut_is_read(tmp_path, cut):
    path = tmp_path / "guard-1.jsonl"
    path.write_text(cut)
    records = [{"batch": number, "time": str(number)} for number in range(3)]
    for record in records:
        append_line(path, json.dumps(record))
    assert read_records(tmp_path) == records
    assert path.read_bytes().count(b"\n") == len(records) + bool(cut)


def test_a_name_may_have_a_character_that_ends_a_line_elsewhere(tmp_path):
    record = {"batch": 0, "time": "0", "sensors": {"a\u2028b\x85": {}}}
    append_line(tmp_path / "guard-1.jsonl", json.dumps(record, ensure_ascii=False))
    assert read_records(tmp_path) == [record]
