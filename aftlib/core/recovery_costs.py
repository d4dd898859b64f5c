"""Times of recoveries by a cost model with four constants, and the monthly costs of failures.

A recovery starts a replacement, reads samples again, perhaps estimates others, and commits a
checkpoint. With S samples read again at R samples per second it takes

    T(R) = start + S · (per sample + 1/R) + [estimate] + checkpoint.

With f for the part that does not depend on R, an approximate recovery a, which reads fewer samples
and may cost more otherwise, is the faster one than an exact one e below the read rate

    R* = (S_e − S_a) / (f_a − f_e).

Two criteria say whether it pays, `Alternatives.keeps_from` and `Alternatives.faster_below`: whether
the exact recovery keeps a time limit T_SLA, and which one is faster. Notebook 07 and `aft plan` use
both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from aftlib.core.checks import require_number

#: The criteria by which estimating pays, as reports name them.
KEEPS_T_SLA = "keeps T_SLA"
IS_FASTER = "is faster"
MONTH_S = 365.25 / 12 * 86_400
BYTES_PER_SAMPLE = 8


@dataclass(frozen=True)
class RecoveryCosts:
    """Four constants of a scheme, in seconds, each finite and at least 0.

    Parameters
    ----------
    start_s : float
        From the failure until a replacement reads or estimates.
    sample_s : float
        Processing of one sample that is read again; waiting for the input is excluded.
    estimate_s : float
        All estimates of one recovery.
    checkpoint_s : float
        Commit of one checkpoint or of a recovered window.
    """

    start_s: float
    sample_s: float
    estimate_s: float
    checkpoint_s: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require_number(name, value, least=0)

    def fixed_s(self, samples: float, estimates: bool) -> float:
        """Part of a recovery's time that does not depend on the read rate."""
        estimate = self.estimate_s if estimates else 0.0
        return self.start_s + samples * self.sample_s + estimate + self.checkpoint_s

    def recovery_s(self, samples: float, estimates: bool, read_rate: float) -> float:
        """Time of a recovery that reads `samples` again at `read_rate` per second.

        Infinite where samples must be read and the rate is 0.
        """
        wait = samples / read_rate if read_rate > 0 else math.inf
        return self.fixed_s(samples, estimates) + (wait if samples else 0.0)


def break_even_rate(saved: float, extra_s: float) -> float:
    """Return the read rate R* below which the approximate recovery is faster, samples per second.

    It reads `saved` samples fewer and takes `extra_s` longer otherwise. 0 where it saves nothing,
    infinite where it saves samples and takes no longer.
    """
    if saved <= 0:
        return 0.0
    return saved / extra_s if extra_s > 0 else math.inf


@dataclass(frozen=True)
class Alternatives:
    """An exact and an approximate recovery of the same failure.

    Parameters
    ----------
    exact, approximate : RecoveryCosts
    lost : float
        Samples that the failure takes, all of which the exact recovery reads again; at least 0.
    again : float
        Those that the approximate recovery reads again, 0 to `lost`.

    Examples
    --------
    A window of 1,000 samples, of which the approximate recovery reads 100 again:

    >>> costs = RecoveryCosts(start_s=0.5, sample_s=0, estimate_s=0.1, checkpoint_s=0)
    >>> choice = Alternatives(costs, costs, lost=1000, again=100)
    >>> choice.keeps_from(t_sla_s=2.5), round(choice.faster_below())
    (500.0, 9000)
    """

    exact: RecoveryCosts
    approximate: RecoveryCosts
    lost: float
    again: float

    def __post_init__(self) -> None:
        require_number("lost", self.lost, least=0)
        require_number("again", self.again, least=0, most=self.lost)

    def keeps_from(self, t_sla_s: float) -> float:
        """Read rate from which on the exact recovery keeps T_SLA, in samples per second.

        Infinite where no rate is high enough. Live reads come on top.
        """
        left_s = t_sla_s - self.exact.fixed_s(self.lost, estimates=False)
        if not self.lost:
            return 0.0 if left_s >= 0 else math.inf
        return self.lost / left_s if left_s > 0 else math.inf

    def faster_below(self, least_saving: float = 0.0) -> float:
        """Read rate below which the approximate recovery is faster, in samples per second.

        It must save the share `least_saving` of the exact recovery's time, or more than nothing.
        0 where it never does, infinite where it always does.
        """
        share = 1 - least_saving
        exact_s = self.exact.fixed_s(self.lost, estimates=False)
        extra_s = self.approximate.fixed_s(self.again, estimates=True) - share * exact_s
        return break_even_rate(share * self.lost - self.again, extra_s)


