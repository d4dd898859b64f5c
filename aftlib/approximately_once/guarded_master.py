"""The master with a guard: fed every window, it says which lost sensors may be estimated."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import InitVar, dataclass, field

import numpy as np

from aftlib.approximately_once.master import Lost, Master, Read
from aftlib.core.query_directory import pack_arrays, unpack_arrays
from aftlib.guard import Guard
from aftlib.guard.audit import Audit, Estimates


@dataclass
class GuardedMaster(Master):
    """A master that estimates the sensors that were declared before they were lost.

    Windows go to the guard in their order, one round each, as soon as all before them are whole. A
    lost sensor that its guard had declared for an outage so long is estimated and stays unknown to
    the guard. Any other is read again, which ends its outage as far as the guard can see, so that
    its next window may be declared anew.

    What failures do to its promise is audited: a sensor is only estimated while the account of real
    failures is open, too (`guard.audit`).
    """

    seasons: Sequence[float] = ()
    state: InitVar[bytes] = b""
    _whole: dict[int, np.ndarray] = field(default_factory=dict)  # not yet fed to the guard

    def __post_init__(self, state: bytes) -> None:
        """Go on where the master that wrote the state was, or begin with nothing known."""
        epsilon, delta = self.requirement.epsilon, self.requirement.delta
        self.guard = Guard(self.assignment.workers, epsilon, delta, seasons=self.seasons)
        self.estimates = Estimates(self.model.size, delta, "windows")
        if state:
            fields = unpack_arrays(state)
            self.guard = Guard.from_bytes(fields["guard"].tobytes())
            self.estimates.restore(fields)

    @property
    def next(self) -> int:
        """First window that is not settled: those before it went to the guard."""
        return self.guard.rounds

    def recover(self, window: int, read: Read) -> list[Lost]:
        """(4) Every aggregate lost in the window: estimated where that was declared, else read."""
        row, _, owing = self._take(window)
        self._feed(window)
        lost = np.isin(self.assignment.worker_of, list(owing))
        trial = deepcopy(self.guard)  # what it says of sensors that turn out to be read is not kept
        told = trial.update(row)
        asked = lost & told.declared[0]
        estimated = self.estimates.declare((window,), asked, told.estimate[0])

        found = []
        for worker in sorted(owing):
            keys = self.assignment.workers[worker]
            here = np.array(keys)
            value, half_width = told.estimate[0, here], told.half_width[0, here]
            part = Lost(worker, keys, value, half_width, np.zeros(len(keys), int), estimated[here])
            found.append(part := part.mended(window, read))
            row[here] = np.where(part.estimated, np.nan, part.value)
        self._whole[window] = row
        return found

    def settle(self) -> None:
        """Feed the guard all windows of the micro-batch."""
        self._feed(max(self._whole, default=self.next - 1) + 1)

    def audit(self, read: Read) -> None:
        """Compare what was estimated with the log, and book it in the order of the estimates."""

        def off(place: tuple[int, ...], keys: list[int], estimate: np.ndarray) -> np.ndarray:
            return np.abs(estimate - read(place[0], keys)[0])

        self.estimates.audit(off, np.full(self.model.size, self.requirement.epsilon))

    @property
    def audited(self) -> Audit:
        """The account of real failures so far."""
        return self.estimates.audited

    def to_bytes(self) -> bytes:
        """Guard, account and open estimates, to be committed with the windows."""
        guard = np.frombuffer(self.guard.to_bytes(), np.uint8)
        return pack_arrays(guard=guard, **self.estimates.arrays())

    def _feed(self, until: int) -> None:
        """Give the guard the windows before one, which are whole, in their order."""
        rows = [self._whole.pop(window) for window in range(self.next, until)]
        if rows:
            self.guard.update(np.array(rows))

    def _take(self, window: int) -> tuple[np.ndarray, np.ndarray, set[int]]:
        taken = super()._take(window)
        if not taken[2]:
            self._whole[window] = taken[0]
        return taken
