"""A soak of `recoverable`: a stream of files with gaps, odd rows and new sensors, under kills.

python -m benchmarks.soak [SECONDS [GROUPS]]

By default for half an hour, with one group of 64 sensors; several groups have 20 each. This process
writes the files and kills; a driver of its own runs the query. The result goes to
``data/soak.json``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import theilslopes

from aftlib import recoverable
from aftlib.core.paths import data_dir
from aftlib.core.storage import atomic_file
from aftlib.streaming.metrics import metrics_table, record_metrics
from benchmarks.soak_data import BEGIN, EPSILON, SAMPLES, Stream, promise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
GROWTH_EVERY_S = 20
LIFETIMES_S = (30, 20, 20, 30, 40, 60)
"""How long the first drivers run, if that is at most half of the soak; the last one runs until the
end, to watch its memory."""
MOST_FAILED = 5
"""Drivers that may end by themselves, as when Spark gives up a micro-batch whose workers crash
again and again. Such a driver is started again like a killed one."""


def feed(incoming: Path, stream: Stream, window: int) -> None:
    """Write the file of a window; a reader sees it as a whole."""
    hidden = incoming / f".{window:07}.parquet"
    rows = stream.rows(window)
    rows.to_parquet(hidden, coerce_timestamps="us", allow_truncated_timestamps=True)
    hidden.rename(hidden.with_name(hidden.name[1:]))


def soak(seconds: float, place: Path, groups: int = 1) -> dict[str, Any]:
    """Feed the stream while its workers and drivers are killed; the score of all rows.

    RuntimeError when drivers end by themselves again and again.
    """
    stream = Stream(groups)
    counts = feed_and_kill(seconds, place, stream)
    subprocess.run(command(place, stream, stream.after, "drain"), check=True, cwd=ROOT)
    about = {"groups": groups, "sensors": stream.after, "seconds": seconds}
    names = (place / "emitted.txt").read_text().splitlines()
    tables = (pd.read_parquet(place / "windows" / name) for name in names)
    rows = score(stream, tables, counts["windows"])
    return about | counts | rows | metrics(place) | growth(place)


def feed_and_kill(seconds: float, place: Path, stream: Stream) -> dict[str, int]:
    """Feed the stream while its workers and drivers are killed; what was fed, and the failures."""
    more = stream.groups - 1  # guards restart slowly, so files and kills come at a slower pace
    lifetimes_s = [*(each + 0.06 * more for each in LIFETIMES_S * (2 if more else 1)), np.inf]
    kill_every_s = 8 + 0.016 * more
    most_unread = max(8, 100 // stream.groups)
    incoming = place / "incoming"
    incoming.mkdir()
    end = time.monotonic() + seconds
    driver: subprocess.Popen[bytes] | None = None
    drivers = 0
    failed = 0
    kills = 0
    windows = 0
    rng = np.random.default_rng(9)
    try:
        while time.monotonic() < end or drivers < 2:
            if driver is None:
                sensors = stream.after if drivers else stream.before
                driver = subprocess.Popen(command(place, stream, sensors), cwd=ROOT)
                killed = min(drivers - failed, len(lifetimes_s) - 1)
                until = time.monotonic() + min(lifetimes_s[killed], seconds / 2)
                drivers += 1
                next_kill = time.monotonic() + kill_every_s
            if driver.poll() is not None:  # Spark does not repeat what a driver's own process does
                driver = None
                failed += 1
                if failed > MOST_FAILED:
                    raise RuntimeError(f"{failed} drivers ended by themselves ({MOST_FAILED} may)")
                continue
            if len(list(incoming.glob("*.parquet"))) < most_unread:
                feed(incoming, stream, windows)
                windows += 1
            if time.monotonic() > next_kill:
                kills += kill_worker(rng)
                next_kill += kill_every_s
            # sensors join only if the first driver, which lacks them, has emitted windows
            if time.monotonic() > until and kills and (drivers > 1 or has_emitted(place)):
                stop(driver)
                driver = None
            time.sleep(0.5 + 0.003 * more)
    finally:
        if driver is not None:
            stop(driver)
    return {
        "windows": windows,
        "rounds": drivers + 1,
        "failures": drivers + kills,
        "driver_kills": drivers - failed,
        "worker_kills": kills,
        "ended_by_themselves": failed,
    }


def has_emitted(place: Path) -> bool:
    """Whether the second micro-batch has ended: the first one ends no window, but writes a file."""
    return (place / "windows" / "_spark_metadata" / "1").exists()


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


def command(place: Path, stream: Stream, sensors: int, *drain: str) -> list[str]:
    """Return the command of a driver."""
    program = [sys.executable, "-m", "benchmarks.soak", "drive"]
    return [*program, str(place), str(stream.groups), str(sensors), *drain]


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


def score(stream: Stream, tables: Iterable[pd.DataFrame], windows: int) -> dict[str, int]:
    """Compare the rows with the samples, of which those of missing windows were not in the stream.

    A sensor's windows are due until the last window. `rows` counts the samples of the stream,
    `to_read_again` the result's rows whose state is ``lost``, and `lost` those that are missing.
    `not_due` counts rows of silent windows that need none, as when a driver was killed between two
    steps of its epoch commit. `windows` is the number of windows in the stream.
    """
    truth = np.array([stream.means(window) for window in range(windows)])
    sent = np.array([stream.sent(window) for window in range(windows)])
    rows = np.zeros(truth.shape, int)
    counts = Counter[str]()
    for table in tables:
        place = places_of(table)
        np.add.at(rows, place, 1)
        off = np.abs(table["value"].to_numpy() - truth[place])
        exact = (table["state"] == "exact").to_numpy(bool)
        estimated = (table["state"] == "estimated").to_numpy(bool)
        counts["wrong"] += int((exact & ~(sent[place] & (off <= 1e-6))).sum())
        counts["estimated"] += int(estimated.sum())
        counts["outside"] += int((estimated & ~(off <= EPSILON)).sum())
        counts["to_read_again"] += int((table["state"] == "lost").sum())
    rows = rows[: np.flatnonzero(rows.any((1, 2)))[-1] + 1]
    has_new_sensors = rows[:, :, stream.before :].any((1, 2))
    change = int(np.append(has_new_sensors, True).argmax())
    due = stream.due(len(rows), change)
    return {
        "rows": SAMPLES * int(sent.sum()),
        "due": int(due.sum()),
        "lost": int((due & (rows == 0)).sum()),
        "doubled": int((rows - 1).clip(0).sum()),
        "not_due": int((~due & (rows > 0)).sum()),
        "joined": int((rows.any(0) & (rows[0] == 0)).sum()),
        **counts,
    }


def places_of(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the window, the group and the sensor of each row by their numbers."""
    time_since = pd.to_datetime(table["start"], utc=True) - BEGIN
    window = (time_since / pd.Timedelta(seconds=SAMPLES)).to_numpy().round().astype(int)
    sensor = table["sensor"].str[1:].to_numpy().astype(int)
    group = table["site"].to_numpy() if "site" in table else np.zeros(len(table), int)
    return window, group, sensor


