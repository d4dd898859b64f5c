"""Liveness of processes: signs of life, locks, and waiting for slow databases."""

from __future__ import annotations

import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from aftlib.core.paths import take_lock

LOG = logging.getLogger("aftlib.shared_state")
WAITS = "waiting:"
"""First word of a log line that names the process or store for which the job waits."""
REPORT_S = 1.0
"""Seconds of waiting after which such a line is logged."""
LONGEST_S = 1e6
"""Most seconds to wait: PostgreSQL counts milliseconds in 32 bits."""
T = TypeVar("T")


def patiently(
    attempt: Callable[[], T], patience_s: float, refused: type[Exception] | tuple, pause_s: float
) -> T:
    """Call `attempt` until it raises no error of the types `refused`; return its result.

    The log reports one such error, after `REPORT_S` seconds. After `patience_s` seconds the error
    is raised.
    """
    start, reported = time.monotonic(), False
    while True:
        try:
            return attempt()
        except refused as error:
            waited_s = time.monotonic() - start
            if waited_s > patience_s:
                raise
            if waited_s > REPORT_S and not reported:
                reported = True
                LOG.warning("%s %s; waiting for it", WAITS, " ".join(str(error).split()))
            time.sleep(pause_s)


@contextmanager
def watched(call: str, timeout_s: float, break_off: Callable[[], object]) -> Iterator[None]:
    """Report a blocking call after `REPORT_S`, and break it off after `timeout_s` seconds.

    A stopped server enforces no timeouts of its own, so this timeout uses the client's clock.
    """
    over = threading.Event()

    def watch() -> None:
        first_s = min(REPORT_S, timeout_s)
        if over.wait(first_s):
            return
        LOG.warning("%s %s has no answer for %g s; waiting for it", WAITS, call, first_s)
        if not over.wait(timeout_s - first_s):
            break_off()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


SILENT_S = 5.0
"""Seconds without a sign of life after which a process is reported."""
LOOK_S = 0.05
_error_pipe: list[int] = []
"""Pipe to the supervisor, or empty. A pipe, because a file cannot be written on a full disk."""


def report_errors_to(pipe: int) -> None:
    """Set the pipe into which `fail` writes the error that ends this process."""
    _error_pipe[:] = [pipe]


def fail() -> None:
    """End this process, and report the reason to the supervisor."""
    try:
        for pipe in _error_pipe:
            os.write(pipe, traceback.format_exc()[-30_000:].encode())  # a pipe holds 64 KiB
    finally:
        os._exit(1)


def start_thread(work: Callable[..., None], *args: object) -> None:
    """Run work in a thread; an error in it ends the whole process."""

    def run() -> None:
        try:
            work(*args)
        except BaseException:
            fail()

    threading.Thread(target=run, daemon=True).start()


def end_with_parent(parent: int, sign: Path) -> None:
    """Touch the file `sign` every `LOOK_S` seconds; end this process when its parent has ended."""
    while os.getppid() == parent:
        with suppress(OSError):  # others report a full disk
            sign.touch()
        time.sleep(LOOK_S)
    os._exit(1)


@contextmanager
def held_lock(path: Path | str, patience_s: float) -> Iterator[None]:
    """Hold a file's lock during the block; it is released, too, if this process and its forks end.

    After `patience_s` seconds a TimeoutError names the other holder.
    """
    with open(path, "a+") as file:
        patiently(lambda: take_lock(file), patience_s, TimeoutError, LOOK_S)
        yield
