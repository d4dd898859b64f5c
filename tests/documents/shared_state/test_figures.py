"""D3's figures show their frames."""

import pytest

from aftlib.documents.shared_state import figures
from aftlib.documents.shared_state.claims import CLAIMS
from aftlib.documents.shared_state.throughput import ONE, TEN, geometric_mean, modelled_growth
from tests.documents.shared_state.test_claims import flushes, killed, measured, searched, world
from tests.judging import judge


def test_throughput_has_a_curve_per_strategy_in_millions():
    frame = measured().assign(throughput=measured()["throughput"] * 1e6)
    curves = {curve.name: curve for curve in figures.by_skew(frame, "t").data}
    assert list(curves["late global"].x) == [0.0, 1.4, 2.0]
    assert list(curves["late global"].y) == [2.0, 3.0, 3.0]


def test_one_gain_of_skew_has_one_value_in_text_and_claim():
    """Means of ratios within turns, 21.6^(1/5) here; the ratio of the medians is 4/3."""
    frame = measured()
    shared = frame["strategy"] == "late global"
    for skew, speeds in {0.0: [1, 2, 3, 4, 5], 1.4: [2, 3, 4, 5, 6], 2.0: [4, 3, 4, 6, 9]}.items():
        frame.loc[shared & (frame["skew"] == skew), "throughput"] = speeds
    again = searched().assign(keys=world()["p"].keys)
    record = judge(CLAIMS, world(measured=frame, searched=again), "D3-4")["D3-4"]
    assert "late global × 1.85" in figures.describe_speeds(frame).markdown
    assert "× 1.85 at skew 2." in record.sensitivity
    assert record.sensitivity.count("at skew 1.4") == 2  # measured, and stored of Flink


def test_a_shuffle_stops_growing_under_skew_and_a_shared_table_goes_on():
    growth = modelled_growth(10_000, [0.0, 2.0], 0.4, 20.0, 20.0)
    drawn = figures.modelled_growth(growth, "t")
    last = {curve.name: curve.y[curve.x.index(24)] for curve in drawn.data}
    assert last["shuffle, skew 2"] < 4 < last["shuffle, uniform"]
    assert last["shared table, skew 2"] > 20


def test_failures_leave_the_broken_control_out():
    again, behind = figures.failures(killed(), "t").data
    assert list(again.y) == ["task killed, read", "server killed, flushed"]
    assert (list(again.x), list(behind.x)) == ([4000, 4000], [3000, 3000])


def test_flushes_have_the_price_of_transactions():
    uneven = flushes()
    uneven.loc[3, "per_s"] *= 2
    rates = uneven.groupby("flush")["per_s"].agg(geometric_mean)  # as the notebook's table has them
    ratio = judge(CLAIMS, world(flushes=uneven), "D3-10")["D3-10"].measured
    assert ratio == pytest.approx(rates[ONE] / rates[TEN])
    assert f"are × {ratio:.2f} as fast" in figures.describe_flushes(uneven).markdown
    text = figures.describe_flushes(flushes()).markdown
    assert "are × 1.30 as fast as in *ten transactions*: this is the price of ten" in text
    assert "a further × 1.40 as fast" in text
