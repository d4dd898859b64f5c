"""Flink's jobs: its jars from PyPI, compiled here.

`RecoveryJob.java` is for `benchmarks.recovery`, on a cluster of processes. `MergeJob.java` is for
the same sums as D3's, inside one warm JVM.

`MergeJob.java` does what Flink's own fast operators do, so that what is left is Flink:

- A task reads a mebibyte of its files at a time and parses the bytes into one record that is used
  again. No String, no copy. A record is an array of three numbers; only its key is boxed behind
  `keyBy`, whose interface asks for that.
- Keyed state is touched once per tuple, on the heap, without a timer per key: the last watermark
  walks over all keys. Late merge sums into an array of primitives before `keyBy`. The third mode,
  D3's prototype, merges these arrays into one RocksDB of the TaskManager instead, in transactions
  of 4,096 sorted keys.
- Buffers leave when they are full. No checkpoint is taken.
- The heap is 3 GB from the start, and the collector the parallel one, made for throughput.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

VERSION = "2.3.0"
SOURCES = sorted(Path(__file__).parent.glob("*.java"))
COLUMNS = ["folder", "mode", "seconds", "tuples", "keys", "sum"]
JVM = ("-Xms3g", "-Xmx3g", "-XX:+UseParallelGC")
OPEN = ("lang", "lang.reflect", "util", "util.concurrent", "io", "net", "nio", "text", "time")


def prepare(cache: Path) -> str:
    """Class path of the job, whose jars (330 MB) and classes are kept under `cache`.

    Raises
    ------
    RuntimeError
        When there is no Java compiler, or the jars cannot be had; the message says which.
    """
    if shutil.which("javac") is None or shutil.which("java") is None:
        raise RuntimeError("no Java compiler (javac) on PATH: install a JDK of 17 or newer")
    home, classes = cache / f"flink-{VERSION}", cache / f"flink-{VERSION}-classes"
    if not (home / "pyflink" / "lib").exists():
        print(f"fetching the jars of Flink {VERSION} (330 MB)", flush=True)
        package = f"apache-flink-libraries=={VERSION}"
        _checked([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target",
                  str(home), package], f"pip cannot install {package}")  # fmt: skip
    path = f"{home / 'pyflink' / 'lib'}/*"
    classes.mkdir(exist_ok=True)
    _checked(["javac", "-cp", path, "-d", str(classes), *map(str, SOURCES)], "javac fails")
    return f"{path}:{classes}"


def timed(
    class_path: str, mode: str, folders: Sequence[Path], runs: int, tasks: int
) -> pd.DataFrame:
    """Net run time, that is without the start of its cluster, of `runs` runs in one JVM.

    One more run of every folder comes first and is left out.
    """
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPEN]
    command = ["java", *JVM, *opened, "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
               "-cp", class_path, "MergeJob", str(tasks), str(runs + 1), mode,
               *map(str, folders)]  # fmt: skip
    lines = _checked(command, "Flink's job fails").splitlines()
    rows = [line.split("\t") for line in lines if line.count("\t") == len(COLUMNS) - 1]
    numbers = dict.fromkeys(("tuples", "keys", "sum"), int) | {"seconds": float}
    return pd.DataFrame(rows[len(folders) :], columns=COLUMNS).astype(numbers)


def _checked(command: list[str], failure: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{failure}: {done.stderr.strip()[-500:]}")
    return done.stdout
