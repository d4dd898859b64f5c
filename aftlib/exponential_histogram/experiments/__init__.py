"""D5's experiments: the document's example, errors, the operator, memory, speed, and merging."""

from __future__ import annotations

from itertools import product
from typing import Any

from aftlib.core.checks import require_number, require_numbers
from aftlib.exponential_histogram.experiments.costs import (
    DOCUMENT_RATE,
    break_even,
    long_run,
    parallel,
    rates,
    sizes,
)
from aftlib.exponential_histogram.experiments.errors import (
    counterexamples,
    error_curve,
    few_ones,
    sweep,
    variances,
)
from aftlib.exponential_histogram.experiments.examples import WINDOW as FIGURE_3_WINDOW
from aftlib.exponential_histogram.experiments.examples import figure_3, operator_demo, shown

__all__ = [
    "DOCUMENT_RATE", "FIGURE_3_WINDOW", "break_even", "check_parameters", "counterexamples",
    "error_curve", "few_ones", "figure_3", "long_run", "operator_demo", "parallel", "rates",
    "shown", "sizes", "sweep", "variances",
]  # fmt: skip

#: Bounds of the notebook's parameters: least and most whole number.
_WHOLE: dict[str, tuple[int, int]] = {
    "windows": (1, 10**7),
    "windows_of_events": (1, 10**6),
    "window": (1, 10**8),
    "events": (1, 10**12),
    "chunk": (1, 10**8),
    "size_windows": (1, 10**18),
    "chunks": (1, 10**8),
    "variance_window": (2, 10**7),
    "demo_window": (1, 10**6),
    "demo_events": (1, 10**7),
    "demo_batches": (1, 10**4),
    "parallel_events": (1, 10**12),
    "tasks": (1, 10**4),
    "seed": (0, 2**62),
}
#: Bounds of the others; below an ε of 1e-5 a histogram no longer saves anything.
_REAL: dict[str, dict[str, float]] = {
    "epsilons": {"least": 1e-5, "below": 1},
    "epsilon": {"least": 1e-5, "below": 1},
    "demo_epsilon": {"least": 1e-5, "below": 1},
    "variance_epsilons": {"least": 0.02, "below": 1},
    "shares": {"least": 1e-6, "most": 1 - 1e-6},
    "curve_share": {"least": 1e-6, "most": 1 - 1e-6},
    "bursts": {"least": 0, "most": 1e6},
    "rate_seconds": {"least": 0, "most": 3600},
}
_LISTS = {"windows", "size_windows", "chunks", "parallel_events"} | {
    "epsilons", "variance_epsilons", "shares", "bursts"
}  # fmt: skip
#: Events of a stream of the sweep that a task may hold.
_MOST_SWEPT = 5 * 10**7


def check_parameters(**given: Any) -> None:
    """Refuse parameters of the notebook with which it would not come to its end, by a ValueError.

    It names the parameter, its value and the way out.
    """
    for name, value in given.items():
        bounds = _REAL.get(name) or dict(zip(("least", "most"), _WHOLE[name], strict=True))
        require: Any = require_numbers if name in _LISTS else require_number
        require(name, value, **bounds, whole=name in _WHOLE)

    windows, windows_of_events = given["windows"], given["windows_of_events"]
    if windows_of_events * max(windows) > _MOST_SWEPT:
        raise ValueError(
            f"windows_of_events × the largest of windows must be at most {_MOST_SWEPT:,} events, "
            f"got {windows_of_events} × {max(windows)}: take fewer or smaller windows"
        )
    for share, burst in product(given["shares"], given["bursts"]):
        least = max(1.0, share / (1 - share))
        if burst and burst < least:
            raise ValueError(
                f"each of bursts must be 0 or at least {least:g} with shares that hold {share:g}, "
                f"got {burst!r}: lengthen it, or take smaller shares"
            )
