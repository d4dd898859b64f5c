"""Spark's Python processes: forked with their modules loaded, or connected before they import."""

import gc
import os
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from aftlib.spark.session import CONNECTION_S
from aftlib.spark.workers import is_closed, launcher, socket_folder


def test_tasks_find_their_modules_loaded_and_look_for_no_garbage_in_them(spark):
    tasks = spark.sparkContext.parallelize([0], 1)
    modules, frozen = tasks.map(lambda _: ({*sys.modules}, gc.get_freeze_count())).first()
    assert {"pandas", "pyarrow.compute", "scipy.special", "numba"} <= modules
    assert frozen > 50_000


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_the_daemon_forks_without_threads():
    own = {"PYTHON_WORKER_FACTORY_SECRET": "secret", "OMP_NUM_THREADS": "1"}
    daemon = subprocess.Popen(
        [sys.executable, "-m", "aftlib.spark.workers", "pyspark.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | own, process_group=0,
    )  # fmt: skip
    try:
        port = int.from_bytes(daemon.stdout.read(4), "big")  # modules are loaded, and it listens
        maps = Path(f"/proc/{daemon.pid}/maps").read_text()
        threads = [*Path(f"/proc/{daemon.pid}/task").iterdir()]
    finally:
        daemon.stdin.close()
        daemon.wait(500)
    assert 0 < port < 65536
    assert "libarrow" in maps and "llvmlite" in maps
    assert len(threads) == 1


PLANNER = """
from pathlib import Path
Path("gate").read_text()  # blocks until the test opens the gate, like imports on a busy machine
from pyspark.worker_util import get_sock_file_to_executor
with get_sock_file_to_executor(timeout=None) as file:
    file.write(b"planned")
"""


@contextmanager
def planner(folder, name, program):
    """A module that Spark's launcher runs, and the connection that it makes to Spark's socket."""
    (folder / f"{name}.py").write_text(program)
    path = str(folder / "socket")
    with socket.create_server(path, family=socket.AF_UNIX) as server:
        server.settimeout(500)
        env = os.environ | {"PYTHON_WORKER_FACTORY_SOCK_PATH": path}
        command = [launcher(folder), "-m", name]
        process = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE)
        try:
            connection, _ = server.accept()
            connection.settimeout(500)
            with connection:
                yield process, connection
            assert process.communicate(timeout=500)[0] == b""
            assert process.returncode == 0
        finally:
            process.kill()
            process.wait()


def test_a_process_of_its_own_connects_before_it_imports(tmp_path):
    os.mkfifo(tmp_path / "gate")  # the import of the module waits for it
    with planner(tmp_path, "planner", PLANNER) as (process, connection):
        (tmp_path / "gate").write_text("open")
        said = connection.makefile("rb").read()
    assert (int.from_bytes(said[:4], "big"), said[4:]) == (process.pid, b"planned")


def test_the_planner_of_keyed_state_prints_nothing(tmp_path):
    """Spark's prints eight lines when a query starts, which end up in a notebook."""
    program = PLANNER.replace('Path("gate").read_text()', 'print("Starting")')
    with planner(tmp_path, "transform_with_state_driver_worker", program) as (_, connection):
        assert connection.makefile("rb").read()[4:] == b"planned"


def test_other_archives_and_folders_stay_on_the_path(tmp_path):
    spark = Path(pyspark.__file__).parent
    entries = [f"{spark}/python/lib/pyspark.zip", f"{spark}/jars/core.jar", "/a b", "/own.zip"]
    output = subprocess.check_output(
        [launcher(tmp_path), "-c", "import sys; print(sys.path)"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entries)}, text=True,
    )  # fmt: skip
    assert [entry in output for entry in entries] == [False, False, True, True]


def test_a_worker_without_a_task_notices_the_end_of_the_session():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"task")
        assert not is_closed(ours) and ours.recv(4) == b"task"
        theirs.close()
        assert is_closed(ours)


WRITER = """
import os, socket, sys
from pyspark import daemon, worker
from aftlib.spark import workers

daemon.manager = lambda: None
sys.argv = ["daemon"]
workers.run_daemon()
spark, ours = socket.socketpair()
spark.sendall(b"task")

def write(infile, outfile):
    outfile.write(b"result")
    spark.close() if sys.stdin.read() == "hang up" else os.close(outfile.fileno())

worker.main = write
daemon.worker(ours, True)
"""


@pytest.mark.parametrize(("how", "printed"), [("hang up", False), ("lose the file", True)])
def test_a_worker_prints_no_traceback_when_spark_hangs_up(how, printed):
    command = [sys.executable, "-c", WRITER]
    run = subprocess.run(command, input=how, capture_output=True, text=True, timeout=500)
    assert ("failed to flush" in run.stderr) == printed
    assert printed or (run.stderr, run.returncode) == ("", 0)


def test_tasks_and_jvm_talk_in_a_folder_of_this_user(spark):
    spark.sparkContext.parallelize([0], 1).count()
    folder = Path(socket_folder())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert any(stat.S_ISSOCK(path.stat().st_mode) for path in folder.iterdir())


def test_a_long_temporary_folder_leaves_paths_of_sockets_short(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 20)))
    folder = Path(socket_folder.__wrapped__())
    try:
        assert folder.is_dir() and len(str(folder)) < 60
    finally:
        folder.rmdir()


def test_tasks_wait_long_enough_for_a_busy_machine(spark):
    name = "SPARK_AUTH_SOCKET_TIMEOUT"
    timeout = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ[name]).first()
    assert timeout == os.environ[name] == str(CONNECTION_S)
