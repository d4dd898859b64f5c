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

import contextlib
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.paths import beijing_pm25, data_dir
from benchmarks import flink
from benchmarks.timing import machine

WORKERS, WIDTH, WINDOWS, FAILS = 2, 24, 8, 3
"""Processes, steps of a window, windows, and the one in which a process is killed."""
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


@dataclass
class Cluster:
    """A JobManager and its TaskManagers, each a process of its own."""

    class_path: str
    folder: Path
    options: dict[str, Any]
    port: int = field(default_factory=lambda: free_port())
    processes: dict[str, subprocess.Popen] = field(default_factory=dict)

    def start(self) -> None:
        """Start the JobManager and all TaskManagers."""
        ports = {"rest.port": self.port, "jobmanager.rpc.port": free_port(), "blob.server.port": 0}
        places = {
            "execution.checkpointing.dir": (self.folder / "checkpoints").as_uri(),
            "io.tmp.dirs": self.folder / "tmp",
        }
        lines = [f"{k}: {v}" for k, v in (COMMON | ports | places | self.options).items()]
        (self.folder / "conf").mkdir(parents=True)
        (self.folder / "conf" / "config.yaml").write_text("\n".join(map(str, lines)) + "\n")
        entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self._java("jobmanager", entry, "-Xmx512m")
        for number in range(WORKERS):
            self.start_worker(f"tm-{number}")

    def start_worker(self, name: str) -> None:
        """Start a TaskManager; one of the same name has the same disk."""
        place = self.folder / "working" / name
        own = {"taskmanager.resource-id": name, "process.taskmanager.working-dir": place}
        given = [part for k, v in own.items() for part in ("-D", f"{k}={v}")]
        entry = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        self._java(name, entry, "-Xmx384m", *given)

    def kill(self, pid: int) -> str:
        """Kill the TaskManager with this process id by SIGKILL; return its name."""
        (name,) = [name for name, p in self.processes.items() if p.pid == pid]
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes.pop(name).wait()
        return name

    def submit(self, *arguments: object) -> subprocess.Popen:
        """Start the client that submits the job and waits for its end."""
        return self._java("client", "RecoveryJob", "-Xmx256m", *arguments, config=False)

    def stop(self) -> None:
        """Kill whatever still runs."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def _java(
        self, name: str, entry: str, heap: str, *arguments: object, config: bool = True
    ) -> subprocess.Popen:
        opened = [f"--add-opens=java.base/java.{part}=ALL-UNNAMED" for part in flink.OPEN]
        where = ["--configDir", str(self.folder / "conf")] if config else []
        command = ["java", heap, "-XX:+UseSerialGC", "-Dlog4j2.level=INFO", *opened, "-cp"]
        command += [self.class_path, entry, *where, *map(str, arguments)]
        with (self.folder / f"{name}-{time.monotonic_ns()}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)
        return self.processes[name]


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def cluster(class_path: str, folder: Path, options: dict[str, Any]) -> Iterator[Cluster]:
    """A running cluster that ends with the block."""
    running = Cluster(class_path, folder, options)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@dataclass
class Stream:
    """A log in files that the job maps, and the job's output."""

    folder: Path
    windows: int
    period_us: int

    @property
    def shape(self) -> tuple[int, int]:
        """Steps and sensors."""
        return self.windows * WIDTH, len(self.names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The stations."""
        return tuple(pd.read_parquet(beijing_pm25()).select_dtypes("number").columns)

    @cached_property
    def values(self) -> np.ndarray:
        """Complete rows of the real sensors, in their order, again and again."""
        rows = pd.read_parquet(beijing_pm25()).select_dtypes("number").to_numpy()
        rows = rows[np.isfinite(rows).all(axis=1)]
        return np.resize(rows, self.shape)

    @cached_property
    def counts(self) -> np.memmap:
        """How often each sample was read."""
        return np.memmap(self.folder / "counts", np.uint8, "r+", shape=self.shape)

    def write(self) -> None:
        """Write the files that the job reads."""
        self.folder.mkdir()
        self.values.astype("<f8").tofile(self.folder / "values")
        np.zeros(self.shape, np.uint8).tofile(self.folder / "counts")
        (self.folder / "clock").write_bytes(bytes(16))

    def results(self) -> pd.DataFrame:
        """Every emitted result: sensor, start, mean, count, at_s."""
        files = [path.read_text() for path in self.folder.glob("windows-*")]
        names = ["sensor", "start", "mean", "count", "at_s"]
        rows = [line.split(",") for line in "".join(files).splitlines()]
        frame = pd.DataFrame(rows, columns=names).astype(float)
        return frame.assign(at_s=frame["at_s"] / 1e9)

    @property
    def begin_s(self) -> float:
        """When the first step arrived."""
        return float(np.fromfile(self.folder / "clock", "<i8")[0] / 1e9)


def recover(class_path: str, system: str, rate: float, fails: bool) -> dict[str, Any]:
    """One run of a system; the process of the last worker is killed, or none.

    Late are results emitted more than `LATE_S` after their window's last sample was due.
    """
    layout, options = SYSTEMS[system]
    with tempfile.TemporaryDirectory(prefix="aft-flink-") as place:
        folder, stream = Path(place), Stream(Path(place) / "stream", WINDOWS, PERIOD_US)
        stream.write()
        with cluster(class_path, folder, options) as running:
            sizes = [len(stream.names), stream.shape[0], WORKERS, WIDTH, PERIOD_US, rate]
            client = running.submit(folder / "conf", layout, stream.folder, *sizes)
            killed_s, back_s = kill_at(running, stream, client) if fails else (np.inf, np.inf)
            try:
                code = client.wait(timeout=LONGEST_S)
                failure = failure_text(folder, code) if code else ""
            except subprocess.TimeoutExpired:
                failure = f"did not end within {LONGEST_S} s"
        run = {"system": system, "rate": rate, "killed": fails, "failure": failure}
        if (results := stream.results()).empty:
            return run
        run["back_s"] = back_s - killed_s if killed_s < np.inf else None
        return run | measured(stream, results, killed_s)


def kill_at(running: Cluster, stream: Stream, client: subprocess.Popen) -> tuple[float, float]:
    """Kill the last worker's process shortly before its window ends, and start it again.

    Return when it was killed, and when its replacement read the first sample.
    """
    step, sensor = (FAILS + 1) * WIDTH - LATE, len(stream.names) - 1
    until(lambda: stream.counts[step, sensor] > 0 or client.poll() is not None)
    if client.poll() is not None:  # the job failed
        return np.inf, np.inf
    worker = WORKERS - 1
    (reader,) = stream.folder.glob(f"reader-{worker}-*")
    killed_s = time.monotonic()
    running.start_worker(running.kill(int(reader.name.split("-")[2])))
    reread = lambda: len(list(stream.folder.glob(f"reader-{worker}-*"))) > 1  # noqa: E731
    until(lambda: reread() or client.poll() is not None)
    times = [int(path.name.split("-")[3]) for path in stream.folder.glob(f"reader-{worker}-*")]
    return killed_s, max(times) / 1e9


def measured(stream: Stream, frame: pd.DataFrame, killed_s: float) -> dict[str, Any]:
    """Count the results of a run that are lost, doubled, wrong or late, and the samples reread."""
    steps, sensors = stream.shape
    truth = stream.values.reshape(stream.windows, WIDTH, sensors).mean(axis=1)
    window = (frame["start"] // WIDTH).astype(int)
    right = truth[window, frame["sensor"].astype(int)]
    off = (frame["mean"] - right).abs() > 1e-9 * np.abs(right)
    due_s = stream.begin_s + (frame["start"] + WIDTH - 1) * stream.period_us / 1e6
    frame = frame.assign(wrong=off | (frame["count"] != WIDTH), late_s=frame["at_s"] - due_s)
    first = frame.sort_values("at_s").drop_duplicates(["sensor", "start"])
    last = frame.sort_values("at_s").drop_duplicates(["sensor", "start"], keep="last")
    late = first[(first["late_s"] > LATE_S) & (first["at_s"] > killed_s)]
    counts = np.asarray(stream.counts, int)
    return {
        "lost": stream.windows * sensors - len(first),
        "doubled": len(frame) - len(first),
        "wrong": int(last["wrong"].sum()),
        "late": len(late),
        "outage_s": float(late["at_s"].max() - killed_s) if len(late) else 0.0,
        "samples_again": int(np.maximum(counts - 1, 0).sum()),
    }


def failure_text(folder: Path, code: int) -> str:
    """The last cause in the client's log, or its exit status."""
    (log,) = folder.glob("client-*.log")
    causes = [line for line in log.read_text().splitlines() if "Caused by" in line]
    return (causes or [f"exit status {code}"])[-1].strip()


def until(condition: Callable[[], object], longest_s: float = LONGEST_S) -> None:
    """Wait for a condition; a TimeoutError after `longest_s`."""
    end = time.monotonic() + longest_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing happened for {longest_s} s")
        time.sleep(0.002)


def run() -> dict[str, Any]:
    """All systems at all rates, killed and undisturbed, in turn."""
    path, rows = flink.prepare(data_dir()), list[dict[str, Any]]()
    for number in range(RUNS):
        for system in SYSTEMS:
            for rate, fails in (*((rate, True) for rate in RATES), (RATES[-1], False)):
                rows.append(recover(path, system, rate, fails) | {"run": number})
                print(rows[-1], flush=True)
    return {
        "benchmark": "recovery",
        "flink": flink.VERSION,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": machine()["processor"],
        "sizes": {"sensors": 12, "workers": WORKERS, "window_steps": WIDTH, "windows": WINDOWS,
                  "period_us": PERIOD_US, "checkpoint_ms": CHECKPOINT_MS},
        "runs": rows,
    }  # fmt: skip
