"""D3's figures show their frames."""

from aftlib.documents.shared_state import figures
from aftlib.documents.shared_state.throughput import modelled_growth
from tests.documents.shared_state.test_claims import killed, measured


def test_throughput_has_a_curve_per_strategy_in_millions():
    frame = measured().assign(throughput=measured()["throughput"] * 1e6)
    curves = {curve.name: curve for curve in figures.by_skew(frame, "t").data}
    assert list(curves["late global"].x) == [0.0, 1.4, 2.0]
    assert list(curves["late global"].y) == [2.0, 3.0, 3.0]


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