@dataclass(frozen=True)
class Operation:
    """Load, read rate and failures of a user's stream.

    Parameters
    ----------
    sensors : int
        Number of sensors, at least 1.
    samples_per_s : float
        Samples per second of all sensors together, above 0.
    window_s : float
        Length of the tumbling windows in seconds, above 0.
    read_rate : float
        Samples per second that can be read in all, live ones included, above 0.
    failures_per_month : float
        At least 0.
    """

    sensors: int
    samples_per_s: float
    window_s: float
    read_rate: float
    failures_per_month: float

    def __post_init__(self) -> None:
        require_number("sensors", self.sensors, least=1, whole=True)
        for name in ("samples_per_s", "window_s", "read_rate"):
            require_number(name, getattr(self, name), above=0)
        require_number("failures_per_month", self.failures_per_month, least=0)


@dataclass(frozen=True)
class Scheme:
    """A method of recovery, with the input and checkpoints that it needs.

    Parameters
    ----------
    name : str
    costs : RecoveryCosts
    lost : float
        Share of the sensors whose samples one failure takes: 1/m of m workers. In (0, 1].
    replayed : float
        Share of the lost samples that is read again: 1 in an exact recovery, 0 in D1, the share of
        the replay sets in D2. In [0, 1].
    checkpoints : float
        Checkpoints per window, the one at its end included; at least 1.
    skips_input : bool
        Whether sensors that are not read again skip their input until the replacement works, as
        with the guard. They always do if `replayed` is 0.
    """

    name: str
    costs: RecoveryCosts
    lost: float
    replayed: float
    checkpoints: float = 1
    skips_input: bool = False

    def __post_init__(self) -> None:
        require_number("lost", self.lost, above=0, most=1)
        require_number("replayed", self.replayed, least=0, most=1)
        require_number("checkpoints", self.checkpoints, least=1)


def monthly_costs(operation: Operation, schemes: Sequence[Scheme]) -> pd.DataFrame:
    """Return the cost of each scheme per month, averaged over the times of failures.

    A failure comes at a uniformly random moment between two checkpoints, so half an interval is
    lost on average. Live reads leave `read_rate` − `samples_per_s` for repeated reads. If that is
    negative, no recovery ends. If it is 0, a recovery with repeated reads takes infinitely long and
    reads nothing. If a scheme skips the input of its estimated sensors until the replacement works,
    their windows that begin in this time are estimated, too.

    One row per scheme, with the columns recovery_s: of one failure, until every due window is
    emitted; outage_minutes: the sum over the failures, so it may exceed the month; gb_read_again;
    checkpoint_minutes: work of all checkpoints; estimated_results: those within ε with probability
    1 − δ.
    """
    windows = MONTH_S / operation.window_s
    failures = operation.failures_per_month
    spare = operation.read_rate - operation.samples_per_s
    rows = []
    for scheme in schemes:
        costs = scheme.costs
        estimates = scheme.replayed < 1
        interval_s = operation.window_s / scheme.checkpoints
        lost = operation.samples_per_s * scheme.lost * interval_s / 2
        again = scheme.replayed * lost
        recovery_s = costs.recovery_s(again, estimates, spare) if spare >= 0 else math.inf
        skips = scheme.skips_input or not scheme.replayed
        hit = 1.0 + skips * costs.start_s / operation.window_s
        sensors = operation.sensors * scheme.lost * (1 - scheme.replayed)
        read = failures * again if recovery_s < math.inf else 0.0
        row = {
            "scheme": scheme.name,
            "recovery_s": recovery_s,
            "outage_minutes": failures * recovery_s / 60 if failures else 0.0,  # 0 · ∞ is no number
            "gb_read_again": read * BYTES_PER_SAMPLE / 1e9,
            "checkpoint_minutes": windows * scheme.checkpoints * costs.checkpoint_s / 60,
            "estimated_results": failures * sensors * hit,
        }
        rows.append(row)
    return pd.DataFrame(rows).set_index("scheme")
