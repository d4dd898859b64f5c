"""A soak of `recoverable`: a stream of files with gaps, odd rows and new sensors, under kills.

python -m benchmarks.soak [SECONDS]

By default for AFT_SOAK_SECONDS, or half an hour. This process writes the files and kills; a driver
of its own runs the query. The result goes to ``data/soak.json``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import theilslopes

from aftlib import Promise, recoverable
from aftlib.core.paths import data_dir
from aftlib.core.storage import atomic_file
from aftlib.streaming.metrics import metrics_table, record_metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE, AFTER, WORKERS = 60, 64, 6
"""Sensors at first, and from the second start on."""
SAMPLES, EPSILON, DELTA = 20, 0.25, 0.05
"""Samples of a window, one per second; the noise of a window's mean is 0.067."""
ROOT = Path(__file__).resolve().parents[1]
BEGIN = pd.Timestamp("2026-01-01", tz="UTC")
FILE_S, KILL_EVERY_S, RUNS_S = 0.5, 8.0, (30, 20, 20, 30, 40, 60)
"""Seconds between two files of one window, and between two kills of Python workers; how long each
driver runs. The last one runs until the end, so that its memory can be watched."""
GAP = 1 / 25
"""Chance that a worker is away from a window on, for one to three windows."""
GROWTH_EVERY_S = 20
MOST_FAILED = 5
"""Drivers that may end by themselves, as when Spark gives up a micro-batch whose workers crash
again and again. Such a driver is started again like a killed one."""


def names(sensors: int) -> list[str]:
    return [f"s{i}" for i in range(sensors)]


def promise(sensors: int) -> Promise:
    """Return the promise for so many sensors; new ones join the workers in turn."""
    workers = [names(sensors)[i::WORKERS] for i in range(WORKERS)]
    width = f"{SAMPLES}s"
    return Promise(workers, EPSILON, DELTA, width, samples=SAMPLES, watermark="60s")


def samples_of(window: int) -> np.ndarray:
    """Return all samples of a window, shape (SAMPLES, AFTER): a common part, noise and offsets."""
    rng = np.random.default_rng([7, window])
    common = 3 * np.sin((window + np.arange(SAMPLES)[:, None] / SAMPLES) / 9) + rng.normal()
    return np.round(common + 0.3 * rng.normal(size=(SAMPLES, AFTER)) + 0.1 * np.arange(AFTER), 9)


def away(window: int) -> list[int]:
    """Return the workers that are away in a window."""
    workers = []
    for begin in range(max(0, window - 2), window + 1):
        rng = np.random.default_rng([8, begin])
        if rng.random() < GAP and begin + rng.integers(1, 4) > window:
            workers.append(int(rng.integers(WORKERS)))
    return workers


def rows_of(window: int) -> pd.DataFrame:
    """Return a window's rows: those of the workers that are there, and five odd ones."""
    times = BEGIN + pd.to_timedelta(window * SAMPLES + np.arange(SAMPLES), unit="s")
    wide = pd.DataFrame(samples_of(window), pd.Index(times, name="time"), names(AFTER))
    lost = [name for worker in away(window) for name in names(AFTER)[worker::WORKERS]]
    rows = wide.drop(columns=lost).reset_index().melt("time", var_name="sensor")
    odd = pd.DataFrame(
        {
            "time": [times[0], times[0], times[0], pd.Timestamp(0, tz="UTC"), None],
            "sensor": ["ghost", None, "s0", "s0", "s0"],
            "value": [1.0, 1.0, np.nan, 1.0, 1.0],
        }
    )
    odd.loc[4, "time"] = pd.Timestamp.now("UTC") + pd.Timedelta(days=3650)
    return pd.concat([rows, odd.astype(rows.dtypes.to_dict())], ignore_index=True)


def feed(place: Path, window: int) -> None:
    """Write the file of a window; a reader sees it as a whole."""
    hidden = place / "incoming" / f".{window:07}.parquet"
    rows_of(window).to_parquet(hidden, coerce_timestamps="us", allow_truncated_timestamps=True)
    hidden.rename(hidden.with_name(hidden.name[1:]))


