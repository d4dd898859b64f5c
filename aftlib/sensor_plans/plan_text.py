"""A plan as the text that `aft plan` prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aftlib.notebook.texts import render
from aftlib.sensor_plans.recovery import LEAST_SAVING
from aftlib.sensor_plans.sensor_plan import SensorPlan

#: Most names in a line, and sensors in the table, of which those below half are always shown.
LISTED = 12


def spaced(value: Any, form: str) -> str:
    """Return the value in a format of Python, with a blank before the sign of a percentage.

    >>> spaced(0.978, ".1%"), spaced(12, "4.0f")
    ('97.8 %', '  12')
    """
    return format(value, form).replace("%", " %")


def show_rate(rate: float) -> str:
    """Return a read rate with three digits.

    >>> show_rate(5.0834), show_rate(19234.0)
    ('5.08', '19,200')
    """
    return f"{float(f'{rate:.3g}'):,.0f}" if rate >= 1000 else f"{rate:.3g}"


def report_text(plan: SensorPlan) -> str:
    """Return the plan as text; control characters of names in the file appear as escapes."""
    problems = [sensor for sensor in plan.sensors if sensor.certified[0] < 0.5]
    others = [sensor for sensor in plan.sensors if sensor.certified[0] >= 0.5]
    return render(
        Path(__file__).with_name("templates"),
        "plan.txt.j2",
        plan=plan,
        question=plan.question,
        test=plan.backtest,
        shown=problems + others[:LISTED],
        most=LISTED,
        least_saving=LEAST_SAVING,
        f=spaced,
        rate=show_rate,
    )
