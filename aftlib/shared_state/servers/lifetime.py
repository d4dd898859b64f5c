"""How the processes of a stage live: each dies with the supervisor, and with any of its threads."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aftlib.core.paths import take_lock
from aftlib.shared_state.stores.waiting import patiently

SILENT_S = 5.0
"""Seconds without a sign of life after which a process is reported."""
LOOK_S = 0.05
_last_words: list[int] = []
"""Pipe to the supervisor, in a process that has one: a full disk does not stop it."""


def speak_through(pipe: int) -> None:
    """Send the error that ends this process through a pipe."""
    _last_words[:] = [pipe]


def fail() -> None:
    """End this process, and tell the supervisor why."""
    try:
        for pipe in _last_words:
            os.write(pipe, traceback.format_exc()[-30_000:].encode())  # a pipe holds 64 KiB
    finally:
        os._exit(1)


def start_thread(work: Callable[..., None], *args: object) -> None:
    """Run work beside the rest of the process; an error of it ends the process, not it alone."""

    def run() -> None:
        try:
            work(*args)
        except BaseException:
            fail()

    threading.Thread(target=run, daemon=True).start()


def live_with(parent: int, sign: Path) -> None:
    """Renew a sign of life now and then; end this process soon after its parent has ended."""
    while os.getppid() == parent:
        with suppress(OSError):  # of a full disk others will tell
            sign.touch()
        time.sleep(LOOK_S)
    os._exit(1)


@contextmanager
def only_one(path: Path | str, patience_s: float) -> Iterator[None]:
    """Hold a lock that nobody else holds; it is gone with its process and those forked from it.

    A TimeoutError names who else holds it for so many seconds.
    """
    with open(path, "a+") as file:
        patiently(lambda: take_lock(file), patience_s, TimeoutError, LOOK_S)
        yield
