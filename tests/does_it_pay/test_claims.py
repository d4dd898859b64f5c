"""Each claim has measurements under which it turns."""

import numpy as np
import pytest

from aftlib.does_it_pay.claims import CLAIMS
from aftlib.does_it_pay.schemes import GUARD, MODEL, NOTHING, PARTIAL
from tests import judging
from tests.does_it_pay.tables import WINDOWS, measurements


def verdict(id, measured):
    return judging.verdict(CLAIMS, {"measured": measured}, id)


def test_all_claims_are_as_recorded_where_the_cost_model_holds():
    assert judging.list_changed(CLAIMS, {"measured": measurements()}) == set()


@pytest.mark.parametrize("harm", ["lost", "doubled", "wrong"])
def test_one_harmed_result_turns_p1(harm):
    measured = measurements()
    measured.outcomes.loc[measured.outcomes["scheme"] == GUARD, harm] += 1
    assert verdict("P-1", measured) == "does not hold"


def test_p1_is_open_if_no_kill_can_lose_anything():
    measured = measurements()
    measured.outcomes.loc[measured.outcomes["scheme"] == NOTHING, "lost"] = 0
    assert verdict("P-1", measured) == "open"


def slower(scheme, seconds, column="seconds"):
    """Return measurements in which a scheme's limited recoveries of long windows take longer."""
    measured = measurements()
    rows = measured.recoveries
    here = (rows["scheme"] == scheme) & (rows["width"] == WINDOWS[-1]) & np.isfinite(rows["rate"])
    rows.loc[here, column] += seconds
    return measured


@pytest.mark.parametrize("scheme", [MODEL, PARTIAL])
def test_a_slow_approximate_recovery_turns_p2(scheme):
    assert verdict("P-2", slower(scheme, 2.0)) == "does not hold"
    assert verdict("P-2", slower(GUARD, 2.0)) == "holds if"


def test_d1_must_be_faster_at_every_limited_rate():
    assert verdict("D1-6", slower(MODEL, 0.2)) == "does not hold"
    assert verdict("D1-6", slower(PARTIAL, 0.2)) == "holds if"


def test_unpredicted_times_turn_p3():
    measured = measurements()
    limited = np.isfinite(measured.recoveries["rate"])
    measured.recoveries.loc[limited, "seconds"] *= 2
    assert verdict("P-3", measured) == "does not hold"


def test_an_expensive_checkpoint_turns_p4_and_many_cheap_ones_do_not():
    measured = measurements()
    mine = measured.outcomes["scheme"] == PARTIAL
    measured.outcomes.loc[mine, ["added_ms", "additions"]] = 60.0, 30
    assert verdict("P-4", measured) == "holds"
    measured.outcomes.loc[mine, "additions"] = 1
    assert verdict("P-4", measured) == "does not hold"


def test_too_few_kills_give_no_interval():
    measured = measurements(kills=3)
    records = judging.judge(CLAIMS, {"measured": measured}, "P-2", "D1-6")
    assert [record.interval for record in records.values()] == [None, None]