def soak(seconds: float, place: Path) -> dict[str, Any]:
    """Feed the stream while its workers and drivers are killed; the score of all rows.

    RuntimeError when drivers end by themselves again and again.
    """
    (place / "incoming").mkdir()
    end = time.monotonic() + seconds
    driver, drivers, failed, kills, window = None, 0, 0, 0, 0
    rng = np.random.default_rng(9)
    try:
        while time.monotonic() < end or drivers < 2:
            if driver is None:
                sensors = AFTER if drivers else BEFORE
                driver = subprocess.Popen(command(place, sensors), cwd=ROOT)
                lifetime = RUNS_S[drivers - failed] if drivers - failed < len(RUNS_S) else np.inf
                drivers, until = drivers + 1, time.monotonic() + lifetime
                next_kill = time.monotonic() + KILL_EVERY_S
            if driver.poll() is not None:  # Spark does not repeat what a driver's own process does
                driver, failed = None, failed + 1
                if failed > MOST_FAILED:
                    raise RuntimeError(f"{failed} drivers ended by themselves ({MOST_FAILED} may)")
                continue
            feed(place, window)
            window += 1
            if time.monotonic() > next_kill:
                kills += kill_worker(rng)
                next_kill += KILL_EVERY_S
            # sensors join only if the first driver, which lacks them, has emitted windows
            emitted = drivers > 1 or any((place / "windows").glob("*.parquet"))
            if time.monotonic() > until and emitted:
                stop(driver)
                driver = None
            time.sleep(FILE_S)
    finally:
        if driver is not None:
            stop(driver)
    subprocess.run(command(place, AFTER, "drain"), check=True, cwd=ROOT)
    table = pd.read_parquet(place / "drained.parquet")
    counts = {"rounds": drivers + 1, "failures": drivers + kills, "ended_by_themselves": failed}
    return counts | score(table) | metrics(place) | growth(place)


