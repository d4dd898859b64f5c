"""Helpers of several benchmarks: seconds of some work, the machine, and a line of progress."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def best_of(times: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """Least seconds of several runs, and the last result."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds), result


def say(text: str) -> None:
    """Show progress; results go to the standard output."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """Processor, cores, memory, Python and commit, without the machine's name."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text(errors="replace").splitlines() if about.is_file() else []
    model = next((ln.partition(":")[2].strip() for ln in lines if ln[:10] == "model name"), "")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
        "commit": head.stdout.strip(),
    }
