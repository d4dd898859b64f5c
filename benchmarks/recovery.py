"""Flink's recoveries of a killed TaskManager, with real processes on this machine, as JSON.

    python -m benchmarks recovery

The same windowed means over a log that arrives at a fixed rate, and whose samples are slow to read
again. One TaskManager is killed by SIGKILL just before a window ends, and a supervisor starts
another one at once. Notebook 07 cites the stored results.

Flink recovers by checkpoints and region failover, with state from the checkpoint's folder or from
the disk of the process that is started again. In its approximate local recovery only the failed
tasks would start again. Flink 2.3 has the option and refuses the job; the error is stored.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from aftlib.core.paths import beijing_pm25, data_dir
from benchmarks import flink
from benchmarks.timing import say

WORKERS, SENSORS, WIDTH, WINDOWS, FAILS = 2, 12, 24, 8, 3
"""Processes, sensors, steps of a window, windows, and the one in which a process is killed."""
PERIOD_US = 80_000
"""Microseconds per step: a window is full after two seconds."""
RATES = (100.0, 800.0)
"""Samples that are read again per second."""
LATE = 1
"""Steps before the window's end at which the process is killed."""
RUNS = 2
CHECKPOINT_MS = 1000
LATE_S, LONGEST_S = 0.5, 120.0
COMMON = {
    "jobmanager.rpc.address": "localhost",
    "jobmanager.bind-host": "localhost",
    "rest.bind-address": "localhost",
    "rest.address": "localhost",
    "taskmanager.host": "localhost",
    "taskmanager.bind-host": "localhost",
    "taskmanager.numberOfTaskSlots": 1,
    "taskmanager.cpu.cores": 1,
    "taskmanager.memory.framework.heap.size": "96m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.task.heap.size": "128m",
    "taskmanager.memory.task.off-heap.size": "0m",
    "taskmanager.memory.network.min": "32m",
    "taskmanager.memory.network.max": "32m",
    "taskmanager.memory.managed.size": "0m",
    "taskmanager.memory.jvm-metaspace.size": "128m",
    "taskmanager.memory.jvm-overhead.min": "64m",
    "taskmanager.memory.jvm-overhead.max": "64m",
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "5 s",
    "heartbeat.rpc-failure-threshold": 1,
    "jobmanager.execution.failover-strategy": "region",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 20,
    "restart-strategy.fixed-delay.delay": "100 ms",
    "execution.checkpointing.interval": f"{CHECKPOINT_MS} ms",
    "state.backend.type": "hashmap",
}
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "region failover": ("forward", {}),
    "region failover, keyed": ("keyed", {}),
    "local recovery": (
        "forward",
        {
            "execution.state-recovery.from-local": True,
            "execution.checkpointing.local-backup.enabled": True,
        },
    ),
    "approximate local recovery": (
        "keyed",
        {"execution.state-recovery.approximate-local-recovery": True},
    ),
}


