"""Accounts, which decide from the outcomes of earlier guarantees whether to certify again.

**Theorem.** Take any data, any predictor and any proposal rule, also adversarial ones. Let N be the
certified rounds of an account with a known outcome, and E the errors among them. c₀, C and m are
constants of this module. Then

1. from the beginning up to any time T: E ≤ δN + c₀ + J + (h − 1)(1 − δ), where J is the largest
   number of credits at one time, at most min(8, log₂(1 + T/m));
2. in any interval: E ≤ δN + C + J + (h − 1)(1 − δ);
3. of n sensors together, up to any time: E ≤ δN + 2u + uJ + hn(1 − δ), u = max(2, 0.3 n).

*Proof.* Let W be the budget after the outcomes of all certified rounds, in order. An outcome is
known h rounds after its decision. So the budget U at a decision is W without the pending rounds,
of which there are at most h − 1. A certification with j credits needs U ≥ 1 − δ − j. Each pending
round and this one cost at most 1 − δ, so W ≥ −J − (h − 1)(1 − δ) at all times. Rounds that were not
certified leave W unchanged. A certified one raises it by at most δ − x, where x is 1 for an
error, else 0. So the sum of x − δ over an interval is at most W at its beginning less W at its end.
W is c₀ in the beginning and at most C later; the end adds at most J + (h − 1)(1 − δ). Credit j + 1
takes m·2ʲ blocked rounds, which limits J. With u in place of 1 and n errors per round, 3 follows. ∎

**Gaps.** A certified round whose outcome is never known leaves W and U unchanged, as if not
certified. The proof holds for any set of such rounds, even if an adversary chooses it, because
a pending round costs at most 1 − δ whether or not its outcome comes. A round is also withdrawn
before its outcome is known if its gaps are not covered (`guard.rounds`); the same holds for it.
So N and E count the rounds that were certified, not withdrawn, and whose outcome is known. If k of
the certified rounds have an unknown outcome, at most the bound plus k of all certified rounds are
wrong. Without assumptions there is no better bound, because all unknown rounds may be wrong. If
windows go missing independently of their errors, given the information at the decision, the
unknown ones are wrong as often as the others in expectation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aftlib.core.checks import require_number

START, CAP = 5.0, 20.0
"""c₀ and C: the first and the largest budget of a sensor's account."""
POOL_START, POOL_CAP = 2.0, 32.0
"""The first and the largest budget of the pooled account, in units of u."""
QUARANTINE = 30
"""m: blocked rounds for the first credit; each further credit takes twice as many."""
MOST_CREDITS = 8
ACCOUNT = np.dtype([(name, float) for name in ("budget", "credits", "run", "bad")])
"""U, j, and the rounds and errors of the current quarantine."""
NOT_PROPOSED, BLOCKED, CERTIFIED = range(3)
"""Decisions."""


def settle(
    accounts: np.ndarray, number: np.ndarray, bad: np.ndarray, delta: float, cap: float, unit: float
) -> None:
    """Book `number` guarantees each, of which `bad` were wrong; repay unneeded credits."""
    booked, budget, credits = number > 0, accounts["budget"], accounts["credits"]
    raised = np.minimum(cap, budget + delta * number - bad)
    budget[booked] = raised[booked]
    while credits.any():
        repaid = booked & (credits > 0) & (budget >= unit * (2 - credits))
        if not repaid.any():
            break
        credits[repaid] -= 1
        accounts["run"][repaid] = accounts["bad"][repaid] = 0


def earn_credits(
    accounts: np.ndarray, number: np.ndarray, bad: np.ndarray, delta: float, size: int
) -> None:
    """Count `number` blocked proposals each; a run with few enough errors earns a credit.

    `size` is how many sensors share the account, which lengthens the run.
    """
    counted = (number > 0) & (accounts["credits"] < MOST_CREDITS)
    accounts["run"] += np.where(counted, number, 0)
    accounts["bad"] += np.where(counted, bad, 0)
    wanted = QUARANTINE * 2.0 ** accounts["credits"] * size
    failed = counted & (accounts["bad"] > np.floor(delta / 2 * wanted))
    earned = counted & ~failed & (accounts["run"] >= wanted)
    accounts["credits"][earned] += 1
    accounts["run"][failed | earned] = accounts["bad"][failed | earned] = 0


