"""Spark's own cluster, started from the installed package, and the results of jobs on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from aftlib.spark import cluster
from aftlib.spark.cluster import LocalCluster
from tests.spark import cluster_jobs
from tests.spark.cluster_jobs import LOOPBACKS, family, listening

ROOT = Path(__file__).parents[2]


def alone(pid):
    """Whether a process has ended."""
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "State:\tZ" in status.read_text()


@pytest.mark.crash
@pytest.mark.long
def test_jobs_on_a_cluster_with_faults_give_the_local_results(spark, postgres_url, tmp_path):
    program = [sys.executable, "-m", cluster_jobs.__name__, str(tmp_path), postgres_url]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.Popen(
        program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    jobs = {
        "D1": lambda at: cluster_jobs.approximately_once(spark, at),
        "D2": lambda at: cluster_jobs.checkpoint_planning(spark, at, "bare"),
        "D3": lambda at: cluster_jobs.shared_state(spark, at, postgres_url),
        "D5": lambda at: cluster_jobs.exponential_histogram(spark, at),
    }
    try:
        expected = {}
        for name, job in jobs.items():
            (tmp_path / f"local-{name}").mkdir()
            expected[name] = json.loads(json.dumps(job(tmp_path / f"local-{name}")))
        output = done.communicate(timeout=600)
    finally:
        done.kill()
    assert done.returncode == 0, output[1]
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["kills"] == ["executor in D3", "worker in D5"]
    # One application of all jobs, and one of D2's killed driver; without AFT_MASTER `restarts`
    # would not start that driver on the cluster, and there would be only one.
    assert results["applications"] == 2
    assert all(".zip/aftlib/" in place for place in results["shipped"])
    print(output[0])
    for name in jobs:
        assert results[name] == expected[name], name
    assert any(results["D1"]["windows"]["estimated"])


def test_a_cluster_that_cannot_start_says_why(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="workers must be a whole number at least 1, got 0"):
        LocalCluster(workers=0)
    with pytest.raises(ValueError, match="cores must be a whole number at least 1, got 0"):
        LocalCluster(cores=0)
    monkeypatch.setattr(cluster, "java_home", lambda: tmp_path)
    monkeypatch.setattr(cluster, "STARTS_S", 5.0)
    with pytest.raises(RuntimeError, match=r"(?s)master of the cluster did not start .* s: .*java"):
        LocalCluster()


def test_without_java_the_command_prints_the_fix(monkeypatch):
    def none():
        raise FileNotFoundError("no Java 17 or newer was found: set JAVA_HOME")

    monkeypatch.setattr(cluster, "java_home", none)
    monkeypatch.setattr(cluster.signal, "signal", lambda *_: None)  # this process's own
    result = CliRunner().invoke(cluster.command)
    assert result.exit_code == 1
    assert result.output == "Error: no Java 17 or newer was found: set JAVA_HOME\n"


@pytest.mark.crash
def test_a_cluster_listens_on_the_loopback_and_ends_with_its_starter():
    """No process is left, even when the starter is killed."""
    program = [sys.executable, "-m", "aftlib.reports.cli", "cluster", "1"]
    starter = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert re.match(r"1 workers of spark://127\.0\.0\.1:\d+\.", starter.stdout.readline())
        variables = Path(starter.stdout.readline().split(". ")[1].strip())
        assert variables.read_text().startswith("export AFT_MASTER=spark://127.0.0.1:")
        assert stat.S_IMODE(variables.parent.stat().st_mode) == 0o700
        members = family(starter.pid)
        daemons = [pid for pid, command in members if "org.apache.spark.deploy" in command]
        assert len(daemons) == 4  # a master and a worker, and the shell of each
        addresses = set(listening(daemons))
        assert addresses and addresses <= LOOPBACKS
    finally:
        starter.kill()
        starter.communicate()
    deadline = time.monotonic() + 500
    while not all(map(alone, daemons)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert all(map(alone, daemons))
    shutil.rmtree(variables.parent)
