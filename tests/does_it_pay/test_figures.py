"""Every figure shows its measurements."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from aftlib.core.recovery_costs import Operation
from aftlib.does_it_pay import figures
from aftlib.does_it_pay.process_recoveries import EXACT_PROCESS, PROPOSED
from aftlib.does_it_pay.spark_recoveries import EXACT, GUARD, MODEL
from tests.does_it_pay.tables import COSTS, measurements

OWN = Operation(200, 20.0, 3600.0, 100.0, 10.0, 0.09)


@pytest.fixture(scope="module")
def measured():
    return measurements()


def test_the_first_figure_says_where_it_pays(measured):
    saved = figures.saved_times(measured).set_index(["scheme", "window", "rate"])
    assert saved.loc[(MODEL, 48, 100.0), "saved_s"] == pytest.approx(2.88 - 0.05, abs=0.01)
    assert saved.loc[(MODEL, 48, 100.0), "pays"] == 1
    assert saved.loc[(GUARD, 12, 1600.0), "pays"] == -1  # .045 s of reading, .1 s of estimating
    figure = figures.where_it_pays(measured)
    titles = [annotation.text for annotation in figure.layout.annotations]
    assert titles[:2] == [f"{MODEL}, against {EXACT}", f"{GUARD}, against {EXACT}"]
    faster = next(trace for trace in figure.data if trace.name == "faster")
    assert " 2.83 s" in faster.text
    line = next(trace for trace in figure.data if trace.name == "break-even, predicted")
    assert line.y == pytest.approx([72 / 0.05, 288 / 0.05], rel=0.05)


def test_a_break_even_outside_the_axis_is_an_arrow(measured):
    even = measured.break_even.copy()
    first = even.index[even["scheme"] == MODEL]
    even.loc[first, "predicted"] = [np.inf, 0.0]
    even.loc[first[0], ["measured", "measured_low", "measured_high"]] = 200.0, 50.0, np.inf
    figure = figures.where_it_pays(SimpleNamespace(recoveries=measured.recoveries, break_even=even))
    drawn = {t.name: t for t in figure.data if t.xaxis == "x"}
    above, below = (drawn[f"break-even, predicted: {side} the axis"] for side in ("above", "below"))
    assert (above.y, above.marker.symbol) == ((1e6,), "triangle-up-open")
    assert (below.y, below.marker.symbol) == ((50.0,), "triangle-down-open")
    assert "break-even, predicted" not in drawn
    point = drawn["break-even, measured"]
    assert (point.y[0], point.error_y.array[0], point.error_y.arrayminus[0]) == (
        200,
        1e6 - 200,
        150,
    )
    legend = [t.name for t in figure.data if t.name.startswith("break-even") and t.showlegend]
    assert len(legend) == len({*legend}) == len({t.name for t in figure.data if "even" in t.name})


def test_windows_ascend_in_every_panel_and_each_colour_is_in_the_legend_once(measured):
    figure = figures.where_it_pays(measured)
    for axis in ("xaxis", "xaxis2", "xaxis3", "xaxis4"):
        assert figure.layout[axis].categoryarray == ("12", "48")
    legend = [
        t.name for t in figure.data if t.showlegend and t.name in ("faster", "undecided", "slower")
    ]
    colours = figures.saved_times(measured)["pays"].nunique()
    assert len(legend) == len(set(legend)) == colours


def test_break_even_rates_stand_beside_the_points(measured):
    table = figures.break_even_table(measured).data.set_index(["scheme", "window"])
    row = table.loc[(GUARD, 12)]
    assert (row["against"], row["of"]) == (EXACT, 3)
    assert (row["faster"], row["slower"]) == (2, 1)  # .72 and .18 s of reading, and .045 s
    assert row["predicted"] == pytest.approx(72 / 0.1, rel=0.05)


def test_times_stand_beside_their_predictions(measured):
    figure = figures.recovery_times(measured)
    points = {(t.name, t.xaxis): t for t in figure.data}
    exact, predicted = points[EXACT, "x2"], points[f"{EXACT}, predicted", "x2"]
    np.testing.assert_allclose(exact.y, predicted.y, rtol=0.02)
    assert [*exact.x] == [100, 400, 1600]


def test_reads_are_counted_and_planned(measured):
    bars, marks = figures.read_again(measured).data
    assert dict(zip(bars.x, bars.y, strict=True))[PROPOSED] == 86
    assert [*bars.y] == [*marks.y]


def test_calm_has_all_schemes_in_two_panels(measured):
    figure = figures.calm(measured)
    assert [len(trace.x) for trace in figure.data] == [6, 6]


def test_tables_have_their_numbers(measured):
    costs = figures.cost_table(measured).data
    assert costs.loc[(MODEL, 12), "estimate, ms"] == pytest.approx(50, rel=0.05)
    assert figures.accuracy_table(measured).data["windows"].tolist() == [400] * 4
    own = figures.own_table(measured, OWN).data
    assert own.loc[MODEL, "recovery_s"] == pytest.approx(0.57, abs=0.01)
    half = 20 * 3600 / 2 / 2
    assert own.loc[EXACT, "recovery_s"] == pytest.approx(0.52 + half / 80, rel=0.01)
    whole = 20 * 3600 / 2 / 2  # one process has all sensors, and two checkpoints
    assert own.loc[EXACT_PROCESS, "recovery_s"] == pytest.approx(0.804 + whole / 80, rel=0.01)
    assert own.loc[EXACT, "gb_read_again"] == pytest.approx(10 * half * 8 / 1e9)
    assert own.loc[PROPOSED, "checkpoint_minutes"] == pytest.approx(
        30.4375 * 24 * 2 * COSTS[PROPOSED].checkpoint_s / 60
    )


def test_stored_recoveries_of_flink_are_medians_with_their_error(tmp_path):
    row = {"system": "region", "rate": 100.0, "lost": 0, "doubled": 6, "wrong": 0, "killed": True}
    runs = [
        row | {"outage_s": seconds, "samples_again": 30, "failure": ""} for seconds in (3, 4, 9)
    ]
    runs += [row | {"outage_s": 99, "samples_again": 0, "killed": False, "failure": ""}]
    runs += [{"system": "approximate", "rate": 100.0, "killed": True, "failure": "no <way>"}]
    about = {"flink": "2.3.0", "date": "2026-01-02", "processor": "x"}
    about["throughput"] = [{"system": "region", "samples_per_s": 1e6 * n} for n in (1, 2, 4)]
    (tmp_path / "recovery.json").write_text(json.dumps(about | {"runs": runs}))
    shown = figures.flink_table(tmp_path / "recovery.json")
    assert shown.caption == "Flink 2.3.0, 2026-01-02, x: medians"
    assert shown.data.iloc[0, 2] == 4 and shown.data["error"].tolist() == ["", "no <way>"]
    assert "2,000,000" in shown.to_html() and shown.data.iloc[:, 7].dropna().tolist() == [2e6]
    assert "no &lt;way&gt;" in shown.to_html()
    assert figures.flink_table(tmp_path / "none.json").data.empty
