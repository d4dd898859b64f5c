"""D1's input with a long first micro-batch; a new Python process on Spark imports little else."""

from __future__ import annotations

from dataclasses import dataclass

from aftlib.approximately_once.operator import SensorSplits


@dataclass(frozen=True)
class LearningSplits(SensorSplits):
    """Splits whose first micro-batch has all windows that the guard learns from."""

    learned: int = 0  # steps

    def next_boundary(self, start: int) -> int:
        """The end of these windows, then that of each window."""
        return super().next_boundary(start) if start >= self.learned else self.learned