class Cluster:
    """A JobManager and its TaskManagers, each a process of its own; they end with the block."""

    def __init__(self, class_path: str, folder: Path, options: dict[str, Any]) -> None:
        self.class_path = class_path
        self.folder = folder
        self.processes: dict[str, subprocess.Popen] = {}
        own = {
            "rest.port": free_port(),
            "jobmanager.rpc.port": free_port(),
            "blob.server.port": 0,
            "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
            "io.tmp.dirs": folder / "tmp",
        }
        (folder / "conf").mkdir()
        lines = [f"{name}: {value}\n" for name, value in (COMMON | own | options).items()]
        (folder / "conf" / "config.yaml").write_text("".join(lines))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def start(self) -> None:
        """Start the JobManager and all TaskManagers."""
        entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self.run_java("jobmanager", "-Xmx512m", entry, "--configDir", self.folder / "conf")
        for number in range(WORKERS):
            self.start_worker(f"tm-{number}")

    def start_worker(self, name: str) -> None:
        """Start a TaskManager; one of the same name has the same disk."""
        place = self.folder / "working" / name
        own = {"taskmanager.resource-id": name, "process.taskmanager.working-dir": place}
        given = [part for k, v in own.items() for part in ("-D", f"{k}={v}")]
        entry = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        self.run_java(name, "-Xmx384m", entry, "--configDir", self.folder / "conf", *given)

    def restart(self, pid: int) -> None:
        """Kill the TaskManager with this process id by SIGKILL, and start it again."""
        (name,) = [name for name, process in self.processes.items() if process.pid == pid]
        self.processes[name].kill()
        self.processes[name].wait()
        self.start_worker(name)

    def run_java(self, name: str, heap: str, *arguments: object) -> subprocess.Popen:
        """Start a program of Flink, or the client of our job."""
        opened = [f"--add-opens=java.base/java.{part}=ALL-UNNAMED" for part in flink.OPEN]
        command = ["java", heap, "-XX:+UseSerialGC", "-Dlog4j2.level=INFO", *opened, "-cp"]
        command += [self.class_path, *map(str, arguments)]
        with (self.folder / f"{name}-{time.monotonic_ns()}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)
        return self.processes[name]


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Log:
    """The files that the job maps, and its output; arrays have shape (steps, SENSORS).

    `values` are complete rows of the real sensors, and `counts` how often each sample was read.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        rows = pd.read_parquet(beijing_pm25()).select_dtypes("number").to_numpy(float)
        rows = rows[np.isfinite(rows).all(axis=1)]
        self.values = np.resize(rows, (WINDOWS * WIDTH, SENSORS))
        self.values.astype("<f8").tofile(folder / "values")
        self.counts = np.memmap(folder / "counts", np.uint8, "w+", shape=self.values.shape)
        (folder / "clock").write_bytes(bytes(16))

    def readers(self) -> list[list[str]]:
        """Worker, process id and first time of each reader of the worker that is killed."""
        return [path.name.split("-")[1:] for path in self.folder.glob(f"reader-{WORKERS - 1}-*")]

    def results(self) -> pd.DataFrame:
        """Every emitted result: sensor, window, mean, count, and seconds after it was due."""
        text = "".join(path.read_text() for path in self.folder.glob("windows-*"))
        names = ["sensor", "start", "mean", "count", "at_s"]
        frame = pd.DataFrame([line.split(",") for line in text.splitlines()], columns=names)
        frame = frame.astype(
            {"sensor": int, "start": int, "mean": float, "count": int, "at_s": float}
        )
        frame["at_s"] /= 1e9
        begin_s = np.fromfile(self.folder / "clock", "<i8")[0] / 1e9
        due_s = begin_s + (frame["start"] + WIDTH - 1) * PERIOD_US / 1e6
        return frame.assign(window=frame["start"] // WIDTH, late_s=frame["at_s"] - due_s)


def recover(class_path: str, system: str, rate: float, fails: bool) -> dict[str, Any]:
    """One run of a system; the process of the last worker is killed, or none."""
    layout, options = SYSTEMS[system]
    killed_s = back_s = np.inf
    with tempfile.TemporaryDirectory(prefix="aft-flink-") as place:
        folder = Path(place)
        log = Log(folder / "stream")
        with Cluster(class_path, folder, options) as running:
            running.start()
            about = folder / "conf", layout, log.folder
            sizes = SENSORS, WINDOWS * WIDTH, WORKERS, WIDTH, PERIOD_US, rate
            client = running.run_java("client", "-Xmx256m", "RecoveryJob", *about, *sizes)
            if fails:
                killed_s, back_s = kill_at(running, log, client)
            try:
                code = client.wait(timeout=LONGEST_S)
                failure = failure_text(folder, code) if code else ""
            except subprocess.TimeoutExpired:
                failure = f"did not end within {LONGEST_S} s"
        run = {"system": system, "rate": rate, "killed": fails, "failure": failure}
        results = log.results()
        if results.empty:
            return run
        run["back_s"] = back_s - killed_s if killed_s < np.inf else None
        return run | score(log, results, killed_s)


def kill_at(running: Cluster, log: Log, client: subprocess.Popen) -> tuple[float, float]:
    """Kill the last worker's process shortly before its window ends, and start it again.

    Return when it was killed, and when its replacement read the first sample.
    """
    step = (FAILS + 1) * WIDTH - LATE
    until(lambda: log.counts[step, -1] > 0 or client.poll() is not None)
    if client.poll() is not None:  # the job failed
        return np.inf, np.inf
    ((_, pid, _),) = log.readers()
    killed_s = time.monotonic()
    running.restart(int(pid))
    until(lambda: len(log.readers()) > 1 or client.poll() is not None)
    return killed_s, max(int(first) for _, _, first in log.readers()) / 1e9


def score(log: Log, results: pd.DataFrame, killed_s: float) -> dict[str, Any]:
    """Count the results of a run that are lost, doubled, wrong or late, and the samples reread.

    Late are results emitted more than `LATE_S` after their window's last sample was due.
    """
    truth = log.values.reshape(WINDOWS, WIDTH, SENSORS).mean(axis=1)
    right = truth[results["window"], results["sensor"]]
    off = (results["mean"] - right).abs() > 1e-9 * np.abs(right)
    results = results.assign(wrong=off | (results["count"] != WIDTH)).sort_values("at_s")
    first = results.drop_duplicates(["sensor", "window"])
    last = results.drop_duplicates(["sensor", "window"], keep="last")
    late = first[(first["late_s"] > LATE_S) & (first["at_s"] > killed_s)]
    return {
        "lost": truth.size - len(first),
        "doubled": len(results) - len(first),
        "wrong": int(last["wrong"].sum()),
        "late": len(late),
        "outage_s": float(late["at_s"].max() - killed_s) if len(late) else 0.0,
        "samples_again": int(np.maximum(log.counts.astype(int) - 1, 0).sum()),
    }


def failure_text(folder: Path, code: int) -> str:
    """The last cause in the client's log, or its exit status."""
    (log,) = folder.glob("client-*.log")
    causes = [line for line in log.read_text().splitlines() if "Caused by" in line]
    return (causes or [f"exit status {code}"])[-1].strip()


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; a TimeoutError after `LONGEST_S`."""
    end = time.monotonic() + LONGEST_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing happened for {LONGEST_S} s")
        time.sleep(0.002)


def run() -> dict[str, Any]:
    """All systems at all rates, killed and undisturbed, in turn."""
    path = flink.prepare(data_dir())
    rows = []
    for number in range(RUNS):
        for system in SYSTEMS:
            for rate, fails in (*((rate, True) for rate in RATES), (RATES[-1], False)):
                say(f"{system}, {rate:g} samples/s, {'killed' if fails else 'undisturbed'}")
                rows.append(recover(path, system, rate, fails) | {"run": number})
    sizes = {"sensors": SENSORS, "workers": WORKERS, "window_steps": WIDTH, "windows": WINDOWS}
    sizes |= {"period_us": PERIOD_US, "checkpoint_ms": CHECKPOINT_MS}
    return {"flink": flink.VERSION, "sizes": sizes, "runs": rows}
