"""How the processes of a stage live: each dies with the supervisor, and with any of its threads."""

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
"""How a line begins that says who or what is waited for."""
SILENT_S = 5.0
"""Seconds after which somebody is told about it."""
LOOK_S = 0.05
T = TypeVar("T")
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


def patiently(
    asks: Callable[[], T], patience_s: float, refused: type[Exception] | tuple, pause_s: float
) -> T:
    """What is asked for, as soon as it is not refused; after some seconds a log says why it waits.

    The last refusal is raised when patience has come to its end.
    """
    begin, told = time.monotonic(), False
    while True:
        try:
            return asks()
        except refused as error:
            waited_s = time.monotonic() - begin
            if waited_s > patience_s:
                raise
            if waited_s > SILENT_S and not told:
                told = True
                LOG.warning("%s %s; it is waited for", WAITS, " ".join(str(error).split()))
            time.sleep(pause_s)


@contextmanager
def only_one(path: Path | str, patience_s: float) -> Iterator[None]:
    """Hold a lock that nobody else holds; it is gone with its process and those forked from it.

    A TimeoutError names who else holds it for so many seconds.
    """
    with open(path, "a+") as file:
        patiently(lambda: take_lock(file), patience_s, TimeoutError, LOOK_S)
        yield
