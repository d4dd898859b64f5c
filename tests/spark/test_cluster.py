"""Spark's own standalone cluster of two workers; the Python processes of an executor are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyspark
import pytest

from aftlib import Promise
from aftlib.spark.java import java_home
from tests.conftest import UNOPTIMIZED
from tests.streaming.test_stream import TERMS, in_order, long, minutes, put, require_equal

ROOT = Path(__file__).parents[2]
PROGRAM = """\
    import os, signal, sys, time
    from pathlib import Path
    from aftlib.core.generators import block_model, draw
    from aftlib.spark.session import session
    from aftlib.spark.sweep import sweep, write_samples

    place = Path(sys.argv[1])
    spark = session("cluster")

    def square(x):
        marker = place / "killed"
        if x == 7 and not marker.exists():
            marker.touch()
            os.kill(os.getppid(), signal.SIGKILL)  # the daemon of Python workers
            os.kill(os.getpid(), signal.SIGKILL)
        return x * x

    assert sweep(spark, square, list(range(20))) == [x * x for x in range(20)]
    assert (place / "killed").exists()
    log = write_samples(spark, block_model(6, 2), 9000, 5, place / "log")
    assert (log.read(None, 0, 9000) == draw(block_model(6, 2), 9000, 5)).all()
    print(spark.sparkContext.master)
    """
PROMISE = Promise(**TERMS | {"samples": 1, "epsilon": 1.0})
ROUNDS = 20
"""Windows of each group. Their guards begin with what another one learned, and so certify."""
GROUPS_AND_NOTEBOOK = """\
    import json, sys
    from pathlib import Path
    from aftlib import recoverable
    from aftlib.command.batch import plan_jobs, run_job
    from aftlib.spark.session import session
    from tests.other_parameters import OTHER
    from tests.spark.test_cluster import promise
    from tests.streaming.test_stream import now, reader, run

    place = Path(sys.argv[1])
    spark = session("groups", **{"spark.sql.shuffle.partitions": "2"})  # one per worker
    stream = reader(spark, place.parent / "in")
    rows, _ = run(recoverable(stream, promise(), group="site", now=now()), place)
    rows.to_parquet(place / "table.parquet")
    spark.stop()
    others = {name: json.dumps(value) for name, value in OTHER["01_approximately_once"].items()}
    (job,) = plan_jobs(place, "smoke", ["01"], others)
    print(json.dumps([claim.model_dump() for claim in run_job(job).claims]))
    """


def promise() -> Promise:
    """The promise with what a guard learned of the windows of one more group."""
    guard = PROMISE.guard()
    guard.update(minutes(seed=100)[::5])
    windows = {"window": PROMISE.width, "slide": PROMISE.step, "query": "mean"}
    learned = guard.learned(PROMISE.sensors, windows | {"seasons": [], "until": 0})
    return replace(PROMISE, learned=learned.to_text())


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers of one core each, until the block ends."""
    home = Path(pyspark.__file__).parent
    own = {
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": UNOPTIMIZED,
        "PYTHONPATH": str(ROOT),
    }
    daemons = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{arguments[0]}-{len(daemons)}.log"
        deploy = f"org.apache.spark.deploy.{name}"
        command = [str(home / "bin" / "spark-class"), deploy, "--host", "127.0.0.1"]
        with log.open("wb") as file:
            daemons.append(
                subprocess.Popen(
                    [*command, "--port", "0", "--webui-port", "0", *arguments[1:]],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=os.environ | own,
                    start_new_session=True,
                )  # fmt: skip
            )
        return log

    def wait_for(log: Path, text: str, times: int = 1) -> str:
        until = time.monotonic() + 500
        while (found := log.read_text(errors="replace")).count(text) < times:
            assert time.monotonic() < until, found
            time.sleep(0.05)
        return found.split(text)[1].split()[0]

    try:
        master = start("master.Master", "master")
        url = "spark://" + wait_for(master, "Starting Spark master at spark://")
        for number in range(2):
            place = folder / f"worker-{number}"
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(place))
            start("worker.Worker", "worker", *size, url)
        wait_for(master, "Registering worker", 2)
        yield url
    finally:
        for daemon in daemons:
            os.killpg(daemon.pid, signal.SIGTERM)
            daemon.wait()


def run_on(master: str, program: str, place: Path) -> str:
    """Run a program with a place of its own; what it prints."""
    own = {
        "AFT_MASTER": master,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": f'{UNOPTIMIZED} "-Dspark.executor.extraJavaOptions={UNOPTIMIZED}"',
    }
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(place)],
        env=os.environ | own, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The cluster of both tests; a session of its own ends with each program."""
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.long
def test_jobs_on_two_workers_give_the_local_results_after_a_kill(master, tmp_path):
    assert run_on(master, PROGRAM, tmp_path).split() == [master]


@pytest.mark.spark
@pytest.mark.long
def test_a_hundred_groups_and_a_notebook_on_two_workers_give_the_local_results(master, tmp_path):
    sites = []
    for seed in range(100):
        samples = minutes(ROUNDS, seed)
        samples[-30:-18, seed % 3] = np.nan  # a worker is away
        sites.append(long(samples, f"g{seed}").query("time.dt.minute % 5 == 0"))
    rows = pd.concat(sites).sort_values(["time", "site"], kind="stable")
    put(tmp_path / "in", [rows[:6000], rows[6000:]])
    verdicts = run_on("local[2]", GROUPS_AND_NOTEBOOK, tmp_path / "local")
    assert run_on(master, GROUPS_AND_NOTEBOOK, tmp_path / "there") == verdicts
    local, there = (pd.read_parquet(tmp_path / p / "table.parquet") for p in ("local", "there"))
    assert {"exact", "estimated"} <= set(local["state"]) and len(verdicts) > 1_000
    assert len(local) == 100 * 4 * (ROUNDS - 1)  # the last window is open
    require_equal(in_order(there, "site"), in_order(local, "site"))
