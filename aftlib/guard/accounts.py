"""Accounts, which decide from the outcomes of earlier guarantees whether to certify again.

**Rule.** Each horizon h and sensor has an account, whose budget U begins with c₀. A proposal is
certified if U plus the account's credits j is at least 1 − δ; otherwise it is blocked. Its outcome
is known h rounds later. Of a certified round, a right outcome raises U by δ, up to C, and a wrong
one lowers it by 1 − δ. A run of m·2ʲ blocked rounds, of which at most a share δ was wrong, earns a
credit. A credit is repaid when U is at least 2 − j. Each horizon also has a pool, an account of all
its sensors together: its budget begins with 2u, and its credits are u each. A round is certified
only if the pool permits it, too.

**Theorem.** Take any data, any predictor and any proposal rule, also adversarial ones. Let N be the
certified rounds of an account with a known outcome, and E the errors among them. c₀, C and m are
constants of this module. Then

1. from the beginning up to any time T: E ≤ δN + c₀ + J + (h − 1)(1 − δ), where J is the largest
   number of credits at one time, at most min(8, log₂(1 + T/m));
2. in any interval: E ≤ δN + C + J + (h − 1)(1 − δ);
3. of n sensors together at one horizon h, up to any time: E ≤ δN + 2u + uJ + hn(1 − δ), where
   u = max(2, 0.3 n), and N, E and J are those of the pool;
4. of n sensors together at one horizon h, in any interval: E ≤ δN + 32u + uJ + hn(1 − δ).

*Proof.* Let W be the budget after the outcomes of all certified rounds, in order. An outcome is
known h rounds after its decision. So the budget U at a decision is W without the pending rounds,
of which there are at most h − 1. A certification with j credits needs U ≥ 1 − δ − j. Each pending
round and this one cost at most 1 − δ, so W ≥ −J − (h − 1)(1 − δ) at all times. Rounds that were not
certified leave W unchanged. A certified one raises it by at most δ − x, where x is 1 for an
error, else 0. So the sum of x − δ over an interval is at most W at its beginning less W at its end.
W is c₀ in the beginning and at most C later; the end adds at most J + (h − 1)(1 − δ). Credit j + 1
takes m·2ʲ blocked rounds, which limits J. A pool certifies from U ≥ −uj on, and a round may have n
errors. So with u in place of 1 the last term becomes hn(1 − δ). A pool's W is 2u in the beginning
and at most 32u later, so 3 and 4 follow. ∎

**Gaps.** A certified round whose outcome is never known leaves W and U unchanged, as if not
certified. The proof holds for any set of such rounds, even if an adversary chooses it, because
a pending round costs at most 1 − δ whether or not its outcome comes. A round is also withdrawn
before its outcome is known if its gaps are not covered (`guard.guards`); the same holds for it.
So N and E count the rounds that were certified, not withdrawn, and whose outcome is known. If k of
the certified rounds have an unknown outcome, at most the bound plus k of all certified rounds are
wrong. Without assumptions there is no better bound, because all unknown rounds may be wrong. If
windows go missing independently of their errors, given the information at the decision, the
unknown ones are wrong as often as the others in expectation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from aftlib.guard.state import axes

START = 5.0
"""c₀: the first budget of a sensor's account."""
CAP = 20.0
"""C: the largest budget of a sensor's account."""
POOL_START = 2.0
"""The first budget of the pooled account, in units of u."""
POOL_CAP = 32.0
"""The largest budget of the pooled account, in units of u."""
QUARANTINE = 30
"""m: blocked rounds for the first credit; each further credit takes twice as many."""
MOST_CREDITS = 8
RESERVE = 0.6
"""Budget, in units of c₀, with which a sensor is certified although its pool is low."""
ACCOUNT = np.dtype([(name, float) for name in ("budget", "credits", "run", "bad")])
"""U, j, and the rounds and errors of the current quarantine."""
NOT_PROPOSED, BLOCKED, CERTIFIED = range(3)
"""Decisions."""


