"""Workers are forked from a process that has loaded what they need, and has no second thread."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_tasks_find_their_modules_loaded(spark):
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sorted(sys.modules)).first()
    assert {"pandas", "pyarrow.compute", "scipy.special", "numba"} <= {*found}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_the_daemon_forks_without_threads():
    own = {"PYTHON_WORKER_FACTORY_SECRET": "secret", "OMP_NUM_THREADS": "1"}
    daemon = subprocess.Popen(
        [sys.executable, "-m", "aftlib.spark.worker_daemon", "pyspark.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | own, process_group=0,
    )  # fmt: skip
    try:
        port = int.from_bytes(daemon.stdout.read(4), "big")  # it has loaded all, and listens
        maps = Path(f"/proc/{daemon.pid}/maps").read_text()
        threads = [*Path(f"/proc/{daemon.pid}/task").iterdir()]
    finally:
        daemon.stdin.close()
        daemon.wait(30)
    assert 0 < port < 65536
    assert "libarrow" in maps and "llvmlite" in maps
    assert len(threads) == 1
