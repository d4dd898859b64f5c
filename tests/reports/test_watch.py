"""`aft watch`: the table, once and again, as a page, and errors."""

import re
from types import SimpleNamespace

import pytest

from aftlib.reports import watch
from aftlib.spark.metrics_log import MetricsLog
from tests.spark.test_metrics_log import ID, progress
from tests.tiny_project import aft

QUERY = ID[:8]


@pytest.fixture
def metrics(tmp_path):
    """Three micro-batches, the first of which is two hours older than the others."""
    log = MetricsLog(tmp_path / "metrics")
    log.directory.mkdir()
    log.add(progress(0) | {"timestamp": "2025-12-31T22:00:00.000Z"})
    log.add(progress(1, end=None))
    log.add(progress(2, wrong=0.0) | {"durationMs": {"triggerExecution": 500}})
    return log.directory


def test_the_table_has_totals_and_the_last_hour(metrics):
    table = watch.metrics_table(metrics)[QUERY]
    shown = {
        label.strip(): list(row) for label, row in zip(table.index, table.to_numpy(), strict=True)
    }
    assert shown.pop("last record")[0] == "2026-01-01 00:00:02 UTC"
    assert shown == {
        "status": ["no end recorded", ""],
        "micro-batches": ["3", "2"],
        "without a record": ["0", "0"],
        "windows": ["30", "20"],
        "certified recoverable": ["27 (90.00%)", "18 (90.00%)"],
        "exact": ["21 (70.00%)", "14 (70.00%)"],
        "gaps": ["9 (30.00%)", "6 (30.00%)"],
        "without any sample": ["9 (100.00%)", "6 (100.00%)"],
        "estimated": ["6 (66.67%)", "4 (66.67%)"],
        "lost": ["3 (33.33%)", "2 (33.33%)"],
        "audited estimates": ["120", "80"],
        "wrong": ["2 (1.67%)", "1 (1.25%)"],
        "wrong at most": ["38 (31.25%), δ = 0.05", ""],
        "rows read": ["300", "200"],
        "late": ["6 (2.00%)", "4 (2.00%)"],
        "rejected no_value": ["3 (1.00%)", "2 (1.00%)"],
        "latency": ["2.5 s", "2.5 s"],
        "duration of a micro-batch": ["0.5 s", "1.5 s"],
        "keyed state": ["0.01 MB", "0.01 MB"],
        "entries": ["7", "7"],
    }


def test_each_query_has_its_columns(metrics):
    MetricsLog(metrics).add(progress(0, id="4" * 36) | {"name": "<sites>"})
    MetricsLog(metrics).end("4" * 36, "<b>broken")
    table = watch.metrics_table(metrics)
    assert table.columns.unique(0).tolist() == [QUERY, "<sites> 44444444"]
    assert table[("<sites> 44444444", watch.COLUMNS[0])]["status"] == "<b>broken"
    page = watch.metrics_page(table, 2)
    assert "&lt;sites&gt;" in page and "&lt;b&gt;broken" in page
    assert "<sites>" not in page and "<b>" not in page


def test_a_young_stream_has_all_in_its_last_hour(tmp_path):
    MetricsLog(tmp_path).add(progress(0))
    table = watch.metrics_table(tmp_path)[QUERY]
    assert table.loc["windows"].tolist() == ["10", "10"]
    MetricsLog(tmp_path).add(progress(1))
    assert watch.metrics_table(tmp_path)[QUERY].loc["windows"].tolist() == ["20", "20"]


def test_the_command_prints_once_without_a_terminal(metrics):
    for options in ([], ["--once"]):
        result = aft("watch", metrics, *options)
        assert result.exit_code == 0, result.output
        assert result.output.count("certified recoverable") == 1
        assert re.search(r"^  wrong +2 \(1\.67%\) +1 \(1\.25%\)$", result.output, re.MULTILINE)


def test_the_page_loads_itself_again_and_needs_no_network(metrics, tmp_path):
    page = tmp_path / "watch.html"
    assert aft("watch", metrics, "--once", "--html", page, "--every", "0.1").exit_code == 0
    text = page.read_text()
    assert '<meta http-equiv="refresh" content="1">' in text.partition("</head>")[0]
    assert "27 (90.00%)" in text
    assert not re.search(r"https?://|<script|<link", text)


def test_the_page_is_written_again_until_an_interrupt(metrics, tmp_path, monkeypatch):
    page, waits = tmp_path / "watch.html", []

    def sleep(seconds):
        waits.append(page.read_text())
        MetricsLog(metrics).add(progress(2 + len(waits)))
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=sleep))  # other threads sleep, too
    result = aft("watch", metrics, "--html", page)
    assert (result.exit_code, result.output) == (0, "")
    assert ["21 (70.00%)" in waits[0], "28 (70.00%)" in waits[1]] == [True, True]


def test_a_wrong_directory_is_an_error_that_names_what_is_expected(tmp_path):
    result = aft("watch", tmp_path)
    assert result.exit_code == 1
    assert "directory must hold the metrics of a guarded stream" in result.output
    assert "Traceback" not in result.output
