"""Accounts: whether one more promise may be made, by what became of those before it.

**Theorem.** Take any data, any predictor and any rule of proposing, also adversarial ones. Among
the N declared rounds of an account whose outcome came to be known there are E errors, and

1. from the beginning up to any time T: E ≤ δN + c₀ + J + (h − 1)(1 − δ), where J, the most credits
   at once, is at most min(8, 1 + log₂(T/m));
2. in any interval: E ≤ δN + C + J + (h − 1)(1 − δ);
3. of n sensors together, up to any time: E ≤ δN + 2u + uJ + hn(1 − δ), u = max(2, 0.3 n).

*Proof.* Let W be the budget after the outcomes of all declared rounds, in order. An outcome is
known h rounds after its declaration, so the budget U that a declaration sees is W before the at
most h − 1 rounds that are pending. It needs U ≥ 1 − δ − j; each pending round and this one cost at
most 1 − δ, so W ≥ −J − (h − 1)(1 − δ) at all times. Rounds that were not declared leave W alone,
and a declared one raises it by at most δ − x. So the sum of x − δ over an interval is at most the
budget at its beginning less the one at its end: c₀, or at most C, plus J + (h − 1)(1 − δ).
Credit j + 1 takes m·2ʲ blocked rounds, hence J. With u for 1 and n errors a round this gives 3. ∎
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aftlib.core.checks import require_number
from aftlib.core.compiling import jit

START, CAP = 5.0, 20.0
"""c₀ and C: what a sensor's account begins with, and the most that it holds."""
POOL_START, POOL_CAP = 2.0, 32.0
"""The same of the pooled account, in units of u."""
QUARANTINE = 30
"""m: blocked rounds that the first credit takes; each further one takes twice as many."""
MOST_CREDITS = 8
BUDGET, CREDITS, RUN, BAD = range(4)
"""Columns of an account: U, j, and the pairs and errors of the quarantine that runs."""


@jit()
def settle(account: Any, bad: float, number: int, delta: float, cap: float, unit: float) -> None:
    """Book `number` declared pairs of which `bad` were wrong; repay credits that are not needed."""
    account[BUDGET] = min(cap, account[BUDGET] + delta * number - bad)
    while account[CREDITS] > 0 and account[BUDGET] >= unit * (2 - account[CREDITS]):
        account[CREDITS] -= 1
        account[RUN] = account[BAD] = 0


@jit()
def prove(account: Any, bad: float, number: int, delta: float, size: int) -> None:
    """Count pairs that were proposed but blocked; a run with few enough errors earns a credit."""
    if account[CREDITS] >= MOST_CREDITS:
        return
    wanted = QUARANTINE * 2.0 ** account[CREDITS] * size
    account[RUN] += number
    account[BAD] += bad
    if account[BAD] > math.floor(delta / 2 * wanted):
        account[RUN] = account[BAD] = 0
    elif account[RUN] >= wanted:
        account[CREDITS] += 1
        account[RUN] = account[BAD] = 0


@jit()
def is_open(account: Any, delta: float) -> bool:
    """Whether a sensor's account bears one more error."""
    return account[BUDGET] + account[CREDITS] >= 1 - delta


@jit()
def pool_bears(pool: Any, account: Any, unit: float) -> bool:
    """Whether the pooled account bears this sensor: all, only the well-off, or none."""
    free = pool[BUDGET] + unit * pool[CREDITS]
    return free >= 0 and (free >= unit or account[BUDGET] >= 0.6 * START)


@jit()
def declare(proposed: Any, accounts: Any, pool: Any, delta: float, unit: float, out: Any) -> None:
    """Fill `out` with 0 (not proposed), 1 (proposed but blocked) or 2 (declared), a sensor each."""
    for i in range(proposed.size):
        allowed = is_open(accounts[i], delta) and pool_bears(pool, accounts[i], unit)
        out[i] = 0 if not proposed[i] else 2 if allowed else 1


@jit()
def learn(wrong: Any, said: Any, accounts: Any, pool: Any, delta: float, unit: float) -> None:
    """Book the outcomes of one earlier round: 1 wrong, 0 right, NaN never known."""
    declared = errors = blocked = blocked_errors = 0
    for i in range(wrong.size):
        if np.isnan(wrong[i]) or said[i] == 0:
            continue
        if said[i] == 2:
            settle(accounts[i], wrong[i], 1, delta, CAP, 1.0)
            declared += 1
            errors += int(wrong[i])
        else:
            prove(accounts[i], wrong[i], 1, delta, 1)
            blocked += 1
            blocked_errors += int(wrong[i])
    if declared:
        settle(pool, errors, declared, delta, POOL_CAP * unit, unit)
    elif blocked:
        prove(pool, blocked_errors, blocked, delta, wrong.size)


@jit()
def pool_unit(sensors: int) -> float:
    """Unit u of the pooled account."""
    return max(2.0, 0.3 * sensors)


class Accounts:
    """An account a sensor, and one over all of them, for promises `horizon` rounds ahead.

    Of the declared rounds a share `delta` may be wrong; outcomes are known `horizon` rounds later.
    ValueError when sensors or horizon is no whole number ≥ 1, or delta lies outside (0, 1).

    Examples
    --------
    >>> accounts = Accounts(sensors=1, delta=0.05)
    >>> for _ in range(5):
    ...     said = accounts.declare([True])
    ...     accounts.update(said, [1.0])
    >>> accounts.declare([True])  # five errors used up what the account began with
    array([1])
    """

    def __init__(self, sensors: int, delta: float, horizon: int = 1) -> None:
        require_number("sensors", sensors, least=1, whole=True)
        require_number("horizon", horizon, least=1, whole=True)
        require_number("delta", delta, above=0, below=1)
        self.delta, self.horizon, self.unit = float(delta), int(horizon), pool_unit(sensors)
        self.accounts = np.zeros((sensors, 4))
        self.accounts[:, BUDGET] = START
        self.pool = np.zeros(4)
        self.pool[BUDGET] = POOL_START * self.unit

    def declare(self, proposed: Any) -> np.ndarray:
        """Return 0 (not proposed), 1 (blocked) or 2 (declared) a sensor."""
        said = np.zeros(len(self.accounts), np.int64)
        declare(
            np.asarray(proposed, np.bool_), self.accounts, self.pool, self.delta, self.unit, said
        )
        return said

    def update(self, said: Any, wrong: Any) -> None:
        """Book what became of a round: `said` as `declare` gave it, `wrong` 1, 0 or NaN a sensor.

        Rounds must come in the order in which they were declared.
        """
        said, wrong = np.asarray(said, np.int64), np.asarray(wrong, np.float64)
        learn(wrong, said, self.accounts, self.pool, self.delta, self.unit)


def slack(rounds: int, delta: float, horizon: int = 1) -> float:
    """Errors beyond δN that an account may have let pass in so many rounds (theorem, part 1)."""
    return START + most_credits(rounds) + (horizon - 1) * (1 - delta)


def pooled_slack(rounds: int, delta: float, sensors: int, horizon: int = 1) -> float:
    """The same of the pooled account (theorem, part 3)."""
    unit = pool_unit(sensors)
    return unit * (POOL_START + most_credits(rounds)) + horizon * sensors * (1 - delta)


def most_credits(rounds: int) -> int:
    """Most credits J that an account can have taken in so many rounds."""
    return min(MOST_CREDITS, int(math.log2(rounds / QUARANTINE + 1))) if rounds > 0 else 0


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
