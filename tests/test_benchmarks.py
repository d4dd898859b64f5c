"""Ratios of benchmarks are stored, and one that falls is an alarm."""

import json

import numpy as np
import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import recovery

RESULT = {
    "n": 3,
    "ratios": {"late local / polars": [1.5, 2], "met": True},
    "engines": [{"rate": 9, "ratio": 4.0}],
    "spark": {"ratio": 1.25},
    "update / count": 0.5,
    "wanted": {"a / b": {"at least": 1}},
}


def test_what_is_a_ratio():
    assert dict(benchmarks.ratios(RESULT)) == {
        "ratios.late local / polars.0": 1.5, "ratios.late local / polars.1": 2.0,
        "engines.0.ratio": 4.0, "spark.ratio": 1.25, "update / count": 0.5,
    }  # fmt: skip


def test_a_ratio_that_falls_raises_an_alarm(tmp_path, monkeypatch):
    history = tmp_path / "history.jsonl"
    for value in (4, 1, 4.4):  # one bad run does not move the median
        benchmarks.add_ratios("engines", {"ratio": value, "spark.ratio": 1.0}, history)
    assert benchmarks.add_ratios("engines", {"ratio": 2.7, "spark.ratio": 1.4}, history) == []
    assert benchmarks.add_ratios("other", {"ratio": 0.1}, history) == []
    drops = benchmarks.add_ratios("engines", {"ratio": 2.0, "spark.ratio": 1.9}, history)
    assert drops == ["engines: ratio is 2, was 3.35", "engines: spark.ratio is 1.9, was 1"]
    durations = "spark.rows.histogram / sum", "spark.stream.1 keys.histogram / sum"
    benchmarks.add_ratios("engines", dict.fromkeys(durations, 4.0), history)
    drops = benchmarks.add_ratios("engines", dict(zip(durations, (2.0, 7.0), strict=True)), history)
    assert drops == ["engines: spark.stream.1 keys.histogram / sum is 7, was 4"]
    line = json.loads(history.read_text().splitlines()[0])
    assert set(line) == {"benchmark", "date", "cpu", "commit", "dirty", "ratios"}
    monkeypatch.setattr(benchmarks, "machine", lambda: {"processor": "another"})
    assert benchmarks.add_ratios("engines", {"ratio": 0.1}, history) == []


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


def test_what_a_recovery_lost_doubled_or_got_wrong_is_counted(tmp_path):
    stream = recovery.Stream(tmp_path / "stream", windows=2, period_us=1000)
    stream.write()
    stream.counts[:] = 1
    stream.counts[0, :3] = 0, 2, 4
    (stream.folder / "clock").write_bytes((10**9).to_bytes(8, "little") + bytes(8))
    truth = stream.values.reshape(2, recovery.WIDTH, -1).mean(axis=1)
    due = 1 + (np.arange(1, 3) * recovery.WIDTH - 1) / 1e3
    lines = [
        f"{sensor},{window * recovery.WIDTH},{truth[window, sensor]},{recovery.WIDTH},"
        f"{int((due[window] + 0.01) * 1e9)}"
        for window, sensor in np.ndindex(*truth.shape)
    ]
    lines[3] = lines[3].replace(str(truth[0, 3]), "7.5")  # wrong
    lines += lines[:2]  # doubled
    lines[14] = lines[14].replace(str(int((due[1] + 0.01) * 1e9)), str(int((due[1] + 2) * 1e9)))
    lost = lines.pop(20)
    (stream.folder / "windows-1").write_text("\n".join(lines) + "\n")
    metrics = recovery.measured(stream, stream.results(), killed_s=1.3)
    assert lost.startswith(f"8,{recovery.WIDTH},") and metrics["lost"] == 1
    assert (metrics["due"], metrics["doubled"], metrics["wrong"], metrics["late"]) == (24, 2, 1, 1)
    assert metrics["outage_s"] == pytest.approx(due[1] + 2 - 1.3)
    assert (metrics["samples_again"], metrics["unread"]) == (1 + 3, 1)
