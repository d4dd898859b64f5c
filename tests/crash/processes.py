"""Drivers in processes of their own; pytest shows their errors with a failed test."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import ModuleType
from typing import Any

KILLED = -signal.SIGKILL
"""Exit status of a driver that was killed."""


def start(driver: ModuleType, *arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start a module of drivers in a process of its own."""
    command = [sys.executable, "-m", driver.__name__, *map(str, arguments)]
    return subprocess.Popen(command, **options)


def run(driver: ModuleType, *arguments: object) -> int:
    """Run a driver; return its exit status."""
    return start(driver, *arguments).wait(timeout=900)
