"""Each claim has measurements under which it turns."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.does_it_pay.claims import CLAIMS
from aftlib.does_it_pay.process_recoveries import PROPOSED
from aftlib.does_it_pay.spark_recoveries import EXACT, GUARD, MODEL
from tests import judging
from tests.does_it_pay.tables import RATES, WINDOWS, measurements


def verdicts(measured):
    records = judging.judge(CLAIMS, {"measured": measured})
    return {id: record.verdict for id, record in records.items()}


def list_changed(measured):
    return {id for id, verdict in verdicts(measured).items() if verdict != "holds"}


def changed(column, value, scheme, frame="recoveries"):
    measured = measurements()
    table = getattr(measured, frame)
    table.loc[table["scheme"] == scheme, column] = value
    return measured


def test_all_claims_hold_of_what_the_cost_model_makes():
    assert list_changed(measurements()) == set()


@pytest.mark.parametrize("again", [9, 576])
def test_samples_that_no_plan_reads_again_turn_p1(again):
    assert verdicts(changed("again", again, MODEL))["P-1"] == "deviates"


def test_what_the_guard_reads_again_is_not_planned():
    assert "P-1" not in list_changed(changed("again", 3, GUARD))


def test_unpredicted_times_turn_p2_and_p3():
    measured = measurements()
    limited = np.isfinite(measured.recoveries["rate"])
    measured.recoveries.loc[limited, "seconds"] += 1.0
    assert verdicts(measured)["P-2"] == "deviates"
    measured = measurements()
    slow = measured.recoveries["scheme"].isin([MODEL, GUARD, PROPOSED])
    slow &= measured.recoveries["window"] == WINDOWS[-1]
    measured.recoveries.loc[slow, ["seconds", "work_s"]] += 0.4
    assert verdicts(measured)["P-3"] == "deviates"


def p3(**columns):
    """Return P-3's record if the break-even table has these values in the cases that count."""
    measured = measurements()
    for name, values in columns.items():
        case = ~measured.break_even["constants"]
        measured.break_even.loc[case, name] = values
    return judging.judge(CLAIMS, {"measured": measured}, "P-3")["P-3"]


def test_the_windows_that_give_the_constants_are_no_points_of_p2():
    measured = measurements()
    rows = measured.recoveries
    rows.loc[rows["window"] == WINDOWS[0], "seconds"] += 5.0  # starts, which predict the others
    assert judging.judge(CLAIMS, {"measured": measured}, "P-2")["P-2"].n == 6 * 3
    one = replace(measurements(), recoveries=rows[rows["window"] == WINDOWS[0]])
    assert verdicts(one)["P-2"] == "undecided" and verdicts(one)["P-3"] == "undecided"


def test_only_cases_that_give_no_constants_count():
    assert p3().n == 4 and p3().verdict == "holds"
    measured = measurements()
    measured.break_even.loc[measured.break_even["constants"], ["ratio_low", "ratio_high"]] = 9.0
    assert verdicts(measured)["P-3"] == "holds"


def test_break_even_rates_not_distinguished_from_infinity_are_left_out():
    wide = {"ratio_low": 0.1, "ratio_high": np.inf}
    for end in ("predicted_high", "measured_high"):
        assert p3(**wide, **{end: np.inf}).verdict == "undecided"
        record = p3(**{end: [np.inf, 4e3, 4e3, 4e3]})
        assert record.n == 3 and "1 of 4 break-even rates are left out" in record.note


def test_break_even_rates_that_refute_their_predictions_count():
    always = {"predicted": np.inf, "predicted_high": np.inf}
    assert p3(**always, ratio_low=0.0, ratio_high=0.1).verdict == "deviates"
    none = {"measured": np.inf, "measured_high": np.inf}
    assert p3(**none, ratio_low=9.0, ratio_high=np.inf).verdict == "deviates"


