"""How long a recovery takes, by the number of tuples replayed (D2 section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_MOST_TUPLES = 2**53


@dataclass(frozen=True)
class RecoveryTime:
    """T_rec = fixed + per tuple · tuples, in milliseconds (D2 eq. (24)).

    Parameters
    ----------
    fixed_ms : float
        T_res + T_est, restoring and estimating; finite, at least 0.
    per_tuple_ms : float
        T_rep of one replayed tuple; finite, above 0.

    Raises
    ------
    ValueError
        When a part is out of its range.

    Examples
    --------
    >>> from aftlib import RecoveryTime
    >>> recovery_time = RecoveryTime(fixed_ms=28.33, per_tuple_ms=9.332e-4)
    >>> round(recovery_time(20_000), 2)
    46.99
    >>> recovery_time.max_tuples(t_sla_ms=50)
    23221
    """

    fixed_ms: float
    per_tuple_ms: float

    def __post_init__(self) -> None:
        if not 0 <= self.fixed_ms < np.inf:
            raise ValueError(
                f"fixed_ms must be finite and at least 0, got {self.fixed_ms!r}; "
                "give the milliseconds that restoring and estimating take"
            )
        if not 0 < self.per_tuple_ms < np.inf:
            raise ValueError(
                f"per_tuple_ms must be finite and above 0, got {self.per_tuple_ms!r}; "
                "give the milliseconds that replaying one tuple takes"
            )

    def __call__(self, tuples: int) -> float:
        """Milliseconds to recover by replaying this many tuples.

        Raises
        ------
        ValueError
            When `tuples` is negative or not a number.
        """
        if not tuples >= 0:
            raise ValueError(
                f"tuples must be at least 0, got {tuples!r}; count the replayed tuples"
            )
        return float(self.fixed_ms + self.per_tuple_ms * tuples)

    def max_tuples(self, t_sla_ms: float) -> int:
        """Most tuples that can be replayed within T_SLA (D2 eq. (25)).

        Returns
        -------
        int
            The largest m, up to 2⁵³, for which this recovery time of m is at most `t_sla_ms` as
            floating-point numbers compare, so that T_SLA = rt(m) permits m tuples.

        Raises
        ------
        ValueError
            When T_SLA is below the fixed part.
        """
        if not t_sla_ms >= self.fixed_ms:
            raise ValueError(
                f"t_sla_ms must be at least the fixed {self.fixed_ms!r} ms of every recovery, "
                f"got {t_sla_ms!r}; allow more time or make restoring and estimating faster"
            )
        most = int(min((t_sla_ms - self.fixed_ms) / self.per_tuple_ms, _MOST_TUPLES))
        while self(most) > t_sla_ms:
            most -= 1
        while most < _MOST_TUPLES and self(most + 1) <= t_sla_ms:
            most += 1
        return most


DOCUMENT_RECOVERY_TIME = RecoveryTime(fixed_ms=28.33, per_tuple_ms=9.332e-4)
"""What the document measured for n = 100 sensors on its machine (D2 eqs (27), (28))."""
