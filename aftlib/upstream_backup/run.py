"""What came out of a simulated run, whichever engine made it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aftlib.upstream_backup.failures import Outage
from aftlib.upstream_backup.parameters import MS
from aftlib.upstream_backup.schemes import Scheme

NEVER = np.iinfo(np.int64).max
"""Time of what does not happen, in nanoseconds."""


@dataclass(frozen=True)
class Recovery:
    """One failure and what was sent again.

    Attributes
    ----------
    outage : Outage
    queue_at_crash : int
        Tuples in the queue kept for the dead node when it died (active standby: results in the
        secondary's queue).
    resent : ndarray, shape (q,)
        Tuples sent again, in order.
    done : ndarray, shape (q,)
        When the survivor had processed each, nanoseconds.
    delivered : ndarray, shape (q,)
        When the downstream node had each from the survivor.
    duplicates : int
        Of those sent again, the ones that the downstream node had already from the dead node.
    reprocessed : int
        Of those sent again, the ones that had to be processed; none where only results are sent.
    """

    outage: Outage
    queue_at_crash: int
    resent: np.ndarray
    done: np.ndarray
    delivered: np.ndarray
    duplicates: int
    reprocessed: int

    @property
    def recovery_ms(self) -> float:
        """The experiment's: from the request's arrival until the last one is processed again."""
        return self._since(self.outage.request, self.done) if self.reprocessed else 0.0

    @property
    def restored_ms(self) -> float:
        """Hwang et al.'s: from detection until the survivor is where the dead node was."""
        return self._since(self.outage.detected, self.done) if self.reprocessed else 0.0

    @property
    def caught_up_ms(self) -> float:
        """From detection until the downstream node has everything that was sent again."""
        return self._since(self.outage.detected, self.delivered)

    def _since(self, begin: int, times: np.ndarray) -> float:
        return float(times[-1] - begin) / MS if len(times) else 0.0


@dataclass(frozen=True)
class Run:
    """A stream through a standby system.

    Attributes
    ----------
    scheme : Scheme
    written : ndarray, shape (n,)
        When the upstream node wrote each tuple first, nanoseconds.
    delivered : ndarray, shape (n,)
        When the downstream node had each tuple's result first; `NEVER` where it had not.
    copies : ndarray, shape (n,)
        How often it came.
    recoveries : tuple of Recovery
        One a failure.
    """

    scheme: Scheme
    written: np.ndarray
    delivered: np.ndarray
    copies: np.ndarray
    recoveries: tuple[Recovery, ...]


@dataclass(frozen=True)
class Message:
    """One message as a sequence diagram draws it; times in nanoseconds.

    Attributes
    ----------
    kind : str
        "data", "result", "ACK 0", "ACK 1", "heartbeat", "answer", "request", "sent again", …
    source, target : str
        Nodes.
    sent, arrived : int
    tuples : tuple of int
        What it carries or acknowledges.
    """

    kind: str
    source: str
    target: str
    sent: int
    arrived: int
    tuples: tuple[int, ...] = ()


@dataclass(frozen=True)
class Trace:
    """What the event simulation saw.

    Attributes
    ----------
    run : Run
    messages : tuple of Message
        In order of arrival.
    queues : tuple of (time, tuples kept for the primary, tuples kept for the secondary)
        After each change, nanoseconds.
    """

    run: Run
    messages: tuple[Message, ...]
    queues: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
