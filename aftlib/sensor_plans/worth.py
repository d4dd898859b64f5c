"""Exact recovery and the guard compared for a user's sensors: outage, samples read, estimates.

After a failure of one worker, input is read again at a limited rate. Exact recovery reads all
samples of the worker's open windows. The guard reads the sensors that it did not certify, and
estimates the rest. `aft plan --read-rate` prints the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aftlib.core.checks import require_number
from aftlib.core.recovery_costs import Operation, RecoveryCosts, Scheme, monthly_costs

EXACT, GUARD, NEITHER = "exact recovery", "guard", "neither"
NEVER = "Exact recovery never ends, because the stream takes the whole read rate"
LEAST_SAVING = 0.05
"""Least share of the outage that the guard must save if neither keeps T_SLA.

Ours: for less, an operator does not accept estimates.
"""


def worth(
    plan: dict[str, Any], read_rate: float, failures_per_month: float, costs: RecoveryCosts
) -> dict[str, Any]:
    """Compare exact recovery with the guard for the sensors of a plan.

    Parameters
    ----------
    plan : dict
        Fields of `planfile.Plan`.
    read_rate : float
        Samples per second that can be read in all, those of the running stream included.
    failures_per_month : float
        Failures of all workers together.
    costs : RecoveryCosts
        Constants of both schemes; exact recovery does not use `estimate_s`.

    Returns
    -------
    dict
        Fields of `planfile.Worth`. A time is None if it is infinite, because the read rate does not
        exceed the stream's own; then nothing is read again. The longest recovery is that of the
        largest worker after a failure at the end of a window.

    Raises
    ------
    ValueError
        When the plan's data have no times, or a number is outside its range.
    """
    require_number("read_rate", read_rate, above=0)
    require_number("failures_per_month", failures_per_month, least=0)
    step_s, question = plan["data"]["step_seconds"], plan["question"]
    if step_s is None:
        raise ValueError(
            f"read_rate must be given with data that have times, got {read_rate!r}: without times, "
            "samples per second are unknown; add a column of times"
        )
    sensors, width = len(plan["sensors"]), question["window"]
    rates = read_rate, failures_per_month
    operation = Operation(sensors, sensors / step_s, width * step_s, *rates)
    lost = 1 / len(plan["assignment"])
    largest = max(len(names) for names in plan["assignment"])
    certified = plan["backtest"]["declared_recoverable"]
    schemes = [
        Scheme(EXACT, costs, lost, 1.0),
        Scheme(GUARD, costs, lost, 1.0 - certified, skips_input=True),
    ]
    rows = []
    for scheme, month in zip(schemes, monthly_costs(operation, schemes), strict=True):
        # the month is of the mean worker, which fails in the middle of a window
        samples = scheme.replayed * largest * width
        longest = operation.recovery_s(costs, samples, scheme.replayed < 1)
        again = samples if np.isfinite(longest) else 0.0
        rows.append({**vars(month), "longest_s": longest, "samples_read_again": again})
    recommended, reason = _recommend(operation, rows, question["t_sla_ms"] / 1e3, certified)
    return {
        "read_rate": read_rate,
        "samples_per_s": operation.samples_per_s,
        "failures_per_month": failures_per_month,
        "constants": vars(costs),
        "schemes": [_finite(row) for row in rows],
        "recommended": recommended,
        "reason": reason,
    }


def _recommend(
    operation: Operation, rows: Sequence[dict[str, Any]], t_sla_s: float, certified: float
) -> tuple[str, str]:
    """Recommend a scheme, with the reason: exact recovery unless the guard gains something.

    The guard's time is for the mean certified share. After a failure in which fewer sensors are
    certified it takes longer, at most as long as exact recovery and the estimates.
    """
    slow, fast = (row["longest_s"] for row in rows)
    if operation.read_rate < operation.samples_per_s:
        return NEITHER, (
            f"The stream takes {operation.samples_per_s:.3g} samples per second, more than the "
            "source hands out, so no recovery keeps up; raise the read rate or plan fewer sensors."
        )
    if not operation.failures_per_month:
        return EXACT, "Without failures, estimates gain nothing."
    if np.isinf(fast):
        return NEITHER, (
            f"{NEVER}. Nor does the guard, which estimates only its certified {certified:.1%}; "
            "raise the read rate or plan fewer sensors."
        )
    limit = f"T_SLA = {t_sla_s:g} s"
    need = f"Exact recovery takes up to {_seconds(slow)}" if np.isfinite(slow) else NEVER
    if slow <= t_sla_s:
        return EXACT, f"{need}, within {limit}, and estimates nothing."
    saved = 1 - rows[1]["recovery_s"] / rows[0]["recovery_s"]
    if fast > t_sla_s and saved < LEAST_SAVING:
        return EXACT, (
            f"{need}, not within {limit}, and the guard does not save {LEAST_SAVING:.0%} of the "
            "outage."
        )
    but = "" if fast <= t_sla_s else f", but saves {saved:.0%} of the outage"
    return GUARD, (
        f"{need}, not within {limit}. With the certified share of the back-test the guard takes "
        f"{_seconds(fast)}, {'not ' * bool(but)}within {limit}{but}; where it certifies nothing, "
        "as long as exact recovery."
    )


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value == np.inf else value for name, value in row.items()}
