"""Helpers of several benchmarks: seconds of some work, and a line of progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
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
