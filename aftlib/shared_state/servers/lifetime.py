"""How the processes of a stage live: each dies with the supervisor, and with any of its threads."""

from __future__ import annotations

import fcntl
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

LOOK_S = 0.05


def or_die(work: Callable[..., None]) -> Callable[..., None]:
    """Make an error of a thread end its process, instead of the thread alone."""

    @wraps(work)
    def checked(*args: Any) -> None:
        try:
            work(*args)
        except BaseException:
            fail()

    return checked


def fail() -> None:
    """End this process, and leave the error where the supervisor finds it."""
    try:
        Path(f"error-{os.getpid()}.txt").write_text(traceback.format_exc())
    finally:  # on a full disk too
        os._exit(1)


def start_thread(work: Callable[..., None], *args: object) -> None:
    """Run work beside the rest of the process."""
    threading.Thread(target=or_die(work), args=args, daemon=True).start()


def die_with(parent: int) -> None:
    """End this process soon after its parent has: nobody would restart it."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)


@contextmanager
def only_one(path: str) -> Iterator[None]:
    """Wait until nobody else holds the file; the lock is gone with its process."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
