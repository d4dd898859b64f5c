"""Waiting for a database that others hold or that does not answer: reported, and never for ever."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

LOG = logging.getLogger("aftlib.shared_state")
WAITS = "waiting:"
"""How a line begins that names the process or store that is waited for."""
REPORT_S = 1.0
"""Seconds after which such a line is logged."""
T = TypeVar("T")


def patiently(
    attempt: Callable[[], T], patience_s: float, refused: type[Exception] | tuple, pause_s: float
) -> T:
    """Return the result of the first attempt that is not refused.

    The log reports the refusal once after `REPORT_S`. The last refusal is raised when `patience_s`
    seconds have passed.
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
                LOG.warning("%s %s; it is waited for", WAITS, " ".join(str(error).split()))
            time.sleep(pause_s)


@contextmanager
def watched(call: str, timeout_s: float, break_off: Callable[[], object]) -> Iterator[None]:
    """Report a blocking call after `REPORT_S`, and break it off after `timeout_s` seconds.

    A server that is stopped enforces none of its own timeouts, so this runs on the client's clock.
    """
    over = threading.Event()

    def watch() -> None:
        first_s = min(REPORT_S, timeout_s)
        if over.wait(first_s):
            return
        LOG.warning("%s %s has no answer for %g s; it is waited for", WAITS, call, first_s)
        if not over.wait(timeout_s - first_s):
            break_off()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()
