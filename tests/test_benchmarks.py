"""Ratios of benchmarks are remembered, and one that falls is an alarm."""

import json

import pytest

from benchmarks import __main__ as benchmarks

FOUND = {
    "n": 3,
    "ratios": {"late local / polars": [1.5, 2], "met": True},
    "engines": [{"rate": 9, "ratio": 4.0}],
    "spark": {"ratio": 1.25},
    "update / count": 0.5,
    "wanted": {"a / b": {"at least": 1}},
}


def test_what_is_a_ratio():
    assert dict(benchmarks.ratios(FOUND)) == {
        "ratios.late local / polars.0": 1.5, "ratios.late local / polars.1": 2.0,
        "engines.0.ratio": 4.0, "spark.ratio": 1.25, "update / count": 0.5,
    }  # fmt: skip


def test_a_ratio_that_falls_is_said(tmp_path, monkeypatch):
    history = tmp_path / "history.jsonl"
    for value in (4, 1, 4.4):  # one bad run does not move the median
        benchmarks.remembered("engines", {"ratio": value, "spark.ratio": 1.0}, history)
    assert benchmarks.remembered("engines", {"ratio": 2.7, "spark.ratio": 1.4}, history) == []
    assert benchmarks.remembered("other", {"ratio": 0.1}, history) == []
    said = benchmarks.remembered("engines", {"ratio": 2.0, "spark.ratio": 1.9}, history)
    assert said == ["engines: ratio is 2, was 3.35", "engines: spark.ratio is 1.9, was 1"]
    line = json.loads(history.read_text().splitlines()[0])
    assert set(line) == {"benchmark", "date", "cpu", "commit", "dirty", "ratios"}
    monkeypatch.setattr(benchmarks, "machine", lambda: {"processor": "another"})
    assert benchmarks.remembered("engines", {"ratio": 0.1}, history) == []


def test_an_alarm_ends_the_run_with_an_error(tmp_path, monkeypatch, capsys):
    results = iter([{"ratio": 3}, {"ratio": 1}])
    module = type("Module", (), {"run": staticmethod(lambda: next(results))})
    monkeypatch.setattr(benchmarks.importlib, "import_module", lambda name: module)
    monkeypatch.setattr(benchmarks, "RESULTS", tmp_path / "results")
    benchmarks.main(["guard"])
    assert json.loads((tmp_path / "results" / "guard.json").read_text())["ratio"] == 3
    with pytest.raises(SystemExit, match="ratios that fell:\nguard: ratio is 1, was 3"):
        benchmarks.main(["guard"])
    with pytest.raises(SystemExit, match="no benchmark 'none'; known are assignment"):
        benchmarks.main(["none"])
