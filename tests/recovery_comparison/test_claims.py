"""Each claim has measurements under which it turns."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.recovery_comparison.claims import CLAIMS, answer_for, summarize
from aftlib.recovery_comparison.experiments import NotebookParameters
from aftlib.recovery_comparison.normal import StoredSpark, checkpoints_name
from aftlib.recovery_comparison.schemes import GUARD, MODEL, NOTHING, PARTIAL
from tests import judging
from tests.recovery_comparison.tables import WINDOWS, measurements


def record(id, measured):
    return judging.judge(CLAIMS, {"measured": measured}, id)[id]


def verdict(id, measured):
    return record(id, measured).verdict


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


def slower(scheme, seconds):
    """Return measurements in which a scheme's limited recoveries of long windows take longer."""
    measured = measurements()
    rows = measured.recoveries
    here = (rows["scheme"] == scheme) & (rows["width"] == WINDOWS[-1]) & np.isfinite(rows["rate"])
    rows.loc[here, "seconds"] += seconds
    return measured


def test_p1_bounds_the_harm_only_if_there_was_none():
    measured = measurements()
    assert "At most one kill in" in record("P-1", measured).sensitivity
    measured.outcomes.loc[measured.outcomes["scheme"] == GUARD, "lost"] = 2
    found = record("P-1", measured).sensitivity
    assert "At most" not in found and "4 lost" in found


def faster_checkpoints(count, factor):
    """Return measurements in which exact checkpoints of that number per window are faster."""
    measured = measurements()
    rows = measured.normal["method"] == checkpoints_name(count)
    measured.normal.loc[rows, "per_s"] *= factor
    return measured


def test_d1_7_is_decided_by_the_closest_interval():
    assert verdict("D1-7", faster_checkpoints(4, 2.5)) == "does not hold"
    assert verdict("D1-7", faster_checkpoints(24, 6)) == "does not hold"
    assert verdict("D1-7", faster_checkpoints(1, 3)) == "does not hold"
    uneven = faster_checkpoints(4, 1)
    mine = uneven.normal["method"] == checkpoints_name(4)
    uneven.normal.loc[mine, "per_s"] *= np.where(np.arange(mine.sum()) % 2, 0.2, 3.0)
    assert verdict("D1-7", uneven) == "open"


def test_d1_7_names_its_interval_and_the_stored_runs_on_spark():
    measured = measurements()
    assert "with checkpoints, 1 per window" in record("D1-7", measured).text
    said = record("D1-7", measured).sensitivity
    assert " times the throughput with checkpoints, 4 per window; " in said
    assert " times the throughput without fault tolerance. The guard has " in said
    measured.__dict__["spark"] = None
    assert "Spark" not in record("D1-7", measured).sensitivity
    measured.__dict__["spark"] = StoredSpark("2026-01-02", (0.5,))
    assert "Reversed on Spark" in record("D1-7", measured).sensitivity
    assert "0.50 of the speed" in record("D1-7", measured).sensitivity
    measured.__dict__["spark"] = StoredSpark("2026-01-02", (1.5,))
    assert "Reversed" not in record("D1-7", measured).sensitivity


def test_d1_6_names_the_rate_that_decides():
    found = record("D1-6", measurements()).text
    assert "of exact replay's time at 1,600 samples/s" in found


@pytest.mark.parametrize("scheme", [MODEL, PARTIAL])
def test_a_slow_approximate_recovery_turns_p2(scheme):
    found = record("P-2", slower(scheme, 2.0))
    slowest = measurements().recoveries["rate"].min()
    assert found.text.endswith(
        f"times the exact recovery's time, {scheme} at {slowest:,g} samples/s"
    )
    assert "without a limit of the read rate D1 by model " in found.sensitivity
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


def test_p3_leaves_out_the_windows_that_give_the_constants():
    measured = measurements()
    rows = measured.recoveries
    shortest = (rows["width"] == WINDOWS[0]) & np.isfinite(rows["rate"])
    rows.loc[shortest, "seconds"] *= 2
    assert verdict("P-3", measured) == "holds"
    one_width = replace(measured, recoveries=rows[rows["width"] == WINDOWS[0]])
    assert verdict("P-3", one_width) == "not run"


def test_an_expensive_checkpoint_turns_p4_and_many_cheap_ones_do_not():
    measured = measurements()
    mine = measured.outcomes["scheme"] == PARTIAL
    measured.outcomes.loc[mine, ["added_ms", "additions"]] = 60.0, 30
    assert verdict("P-4", measured) == "holds if"
    measured.outcomes.loc[mine, "additions"] = 1
    assert verdict("P-4", measured) == "does not hold"


def test_too_few_kills_give_no_interval():
    for id in ("P-2", "D1-6"):
        assert record(id, measurements(kills=3)).interval is None
    assert record("D1-7", measurements(turns=3)).interval is None


def test_the_box_follows_the_verdicts_and_the_readers_own_numbers():
    records = judging.judge(CLAIMS, {"measured": measurements()})
    box = summarize(records, NotebookParameters())
    assert box.found.startswith("It holds that estimating halves the outage (at most 0.")
    assert "times the exact recovery's time, " in box.found and " samples/s) if" in box.found
    assert ": exact replay does not suffice" in box.found
    assert sum(len(text.split()) for text in vars(box).values()) <= 111
    turned = records | {"P-2": records["P-2"].model_copy(update={"verdict": "does not hold"})}
    assert "It does not hold that estimating" in summarize(turned, NotebookParameters()).found
    undecided = records | {"D1-7": records["D1-7"].model_copy(update={"verdict": "open"})}
    speed = "It is open whether omitting checkpoints makes D1 faster."
    assert speed in summarize(undecided, NotebookParameters()).found


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (19.0, "live reads leave nothing for reading again, so exact replay never ends"),
        (20.0, "live reads leave nothing for reading again, so exact replay never ends"),
        (21.0, "leave 1/s, so reading a worker's window again takes 36,000 s, over the limit"),
        (3620.0, "takes 10 s, within the limit of 60 s: exact replay suffices"),
    ],
)
def test_the_answer_compares_the_time_of_reading_with_the_limit(rate, words):
    said = answer_for(NotebookParameters(own_read_rate=rate))
    assert words in said
    stream = f"20 samples/s, windows of 3,600 s, 2 workers, a source of {rate:,g}/s"
    assert stream in said
