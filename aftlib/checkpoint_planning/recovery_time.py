"""The time of a recovery as a function of the number of replayed tuples (D2 section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from aftlib.core.checks import require_number

_MOST_TUPLES = 2**53


@dataclass(frozen=True)
class RecoveryTime:
    """T_rec = fixed + estimate + per tuple · tuples, in milliseconds (D2 eq. (24)).

    Parameters
    ----------
    fixed_ms : float
        Fixed part of every recovery; finite, at least 0: T_res + T_est, or T_res alone if
        `estimate_ms` is given.
    per_tuple_ms : float
        T_rep of one replayed tuple; finite, above 0.
    estimate_ms : float
        T_est of a recovery that estimates; finite, at least 0. A recovery that replays all sensors
        does not include it.

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
    estimate_ms: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        require_number("fixed_ms", self.fixed_ms, least=0)
        require_number("per_tuple_ms", self.per_tuple_ms, above=0)
        require_number("estimate_ms", self.estimate_ms, least=0)

    def __call__(self, tuples: int, *, full: bool = False) -> float:
        """Milliseconds to recover by replaying `tuples` tuples; with `full`, of all sensors.

        Raises
        ------
        ValueError
            When `tuples` is negative or not a number.
        """
        if not tuples >= 0:
            raise ValueError(f"tuples must be at least 0, got {tuples!r}")
        return float(self._constant(full) + self.per_tuple_ms * tuples)

    def _constant(self, full: bool) -> float:
        return self.fixed_ms if full else self.fixed_ms + self.estimate_ms

    def max_tuples(self, t_sla_ms: float, *, full: bool = False) -> int:
        """Most tuples, of all sensors if `full`, to replay within T_SLA (D2 eq. (25)).

        Returns
        -------
        int
            The largest m, up to 2⁵³, for which the recovery time rt(m) is at most `t_sla_ms` in
            floating-point numbers, so that T_SLA = rt(m) permits m tuples.

        Raises
        ------
        ValueError
            When T_SLA is below the fixed part.
        """
        constant = self._constant(full)
        if not t_sla_ms >= constant:
            raise ValueError(
                f"t_sla_ms must be at least the fixed {constant!r} ms of every recovery, "
                f"got {t_sla_ms!r}; allow more time or make restoring and estimating faster"
            )
        most = int(min((t_sla_ms - constant) / self.per_tuple_ms, _MOST_TUPLES))
        while self(most, full=full) > t_sla_ms:
            most -= 1
        while most < _MOST_TUPLES and self(most + 1, full=full) <= t_sla_ms:
            most += 1
        return most

    def max_steps(self, sensors: int, of: int, t_sla_ms: float) -> int:
        """Most steps for which `sensors` out of `of` can be replayed within T_SLA; 0 if none."""
        full = sensors == of
        if t_sla_ms < self._constant(full):
            return 0
        most = self.max_tuples(t_sla_ms, full=full)
        return most // sensors if sensors else _MOST_TUPLES


DOCUMENT_RECOVERY_TIME = RecoveryTime(fixed_ms=28.33, per_tuple_ms=9.332e-4)
"""The document's measurement for n = 100 sensors on its machine (D2 eqs (27), (28))."""

DOCUMENT_ESTIMATE_MS = 26.33
"""The document's T_est: the fixed part without 2 ms, the longest T_res (D2 section 6.1)."""
