"""The parameters of notebook 05."""

from __future__ import annotations

from itertools import product
from typing import Self

from pydantic import model_validator

from aftlib.workbench.parameters import ParameterModel, parameter

MOST_SWEPT = 5 * 10**7
"""Most events of a stream of the sweep, because one task holds it in memory."""


class NotebookParameters(ParameterModel):
    """Parameters of notebook 05."""

    epsilons: list[float] = parameter(
        [0.001, 0.01, 0.05, 0.1, 0.2, 0.5], "guaranteed errors ε of the sweep", least=1e-5, below=1
    )
    windows: list[int] = parameter(
        [1_000, 3_000, 10_000, 30_000, 100_000],
        "events N of the sweep",
        smoke=[1_000, 10_000],
        full=[1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000],
        least=1,
        most=10**7,
    )
    shares: list[float] = parameter(
        [0.0005, 0.002, 0.005, 0.02, 0.05, 0.5, 0.95],
        "probabilities P(1)",
        smoke=[0.005, 0.5],
        least=1e-6,
        most=1 - 1e-6,
    )
    bursts: list[float] = parameter(
        [0, 30, 300, 3_000],
        "mean lengths of runs of ones; 0: independent events",
        smoke=[0, 30],
        least=0,
        most=1e6,
    )
    windows_of_events: int = parameter(
        20, "length of each stream of the sweep, in windows", least=1, most=10**6
    )
    curve_share: float = parameter(
        0.005, "P(1) of the stream whose errors are shown event by event", least=1e-6, most=1 - 1e-6
    )
    epsilon: float = parameter(
        0.01,
        "of the long stream (fig. 5), at which figures with a slider begin",
        least=1e-5,
        below=1,
    )
    window: int = parameter(1_000_000, "events N of the long stream", least=1, most=10**8)
    events: int = parameter(
        20_000_000,
        "length of the long stream",
        least=1,
        most=10**12,
        smoke=4_000_000,
        full=100_000_000,
    )
    chunk: int = parameter(1_000_000, "events per call of the long stream", least=1, most=10**8)
    size_windows: list[int] = parameter(
        [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 1_000_000_000],
        smoke=[1_000, 10_000, 100_000, 1_000_000],
        full=[10**k for k in range(2, 11)],
        least=1,
        most=10**18,
    )
    chunks: list[int] = parameter(
        [1, 1_000, 10_000, 100_000, 1_000_000],
        "events per call of the speed runs",
        smoke=[1, 1_000, 100_000],
        full=[1, 1_000, 10_000, 100_000, 1_000_000, 10_000_000],
        least=1,
        most=10**8,
    )
    rate_seconds: float = parameter(
        2.0, "seconds of each speed run", least=0, most=3600, smoke=0.3, quick=1.0, full=5.0
    )
    variance_epsilons: list[float] = parameter(
        [0.05, 0.1, 0.2, 0.4, 0.8], "of the variance histogram", least=0.02, below=1
    )
    variance_window: int = parameter(
        100_000, "values N of the variance histogram", least=2, most=10**7, smoke=10_000
    )
    demo_window: int = parameter(10_000, "N of the streaming query", least=1, most=10**6)
    demo_epsilon: float = parameter(0.05, "ε of the streaming query", least=1e-5, below=1)
    demo_events: int = parameter(
        100_000, "events of the streaming query", least=1, most=10**7, smoke=20_000, full=1_000_000
    )
    demo_batches: int = parameter(
        5, "micro-batches of the streaming query", least=1, most=10**4, smoke=2
    )
    parallel_events: list[int] = parameter(
        [10_000_000, 100_000_000],
        "counted by partitions that merge",
        smoke=[2_000_000],
        full=[10_000_000, 100_000_000, 1_000_000_000],
        least=1,
        most=10**12,
    )
    tasks: int = parameter(8, "partitions", least=1, most=10**4)
    seed: int = parameter(1, "of all streams", least=0, most=2**62)

    @model_validator(mode="after")
    def fit_together(self) -> Self:
        """Refuse streams that are too long for a task, and bursts that no stream can have."""
        windows, most = self.windows_of_events, max(self.windows)
        if windows * most > MOST_SWEPT:
            raise ValueError(
                f"windows_of_events × the largest of windows must be at most {MOST_SWEPT:,} "
                f"events, got {windows} × {most}: take fewer or smaller windows"
            )
        for share, burst in product(self.shares, self.bursts):
            least = max(1.0, share / (1 - share))
            if burst and burst < least:
                raise ValueError(
                    f"each of bursts must be 0 or at least {least:g} if shares contain "
                    f"{share:g}, got {burst!r}: lengthen it, or take smaller shares"
                )
        return self
