"""Figures and tables show what was measured."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.does_it_pay import figures
from aftlib.does_it_pay.break_even import COMPARED
from aftlib.does_it_pay.experiments import SCHEMES, NotebookParameters, own_numbers, scheme_table
from aftlib.does_it_pay.schemes import EXACT, EXACT_PROCESS, MODEL, NOTHING
from tests.does_it_pay.tables import RATES, WINDOWS, measurements


def test_the_main_figure_has_unlimited_reads_and_open_marks_for_estimates():
    figure = figures.recovery_times(measurements())
    marks = [trace for trace in figure.data if trace.mode == "markers"]
    assert len(marks) == len(SCHEMES) * len(WINDOWS)
    for trace in marks:
        assert len(trace.x) == len(RATES) and np.isfinite(trace.x).all()
        assert trace.marker.symbol.endswith("open") == (trace.name in COMPARED)
    assert "unlimited" in figure.layout.xaxis.ticktext


def test_exact_recoveries_rise_to_the_left_and_d1_by_model_does_not():
    points = measurements().points.set_index(["scheme", "width", "rate"])["seconds"]
    for exact in (EXACT, EXACT_PROCESS):
        assert points[exact, WINDOWS[-1], RATES[0]] > 5 * points[exact, WINDOWS[-1], np.inf]
    assert points[MODEL, WINDOWS[-1], RATES[0]] < 1.1 * points[MODEL, WINDOWS[-1], np.inf]


def test_the_table_has_a_row_per_scheme_with_fixed_and_reading_time():
    table = scheme_table(measurements())
    assert [*table.index] == [*SCHEMES]
    assert np.allclose(table["fixed_ms"] / 1e3 + table["reading_s"], table["recovery_s"])
    assert table.loc[NOTHING, "lost"] == 100 and table.drop(NOTHING)["lost"].sum() == 0


def test_tables_of_break_even_and_own_numbers_are_readable():
    measured, operation = measurements(), NotebookParameters().operation
    measured.break_even.loc[0, "measured"] = np.inf
    assert "∞" in figures.break_even_table(measured).to_html()
    assert "lost" in figures.outcome_table(measured).to_html()
    assert MODEL in figures.own_table(measured, operation).to_html()


def test_your_outage_falls_with_the_read_rate_to_that_of_d1():
    measured, operation = measurements(), NotebookParameters(own_samples_per_s=50.0).operation
    slow = own_numbers(measured, replace(operation, read_rate=60.0))["outage_minutes"]
    fast = own_numbers(measured, replace(operation, read_rate=5e5))["outage_minutes"]
    assert slow[EXACT] > 100 * slow[MODEL] and fast[EXACT] < 1e-3 * slow[EXACT]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"windows": []}, "windows must hold"),
        ({"rates": [100.0, 100.0]}, "rates must differ"),
        ({"workers": 5}, "give 2, 3, 4, 6 or 12"),
        ({"kills": 500}, "give shorter windows, .* kills or rates"),
    ],
)
def test_parameters_that_cannot_run_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        NotebookParameters(**changed)
