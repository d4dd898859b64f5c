"""Notebook 07 and `aft plan` decide by the same criteria."""

import math
from itertools import product

import pytest

from aftlib.core.recovery_costs import Alternatives, RecoveryCosts
from aftlib.sensor_plans.question import DOCUMENT_RECOVERY_TIME, Question
from aftlib.sensor_plans.recovery import LEAST_SAVING, pays_below

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
    spare = choice.pays_below(question.t_sla_ms / 1e3, LEAST_SAVING)
    live = sum(SIZES) / STEP_S
    expected = None if math.isinf(spare) else live + spare if spare else 0.0
    found = pays_below(question, SIZES, WIDTH, STEP_S, certified)
    assert found == (None if expected is None else pytest.approx(expected))
