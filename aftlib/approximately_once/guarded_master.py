"""The master with a guard: fed every window, it says which lost sensors may be estimated."""

from __future__ import annotations

import io
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import InitVar, dataclass, field

import numpy as np

from aftlib.approximately_once.master import Audit, Lost, Master, Read
from aftlib.guard import Guard
from aftlib.guard.accounts import Accounts, pooled_slack


@dataclass
class GuardedMaster(Master):
    """A master that estimates the sensors that were declared before they were lost.

    Windows go to the guard in their order, one round each, as soon as all before them are whole. A
    lost sensor that its guard had declared for an outage so long is estimated and stays unknown to
    the guard. Any other is read again, which ends its outage as far as the guard can see, so that
    its next window may be declared anew.

    The guard's promise is of losses that come independently of the data. What failures do to it is
    audited: each estimate is compared with the log later, in a second account of its own, and a
    sensor is only estimated while that one is open, too. Of N estimates audited, at most
    δN + u(2 + J) + P(1 − δ) are wrong (part 3 of the theorem in `guard.accounts`), P the most that
    were not yet audited at one time.
    """

    seasons: Sequence[float] = ()
    state: InitVar[bytes] = b""
    _whole: dict[int, np.ndarray] = field(default_factory=dict)  # not yet fed to the guard
    _open: list[tuple[int, np.ndarray, np.ndarray]] = field(default_factory=list)  # not audited
    # estimates audited, wrong ones, windows with a loss, and the most that were open at one time
    _counts: np.ndarray = field(default_factory=lambda: np.zeros(4, np.int64))

    def __post_init__(self, state: bytes) -> None:
        """Go on where the master that wrote the state was, or begin with nothing known."""
        epsilon, delta = self.requirement.epsilon, self.requirement.delta
        self.guard = Guard(self.assignment.workers, epsilon, delta, seasons=self.seasons)
        self.account = Accounts(self.model.size, delta)
        if state:
            fields = np.load(io.BytesIO(state), allow_pickle=False)
            self.guard = Guard.from_bytes(fields["guard"].tobytes())
            self.account.accounts, self.account.pool = fields["accounts"], fields["pool"]
            self._counts, windows = fields["counts"], fields["windows"].tolist()
            self._open = list(zip(windows, fields["said"], fields["estimates"], strict=True))

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
        said = self.account.declare(lost & told.declared[0])
        if said.any():
            self._open.append((window, said, told.estimate[0]))
        opened = sum(int((one == 2).sum()) for _, one, _ in self._open)
        self._counts[2] += 1
        self._counts[3] = max(self._counts[3], opened)

        found = []
        for worker in sorted(owing):
            keys = self.assignment.workers[worker]
            here = np.array(keys)
            value, half_width = told.estimate[0, here], told.half_width[0, here]
            part = Lost(worker, keys, value, half_width, np.zeros(len(keys), int), said[here] == 2)
            found.append(part := part.mended(window, read))
            row[here] = np.where(part.estimated, np.nan, part.value)
        self._whole[window] = row
        return found

    def settle(self) -> None:
        """Feed the guard all windows of the micro-batch."""
        self._feed(max(self._whole, default=self.next - 1) + 1)

    def audit(self, read: Read) -> None:
        """Compare what was estimated with the log, and book it in the order of the estimates."""
        for window, said, estimate in self._open:
            keys, wrong = np.flatnonzero(said), np.full(said.size, np.nan)
            truth, _ = read(window, keys.tolist())
            off = np.abs(estimate[keys] - truth)
            wrong[keys] = np.where(np.isnan(off), np.nan, off > self.requirement.epsilon)
            self.account.update(said, wrong)
            known = (said == 2) & np.isfinite(wrong)
            self._counts[:2] += known.sum(), int(wrong[known].sum())
        self._open.clear()

    @property
    def audited(self) -> Audit:
        """The second account so far."""
        audited, wrong, rounds, most = self._counts.tolist()
        delta = self.requirement.delta
        slack = pooled_slack(rounds, delta, self.model.size, 0) + most * (1 - delta)
        return Audit(audited, wrong, delta * audited + slack)

    def to_bytes(self) -> bytes:
        """Guard, second account and open estimates, to be committed with the windows."""
        file, windows = io.BytesIO(), np.array([window for window, *_ in self._open], np.int64)
        shape = (len(windows), self.model.size)
        np.savez(
            file,
            guard=np.frombuffer(self.guard.to_bytes(), np.uint8),
            accounts=self.account.accounts,
            pool=self.account.pool,
            counts=self._counts,
            windows=windows,
            said=np.array([said for _, said, _ in self._open], np.int64).reshape(shape),
            estimates=np.array([found for *_, found in self._open]).reshape(shape),
        )
        return file.getvalue()

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