@dataclass(frozen=True)
class Accounts:
    """One account per horizon and sensor, and for each horizon a pool over all n sensors.

    The arrays and the arguments may have axes before H: in `Guards` both have the axis of guards.
    A share `delta` of the certified rounds may be wrong. The outcomes of a horizon h are known
    h rounds after their decisions, and must be booked in the order of the decisions.

    Examples
    --------
    >>> accounts = Accounts.open(sensors=1, delta=0.05)
    >>> for _ in range(5):
    ...     decisions = accounts.certify(np.array([[True]]))
    ...     accounts.book(decisions, wrong=np.array([[1.0]]))
    >>> accounts.certify(np.array([[True]]))  # five errors used up the first budget
    array([[1]])
    """

    delta: float
    single: np.ndarray = axes("H n", ACCOUNT)
    pools: np.ndarray = axes("H", ACCOUNT)

    @classmethod
    def open(cls, sensors: int, delta: float, horizons: int = 1) -> Self:
        """Return the accounts as before the first round."""
        accounts = cls(delta, np.zeros((horizons, sensors), ACCOUNT), np.zeros(horizons, ACCOUNT))
        accounts.begin()
        return accounts

    def begin(self) -> None:
        """Give the first budgets to accounts that are all zeros."""
        self.single["budget"] = START
        self.pools["budget"] = POOL_START * pool_unit(self.single.shape[-1])

    def relative_budget(self) -> np.ndarray:
        """Return the budget of each account or of its pool, whichever is less, (…, H, n).

        Budgets are in units of the first budget, so each is 1 in the beginning.
        """
        single = self.single["budget"] / START
        pools = self.pools["budget"] / (POOL_START * pool_unit(single.shape[-1]))
        return np.asarray(np.minimum(single, pools[..., np.newaxis]))

    def certify(self, proposed: np.ndarray) -> np.ndarray:
        """Return the decision on each proposal, shape (…, H, n)."""
        budget = self.single["budget"]
        is_open = budget + self.single["credits"] >= 1 - self.delta
        # a low pool permits only sensors with large accounts
        unit = pool_unit(budget.shape[-1])
        free = (self.pools["budget"] + unit * self.pools["credits"])[..., np.newaxis]
        permitted = (free >= 0) & ((free >= unit) | (budget >= RESERVE * START))
        return np.where(proposed, np.where(is_open & permitted, CERTIFIED, BLOCKED), NOT_PROPOSED)

    def book(self, decisions: np.ndarray, wrong: np.ndarray) -> None:
        """Book outcomes, shape (…, H, n): 1 wrong, 0 right, NaN never known."""
        n = wrong.shape[-1]
        known = ~np.isnan(wrong)
        certified = known & (decisions == CERTIFIED)
        number = certified.sum(-1)
        unit = pool_unit(n)
        if number.any():
            errors = np.where(certified, wrong, 0)
            self._settle(self.single, certified, errors, CAP, 1.0)
            self._settle(self.pools, number, errors.sum(-1), POOL_CAP * unit, unit)
        blocked = known & (decisions == BLOCKED)
        if blocked.any():
            errors = np.where(blocked, wrong, 0)
            self._credit(self.single, blocked, errors, 1)
            idle = number == 0  # pools that certified nothing
            self._credit(self.pools, idle * blocked.sum(-1), idle * errors.sum(-1), n)

    def _settle(
        self, accounts: np.ndarray, guarantees: np.ndarray, bad: np.ndarray, cap: float, unit: float
    ) -> None:
        """Book `guarantees` of each account, of which `bad` were wrong.

        Those of a pool are its sensors' together; a mask counts as one each. A credit is repaid
        when the account could still certify without it, and a pool could still permit every sensor.
        """
        booked = guarantees > 0
        budget = accounts["budget"]
        credits = accounts["credits"]
        budget[booked] = np.minimum(cap, budget + self.delta * guarantees - bad)[booked]
        while (repaid := booked & (credits > 0) & (budget >= unit * (2 - credits))).any():
            credits[repaid] -= 1
            accounts["run"][repaid] = 0
            accounts["bad"][repaid] = 0

    def _credit(
        self, accounts: np.ndarray, proposals: np.ndarray, bad: np.ndarray, size: int
    ) -> None:
        """Book blocked `proposals` of each account, of which `bad` were wrong.

        Those of a pool are its sensors' together; a mask counts as one each. A run with few enough
        errors earns a credit. `size` is how many sensors share an account, which lengthens the run.
        """
        counted = (proposals > 0) & (accounts["credits"] < MOST_CREDITS)
        accounts["run"] += np.where(counted, proposals, 0)
        accounts["bad"] += np.where(counted, bad, 0)
        wanted = QUARANTINE * 2.0 ** accounts["credits"] * size
        failed = counted & (accounts["bad"] > np.floor(self.delta * wanted))
        earned = counted & ~failed & (accounts["run"] >= wanted)
        accounts["credits"][earned] += 1
        accounts["run"][failed | earned] = 0
        accounts["bad"][failed | earned] = 0


def pool_unit(sensors: int) -> float:
    """Unit u of the pooled account."""
    return max(2.0, 0.3 * sensors)


def slack(rounds: int, delta: float, horizon: int = 1) -> float:
    """Return the errors beyond δN that an account allows in `rounds` rounds (theorem, part 1)."""
    return START + most_credits(rounds) + (horizon - 1) * (1 - delta)


def pooled_slack(rounds: int, delta: float, sensors: int, horizon: int = 1) -> float:
    """Return the errors beyond δN that the pooled account allows (theorem, part 3)."""
    unit = pool_unit(sensors)
    return unit * (POOL_START + most_credits(rounds)) + horizon * sensors * (1 - delta)


def most_credits(rounds: int) -> int:
    """Return the most credits J of an account after `rounds` rounds."""
    return min(MOST_CREDITS, int(math.log2(rounds / QUARANTINE + 1))) if rounds > 0 else 0
