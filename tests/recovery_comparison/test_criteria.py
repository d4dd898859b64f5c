"""Notebook 07 and `aft plan` decide by the same criteria."""

import math
from itertools import product

import pytest

from aftlib.core.recovery_costs import (
    Alternatives,
    Operation,
    RecoveryCosts,
)
from aftlib.recovery_comparison.figures import own_alternatives, own_costs
from aftlib.recovery_comparison.schemes import EXACT, GUARD
from aftlib.sensor_plans.question import DOCUMENT_RECOVERY_TIME, Question
from aftlib.sensor_plans.recovery import Failure, find_criteria
from aftlib.sensor_plans.sensor_plan import LEAST_SAVING
from tests.recovery_comparison.tables import measurements

SIZES, WIDTH, STEP_S = (3, 5), 24, 60.0


@pytest.mark.parametrize(
    ("fixed_ms", "t_sla", "certified"),
    [*product([0.0, 500.0, 50_000.0], ["2s", "30s", "1h"], [0.02, 0.06, 0.5, 1.0])],
)
def test_both_pay_below_the_same_read_rate_with_the_same_constants(fixed_ms, t_sla, certified):
    question = Question(epsilon=1.0, window=WIDTH, fixed_ms=fixed_ms, t_sla=t_sla)
    costs = RecoveryCosts(
        start_s=fixed_ms / 1e3,
        sample_s=DOCUMENT_RECOVERY_TIME.per_tuple_ms / 1e3,
        estimate_s=0,
        checkpoint_s=0,
    )
    lost = max(SIZES) * WIDTH
    choice = Alternatives(costs, costs, lost, again=(1 - certified) * lost)
    spare = min(choice.keeps_from(question.t_sla_ms / 1e3), choice.faster_below(LEAST_SAVING))
    live = sum(SIZES) / STEP_S
    expected = None if math.isinf(spare) else live + spare if spare else 0.0
    found = find_criteria(Failure(question, SIZES, WIDTH, STEP_S, certified)).pays_below
    assert found == (None if expected is None else pytest.approx(expected))


def test_your_numbers_in_notebook_07_give_the_rates_of_aft_plan():
    """Twelve sensors on two machines, all of whose windows are certified."""
    question = Question(epsilon=1.0, window=WIDTH, fixed_ms=50.0, t_sla="30s")
    costs = RecoveryCosts(0.05, DOCUMENT_RECOVERY_TIME.per_tuple_ms / 1e3, 0.0, 0.0)
    measured = measurements()
    measured.__dict__["costs"] = dict.fromkeys([EXACT, GUARD], costs)
    live = 12 / STEP_S
    operation = Operation(
        sensors=12,
        samples_per_s=live,
        window_s=WIDTH * STEP_S,
        read_rate=2 * live,
        failures_per_month=1,
    )
    choice = own_alternatives(measured, operation)[GUARD]
    plan = find_criteria(Failure(question, (6, 6), WIDTH, STEP_S, certified=1.0))
    assert plan.keeps_t_sla == pytest.approx(live + choice.keeps_from(30.0))
    faster = choice.faster_below(LEAST_SAVING)
    expected = None if math.isinf(faster) else pytest.approx(live + faster)
    assert plan.is_faster == expected
    table = own_costs(measured, operation, 30.0)
    assert table.loc[GUARD, "keeps_from"] == pytest.approx(plan.keeps_t_sla)