def test_an_interval_that_reaches_beyond_the_factor_decides_nothing():
    record = p3(ratio_low=0.7, ratio_high=1.6)
    assert record.interval == (0.0, 1.0) and record.verdict == "undecided"


def test_break_even_rates_within_the_noise_are_undecided():
    assert verdicts(measurements(noise=0.1))["P-3"] == "undecided"


def test_a_d1_that_waits_for_its_input_turns_p4_and_p5():
    measured = measurements()
    slowest = (measured.recoveries["rate"] == RATES[0]) & (measured.recoveries["scheme"] == MODEL)
    measured.recoveries.loc[slowest, "seconds"] += 2.0
    assert {"P-4", "P-5"} <= list_changed(measured)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_kills_that_differ_more_than_the_rates_decide_nothing(order):
    measured = measurements(kills=3)
    rows = measured.recoveries
    d1 = (rows["scheme"] == MODEL) & (rows["window"] == WINDOWS[-1])
    rows.loc[d1 & (rows["rate"] == RATES[0]), "seconds"] = np.array([0.31, 0.08, 0.08])[order]
    rows.loc[d1 & np.isinf(rows["rate"]), "seconds"] = [0.36, 0.09, 0.33]
    record = judging.judge(CLAIMS, {"measured": measured}, "P-4")["P-4"]
    assert record.verdict == "undecided" and record.interval[0] < 0 and record.interval[1] > 2
    assert "at 100 samples/s: 0.16 s; D1 by model without a limit: 0.26 s" in record.note


def test_an_exact_recovery_that_is_as_fast_turns_p5():
    measured = changed("seconds", 0.6, EXACT)
    assert "P-5" in list_changed(measured) and "P-6" not in list_changed(measured)


def test_a_d2_that_is_as_slow_turns_p6():
    measured = measurements()
    slow = measured.recoveries["scheme"] == PROPOSED
    longest = measured.recoveries["window"] == WINDOWS[-1]
    measured.recoveries.loc[slow & longest, "seconds"] += 3.0
    assert verdicts(measured)["P-6"] == "deviates"


def test_an_overhead_turns_p7():
    slow = changed("seconds", 0.22, GUARD, "calm")
    assert list_changed(slow) == {"P-7"} and verdicts(slow)["P-7"] == "deviates"


def test_wrong_estimates_turn_p8():
    assert list_changed(measurements(within=0.8)) == {"P-8"}
    assert verdicts(measurements(within=0.8))["P-8"] == "deviates"


def test_no_scheme_hides_its_wrong_estimates_behind_one_with_fewer_windows():
    measured = measurements()
    table = measured.estimates
    table.loc[table["scheme"] == GUARD, "off"] = 0.5
    table.loc[(table["scheme"] == PROPOSED) & (table["batch"] % 8 == 0), "off"] = 1.2
    few = table[(table["scheme"] != GUARD) | (table["batch"] < 3)]
    record = judging.judge(CLAIMS, {"measured": replace(measured, estimates=few)}, "P-8")["P-8"]
    assert record.verdict == "deviates" and record.note.startswith("D1 by guard has the lowest end")
    assert record.n == 6 and "deviates" in record.parts[PROPOSED]


def test_without_estimates_or_calm_windows_their_claims_are_not_run():
    measured = measurements()
    none = {"estimates": measured.estimates.iloc[:0], "calm": measured.calm.iloc[:0]}
    verdict = verdicts(replace(measured, **none))
    assert (verdict["P-7"], verdict["P-8"]) == ("not run", "not run")


def test_few_break_even_rates_decide_nothing():
    record = p3(predicted_high=[np.inf, 4e3, 4e3, 4e3])
    assert record.measured == 1 and record.n == 3
    assert record.interval == (0.0, 1.0) and record.verdict == "undecided"
    refuted = p3(measured=1.0, ratio_low=0.0, ratio_high=0.1, predicted_high=[np.inf] * 3 + [4e3])
    assert refuted.verdict == "deviates" and refuted.n == 4