def metrics(place: Path) -> dict[str, float]:
    """Return what the metrics have: rejected rows, and the guarantee's audit."""
    totals = metrics_table(place / "metrics").iloc[:, 0]
    rejected = totals[totals.index.str.startswith("rejected.")].sum()
    names = {"audited": "audited", "wrong_promises": "wrong", "bound": "allowed"}
    return {"rejected": rejected} | {name: totals[column] for name, column in names.items()}


def drive(directory: str, groups: str, sensors: str, drain: str = "") -> None:
    """Run the query until it is killed, or until all files are read."""
    from aftlib.spark.session import session

    place = Path(directory)
    spark = session("soak")
    record_metrics(spark, place / "metrics")
    reader = spark.readStream.schema("time timestamp, site bigint, sensor string, value double")
    reader = reader.option("maxFilesPerTrigger", 100).option("cleanSource", "delete")
    samples = reader.parquet(str(place / "incoming"))
    group = "site" if int(groups) > 1 else None
    windows = recoverable(samples, promise(int(sensors)), group=group)
    writer = windows.writeStream.option("checkpointLocation", str(place / "stored" / "checkpoint"))
    query = (writer.trigger(availableNow=True) if drain else writer).start(str(place / "windows"))
    if drain:
        query.awaitTermination()
        emitted = spark.read.parquet(str(place / "windows")).inputFiles()
        (place / "emitted.txt").write_text("\n".join(Path(file).name for file in emitted))
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


def main(seconds: str = "1800", groups: str = "1") -> None:
    """Soak, store the score in ``data/soak.json``, and print it."""
    with tempfile.TemporaryDirectory(prefix="aft-soak-") as scratch:
        result = soak(float(seconds), Path(scratch), int(groups))
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
