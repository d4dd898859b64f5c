"""The account of real failures: their estimates, compared with the log afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from aftlib.guard.accounts import Accounts, pooled_slack

Off = Callable[[tuple[int, ...], list[int], np.ndarray], np.ndarray]
"""How far estimates of some sensors were off at a place; NaN where the log does not say."""


@dataclass(frozen=True)
class Audit:
    """What became of the estimates of real failures, compared with the log afterwards."""

    estimates: int  # whose truth was read
    wrong: int  # of these, off by more than ε
    bound: float  # most that may be wrong, whatever the data and the failures


class Estimates:
    """Estimates of real failures, in an account that ends them where failures go with the data.

    A guard's promise is of losses that come independently of the data. So every estimate is looked
    up later, in their order, and a sensor is only estimated while its account is open here, too. Of
    N that were audited at most δN + u(2 + J) + P(1 − δ) are wrong (part 3 of the theorem in
    `guard.accounts`), P the most that were not yet audited at one time.

    `place` names the numbers that say where an estimate belongs, as they are kept: the first is a
    window.
    """

    def __init__(self, sensors: int, delta: float, *place: str) -> None:
        self.account, self.names = Accounts(sensors, delta), place
        # a failure each, not audited yet: its place, and of each sensor what was said and estimated
        self.open: list[tuple[tuple[int, ...], np.ndarray, np.ndarray]] = []
        # estimates audited, wrong ones, failures, and the most that were open at one time
        self.counts = np.zeros(4, np.int64)

    def declare(self, place: tuple[int, ...], asked: np.ndarray, estimate: ArrayLike) -> np.ndarray:
        """After a failure, of the sensors asked for those that may stay estimated; bool, (n,)."""
        said = self.account.declare(asked)
        self.open.append((place, said, np.array(np.broadcast_to(estimate, said.shape))))
        at_once = sum(int((one == 2).sum()) for _, one, _ in self.open)
        self.counts[2:] = self.counts[2] + 1, max(self.counts[3], at_once)
        return said == 2

    def audit(self, off: Off, limit: np.ndarray, last: float = np.inf) -> None:
        """Book the estimates of windows up to `last`; wrong is what is off by more than `limit`."""
        due = [one for one in self.open if one[0][0] <= last]
        for place, said, estimate in due:
            keys, wrong = np.flatnonzero(said), np.full(said.size, np.nan)
            if keys.size:
                found = off(place, keys.tolist(), estimate[keys])
                wrong[keys] = np.where(np.isnan(found), np.nan, found > limit[keys])
            self.account.update(said, wrong)
            known = (said == 2) & np.isfinite(wrong)
            self.counts[:2] += known.sum(), int(wrong[known].sum())
        self.open = self.open[len(due) :]

    @property
    def audited(self) -> Audit:
        """What the audits came to so far."""
        estimates, wrong, failures, most = self.counts.tolist()
        delta, n = self.account.delta, len(self.account.accounts)
        slack = pooled_slack(failures, delta, n, 0) + most * (1 - delta)
        return Audit(estimates, wrong, delta * estimates + slack)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that changes, to be kept."""
        shape = len(self.open), len(self.account.accounts)
        places = np.array([place for place, *_ in self.open], np.int64)
        known = {"accounts": self.account.accounts, "pool": self.account.pool}
        return known | {
            "counts": self.counts,
            "said": np.array([said for _, said, _ in self.open], np.int64).reshape(shape),
            "estimates": np.array([found for *_, found in self.open], float).reshape(shape),
            **dict(zip(self.names, places.reshape(-1, len(self.names)).T, strict=True)),
        }

    def restore(self, found: Mapping[str, np.ndarray]) -> None:
        """Go on from what `arrays` gave."""
        self.account.accounts, self.account.pool = found["accounts"], found["pool"]
        self.counts = found["counts"]
        places = zip(*(found[name].tolist() for name in self.names), strict=True)
        self.open = list(zip(places, found["said"], found["estimates"], strict=True))
