"""What D4's sweeps are run on: rates, failure times, and the system's parameters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from aftlib.upstream_backup.failures import failure_times
from aftlib.upstream_backup.parameters import Parameters


@dataclass(frozen=True)
class Case:
    """Input rates, and failures at the same random times for every scheme and rate.

    Attributes
    ----------
    rates : tuple of float
        Tuples a second.
    trials : int
        Failures at each rate, each in a run of its own.
    seed : int
        Of the failure times.
    steady_ms, spread_ms : float
        They lie in [steady_ms, steady_ms + spread_ms); 30 s and 30 s in the document.
    parameters : Parameters
        All but the rate.
    """

    rates: tuple[float, ...]
    trials: int
    seed: int = 1
    steady_ms: float = 2000.0
    spread_ms: float = 2000.0
    parameters: Parameters = field(default_factory=Parameters)

    def __post_init__(self) -> None:
        if not self.rates or self.trials < 2:
            raise ValueError(
                f"rates and trials must be at least 1 and 2, got {len(self.rates)} and "
                f"{self.trials!r}; an interval needs two trials"
            )

    @property
    def failures_ms(self) -> np.ndarray:
        """Failure times, shape (trials,)."""
        return failure_times(self.trials, self.seed, self.steady_ms, self.spread_ms)

    def at(self, rate: float) -> Parameters:
        """The system's parameters at one rate."""
        return replace(self.parameters, rate=float(rate))