def is_open(accounts: np.ndarray, delta: float) -> np.ndarray:
    """Whether each account has the budget for one more error."""
    return np.asarray(accounts["budget"] + accounts["credits"] >= 1 - delta)


def pool_bears(pools: np.ndarray, accounts: np.ndarray) -> np.ndarray:
    """Whether the pools permit each sensor; a low pool permits only sensors with large accounts."""
    unit = pool_unit(accounts.shape[1])
    free = (pools["budget"] + unit * pools["credits"])[:, np.newaxis]
    return np.asarray((free >= 0) & ((free >= unit) | (accounts["budget"] >= 0.6 * START)))


def certify(
    proposed: np.ndarray, accounts: np.ndarray, pools: np.ndarray, delta: float
) -> np.ndarray:
    """Return the decision on each (horizon, sensor), shape (H, n)."""
    allowed = is_open(accounts, delta) & pool_bears(pools, accounts)
    return np.where(proposed, np.where(allowed, CERTIFIED, BLOCKED), NOT_PROPOSED)


def learn(
    wrong: np.ndarray, decisions: np.ndarray, accounts: np.ndarray, pools: np.ndarray, delta: float
) -> None:
    """Book the outcomes of an earlier round per horizon: 1 wrong, 0 right, NaN never known."""
    known, n = ~np.isnan(wrong), wrong.shape[1]
    certified, blocked = known & (decisions == CERTIFIED), known & (decisions == BLOCKED)
    number = certified.sum(1)
    if number.any():
        unit, errors = pool_unit(n), np.where(certified, wrong, 0)
        settle(accounts, certified, errors, delta, CAP, 1.0)
        settle(pools, number, errors.sum(1), delta, POOL_CAP * unit, unit)
    if blocked.any():
        errors, idle = np.where(blocked, wrong, 0), number == 0  # pools that certified nothing
        earn_credits(accounts, blocked, errors, delta, 1)
        earn_credits(pools, idle * blocked.sum(1), idle * errors.sum(1), delta, n)


def pool_unit(sensors: int) -> float:
    """Unit u of the pooled account."""
    return max(2.0, 0.3 * sensors)


def new_accounts(sensors: int, horizons: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the accounts (H, n) and pooled accounts (H,) as before the first round."""
    accounts, pools = np.zeros((horizons, sensors), ACCOUNT), np.zeros(horizons, ACCOUNT)
    accounts["budget"], pools["budget"] = START, POOL_START * pool_unit(sensors)
    return accounts, pools


class Accounts:
    """One account per sensor, and one over all of them, for guarantees `horizon` rounds ahead.

    A share `delta` of the certified rounds may be wrong; outcomes are known `horizon` rounds later.
    ValueError when sensors or horizon is no whole number ≥ 1, or delta lies outside (0, 1).

    Examples
    --------
    >>> accounts = Accounts(sensors=1, delta=0.05)
    >>> for _ in range(5):
    ...     decisions = accounts.certify([True])
    ...     accounts.update(decisions, [1.0])
    >>> accounts.certify([True])  # five errors used up the first budget
    array([1])
    """

    def __init__(self, sensors: int, delta: float, horizon: int = 1) -> None:
        require_number("sensors", sensors, least=1, whole=True)
        require_number("horizon", horizon, least=1, whole=True)
        require_number("delta", delta, above=0, below=1)
        self.delta, self.horizon = float(delta), int(horizon)
        self.accounts, self.pool = new_accounts(sensors, 1)

    def certify(self, proposed: Any) -> np.ndarray:
        """Return 0 (not proposed), 1 (blocked) or 2 (certified) per sensor."""
        proposed = np.atleast_2d(np.asarray(proposed, bool))
        return certify(proposed, self.accounts, self.pool, self.delta)[0]

    def update(self, decisions: Any, wrong: Any) -> None:
        """Book the outcomes of a round: its `decisions`, and `wrong` 1, 0 or NaN per sensor.

        Rounds must come in the order of their decisions.
        """
        wrong = np.atleast_2d(np.asarray(wrong, float))
        learn(wrong, np.atleast_2d(decisions), self.accounts, self.pool, self.delta)


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
