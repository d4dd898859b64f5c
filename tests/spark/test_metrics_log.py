"""Metrics of guarded streams: lines, restarts, cut lines, long files, wrong folders."""

import json

import pytest

from aftlib.spark import metrics_log
from aftlib.spark.metrics_log import MetricsLog, read_metrics

ID = "3f2a91bc-0000-0000-0000-000000000000"
WINDOWS = {
    "exact": 7, "estimated": 2, "lost": 1, "empty": 3, "certified": 9,
    "audited": 40.0, "wrong": 1.0, "allowed": 12.5, "end": 1_767_225_600_000_000, "delta": 0.05,
}  # fmt: skip


def progress(batch, run="r", id=ID, **windows):
    """Progress as Spark's JSON has it; the newest window ended at 2026-01-01 00:00 UTC."""
    return {
        "id": id, "runId": run, "name": None, "batchId": batch, "numInputRows": 100,
        "timestamp": "2026-01-01T00:00:02.000Z", "durationMs": {"triggerExecution": 1500},
        "stateOperators": [
            {"numRowsTotal": 3, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 2},
            {"numRowsTotal": 4, "memoryUsedBytes": 500, "numRowsDroppedByWatermark": 0,
             "customMetrics": {"rocksdbSstFileSize": 8000}},
        ],
        "observedMetrics": {"windows": WINDOWS | windows, "rejected": {"no_value": 1}},
    }  # fmt: skip


def records(directory):
    (series,) = read_metrics(directory).values()
    return series


def test_a_record_has_the_micro_batch_and_the_totals_so_far(tmp_path):
    log = MetricsLog(tmp_path)
    log.add(progress(0))
    log.add(progress(1, end=None, delta=None, audited=None))  # no window was complete
    first, second = records(tmp_path)
    assert (first.time, first.seconds) == ("2026-01-01T00:00:03.500+00:00", 1.5)
    assert (first.latency, second.latency) == (3.5, None)
    assert (first.delta, second.delta) == (0.05, 0.05)
    assert (first.state_bytes, first.state_rows) == (9500, 7)
    assert first.totals == {
        "batches": 1, "unrecorded": 0, "rows": 100, "late": 2, "rejected no_value": 1, "exact": 7,
        "estimated": 2, "lost": 1, "empty": 3, "certified": 9, "audited": 40, "wrong": 1,
        "allowed": 12.5,
    }  # fmt: skip
    doubled = {name: 2 * total for name, total in first.totals.items()}
    assert second.totals == doubled | {"unrecorded": 0, "audited": 40}


def test_a_micro_batch_counts_once_and_missing_ones_are_counted(tmp_path):
    for log in (MetricsLog(tmp_path), MetricsLog(tmp_path)):  # two listeners in one session
        log.add(progress(0))
        log.add(progress(1))
    MetricsLog(tmp_path).add(progress(4, run="after a restart"))
    assert [record.batch for record in records(tmp_path)] == [0, 1, 4]
    assert records(tmp_path)[-1].totals["batches"] == 3
    assert records(tmp_path)[-1].totals["unrecorded"] == 2


def test_other_queries_are_left_out_and_each_query_has_its_file(tmp_path):
    log, other = MetricsLog(tmp_path), "4" * 8 + ID[8:]
    unguarded = progress(0) | {"id": "5" * 36}
    del unguarded["observedMetrics"]
    for each in (unguarded, progress(0), progress(0, id=other) | {"name": "sites"}):
        log.add(each)
    log.end(unguarded["id"], None)
    assert read_metrics(tmp_path).keys() == {"3f2a91bc", "sites 44444444"}


@pytest.mark.parametrize(
    ("error", "reason"), [(None, "stopped"), ("[FAILED] no disk\n\tat java", "[FAILED] no disk")]
)
def test_the_end_of_a_query_is_recorded_once_until_it_starts_again(tmp_path, error, reason):
    log = MetricsLog(tmp_path)
    log.add(progress(0))
    log.end(ID, error)
    log.end(ID, error)
    assert [record.ended for record in records(tmp_path)] == [None, reason]
    assert records(tmp_path)[0].totals == records(tmp_path)[1].totals
    log.add(progress(1, run="next"))
    assert records(tmp_path)[-1].ended is None


def test_a_cut_line_is_left_out_and_replaced(tmp_path):
    log = MetricsLog(tmp_path)
    log.add(progress(0))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for length in (1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole + whole[:length])
        assert len(records(tmp_path)) == 1
        log.add(progress(1))
        assert [record.batch for record in records(tmp_path)] == [0, 1]


def test_a_damaged_line_is_refused(tmp_path):
    MetricsLog(tmp_path).add(progress(0))
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"[1]\n" + path.read_bytes())
    with pytest.raises(ValueError, match="line 1 of .*guard-3f2a.* must be a record .* got b'"):
        read_metrics(tmp_path)


def test_files_stay_small_and_totals_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_log, "MOST_BYTES", 3000)
    for batch in range(40):
        MetricsLog(tmp_path).add(progress(batch))
        assert len(records(tmp_path)) > min(batch, 4)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * 3000
    latest = records(tmp_path)
    assert [record.batch for record in latest] == list(range(40 - len(latest), 40))
    assert 4 < len(latest) < 20
    assert latest[-1].totals["exact"] == 40 * 7


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda place: None, "windows' with nothing: call .*record_metrics"),
        (lambda place: place.touch(), "windows' with nothing"),
        (lambda place: (place / "offsets").mkdir(parents=True), "windows' with 'offsets'"),
    ],
)
def test_a_directory_without_metrics_is_refused(tmp_path, make, message):
    make(tmp_path / "windows")
    expected = r"directory must hold the metrics of a guarded stream \(guard-\*.jsonl\), got '.*"
    with pytest.raises(ValueError, match=expected + message):
        read_metrics(tmp_path / "windows")


def test_a_line_is_one_json_object(tmp_path):
    MetricsLog(tmp_path).add(progress(0) | {"name": "a\nb \udfff"[:3]})
    (path,) = tmp_path.iterdir()
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["query"] == "a\nb"