def growth(place: Path) -> dict[str, Any]:
    """Return live heap, memory of all processes and stored files, with their slopes per hour.

    A slope is between the ends of its 95 % interval (Theil and Sen), over the lines after a third.
    """
    hours, *columns = (lines := np.loadtxt(place / "growth.txt", ndmin=2))[len(lines) // 3 :].T
    result: dict[str, Any] = {"growth_lines": len(lines)}
    for what, column in zip(("heap_mb", "memory_mb", "java_mb", "files"), columns, strict=True):
        slope, _, low, high = theilslopes(column, hours)
        ends = {"after_a_third": column[0], "at_the_end": column[-1]}
        result[what] = ends | {"per_hour": [low, slope, high]}
    return result


def command(place: Path, sensors: int, *drain: str) -> list[str]:
    """Return the command of a driver."""
    return [sys.executable, "-m", "benchmarks.soak", "drive", str(place), str(sensors), *drain]


def stop(driver: subprocess.Popen[bytes]) -> None:
    """Kill a driver with its JVM and Python workers."""
    for process in [*descendants(driver.pid), driver.pid]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    driver.wait()


def descendants(process: int) -> Iterator[int]:
    """Yield the children of a process, their children and so on."""
    with suppress(OSError):  # it has just ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from descendants(child)


def kill_worker(rng: np.random.Generator) -> bool:
    """Kill one of Spark's Python workers at random; whether there was one."""
    workers = sorted(filter(is_worker, map(int, filter(str.isdigit, os.listdir("/proc")))))
    with suppress(ProcessLookupError):  # Spark has ended it
        if workers:
            os.kill(int(rng.choice(workers)), signal.SIGKILL)
            return True
    return False


def is_worker(process: int) -> bool:
    """Whether a process runs tasks of Spark for this soak: a fork of the daemon, also an orphan."""
    place = Path(f"/proc/{process}")
    try:
        words = (place / "cmdline").read_bytes().split(b"\0")
        parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        forked = b"java" not in Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")[0]
        own = os.getsid(process) == os.getsid(0)
    except OSError:  # it has just ended
        return False
    return own and forked and words[-3:-1] == [b"aftlib.spark.workers", b"pyspark.worker"]


def score(table: pd.DataFrame) -> dict[str, float]:
    """Compare the rows with the samples, of which those of missing windows were not in the stream.

    A sensor's windows are due from its first row to the last window. `to_read_again` counts rows
    whose state is ``lost``, and `lost` those that are missing.
    """
    number = ((table["start"] - BEGIN) / pd.Timedelta(seconds=SAMPLES)).to_numpy().round()
    sensor = table["sensor"].str[1:].astype(int).to_numpy()
    window = number.astype(int)
    truth = np.array([samples_of(each).mean(0) for each in range(window.max() + 1)])
    off = np.abs(table["value"].to_numpy() - truth[window, sensor])
    first = table.assign(window=window).groupby("sensor")["window"].min()
    due = int((window.max() + 1 - first).sum())
    exact, estimated = (table["state"] == state for state in ("exact", "estimated"))
    distinct = len(table.drop_duplicates(["start", "sensor"]))
    return {
        "due": due,
        "lost": due - distinct,
        "doubled": len(table) - distinct,
        "wrong": int((~(off[exact] <= 1e-6)).sum()),
        "estimated": int(estimated.sum()),
        "outside": int((~(off[estimated] <= EPSILON)).sum()),
        "to_read_again": int((table["state"] == "lost").sum()),
        "joined": int((first > 0).sum()),
    }


def metrics(place: Path) -> dict[str, float]:
    """Return what the metrics have: rejected rows, and the guarantee's audit."""
    totals = metrics_table(place / "metrics").iloc[:, 0]
    rejected = totals[totals.index.str.startswith("rejected.")].sum()
    names = {"audited": "audited", "wrong_promises": "wrong", "bound": "allowed"}
    return {"rejected": rejected} | {name: totals[column] for name, column in names.items()}


def drive(directory: str, sensors: str, drain: str = "") -> None:
    """Run the query until it is killed, or until all files are read."""
    from aftlib.spark.session import session

    place = Path(directory)
    spark = session("soak")
    record_metrics(spark, place / "metrics")
    reader = spark.readStream.schema("time timestamp, sensor string, value double")
    reader = reader.option("maxFilesPerTrigger", 100).option("cleanSource", "delete")
    windows = recoverable(reader.parquet(str(place / "incoming")), promise(int(sensors)))
    writer = windows.writeStream.option("checkpointLocation", str(place / "stored" / "checkpoint"))
    query = (writer.trigger(availableNow=True) if drain else writer).start(str(place / "windows"))
    if drain:
        query.awaitTermination()
        table = spark.read.parquet(str(place / "windows")).toPandas()
        table["start"] = table["start"].dt.tz_localize("UTC")
        table.to_parquet(place / "drained.parquet")
    if not (place / "growth.txt").exists():  # a short soak
        note_growth(place, spark)
    while not drain and not query.awaitTermination(GROWTH_EVERY_S):
        note_growth(place, spark)
    spark.stop()


def note_growth(place: Path, spark: SparkSession) -> None:
    """Add a line: hours, MB of live heap, of all processes and of the JVM, and stored files."""
    files = sum(path.is_file() for path in (place / "stored").rglob("*"))
    memory = sum(map(memory_mb, [os.getpid(), *descendants(os.getpid())]))
    java = memory_mb(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    with (place / "growth.txt").open("a") as growth:
        growth.write(f"{time.time() / 3600} {live_heap_mb(spark)} {memory} {java} {files}\n")


def memory_mb(process: int) -> float:
    """Return a process's resident memory, MB, with its share of what several processes have."""
    with suppress(OSError):  # it has just ended
        words = Path(f"/proc/{process}/smaps_rollup").read_text().split()
        return int(words[words.index("Pss:") + 1]) / 1e3
    return 0.0


def live_heap_mb(spark: SparkSession) -> float:
    """Return MB that the JVM holds without garbage: the least of five times; tasks hold pages."""
    java, used = spark._jvm.java.lang, []  # type: ignore[union-attr]
    for _ in range(5):
        java.System.gc()
        heap = java.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
        used.append(heap.getUsed() / 1e6)
        time.sleep(0.5)
    return min(used)


def broken(score: Mapping[str, float]) -> list[str]:
    """Return a sentence for each guarantee that was broken: nothing may be lost or doubled."""
    harm = [f"{score[what]} {what}" for what in ("lost", "doubled", "wrong") if score[what]]
    if score["wrong_promises"] > score["bound"]:
        harm.append(f"{score['wrong_promises']} wrong guarantees, at most {score['bound']}")
    return harm


def main(seconds: str = "") -> None:
    """Soak, store the score in ``data/soak.json``, and print it."""
    with tempfile.TemporaryDirectory(prefix="aft-soak-") as scratch:
        lasts = float(seconds or os.environ.get("AFT_SOAK_SECONDS") or 1800)
        result = soak(lasts, Path(scratch))
    data_dir().mkdir(exist_ok=True)
    with atomic_file(data_dir() / "soak.json") as file:
        file.write_text(json.dumps(result))
    sys.stdout.write(f"{result}\n")
    if harm := broken(result):
        sys.exit("\n".join(harm))


if __name__ == "__main__":
    if sys.argv[1:2] == ["drive"]:
        drive(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
