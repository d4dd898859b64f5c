"""Figures and tables show what was measured."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aftlib.recovery_comparison import captions, figures
from aftlib.recovery_comparison.claims import CLAIMS
from aftlib.recovery_comparison.experiments import NotebookParameters
from aftlib.recovery_comparison.figures import (
    own_costs,
    own_numbers,
    summarize_operation,
    summarize_schemes,
)
from aftlib.recovery_comparison.normal import UNPROTECTED, checkpoints_name
from aftlib.recovery_comparison.schemes import (
    EXACT,
    LAST,
    MODEL,
    NOTHING,
    all_schemes,
    exact_of,
)
from tests.recovery_comparison.tables import RATES, WINDOWS, measurements
from tests.refusals import refused


def test_the_main_figure_has_a_mark_for_each_approximate_scheme_window_and_rate():
    figure = figures.recovery_ratios(measurements())
    marks = [trace for trace in figure.data if trace.mode == "markers"]
    schemes = [name for name in all_schemes() if exact_of(name)]
    assert len(marks) == len(schemes) * len(WINDOWS)
    assert {trace.name for trace in marks} == {*schemes}
    for trace in marks:
        assert len(trace.x) == len(RATES) and np.isfinite(trace.x).all()
    assert "unlimited" in figure.layout.xaxis.ticktext
    panels = (figure.layout[name] for name in figure.layout if name.startswith("xaxis"))
    assert sum(bool(axis.title.text) for axis in panels) == 1  # titles of panels would overlap


def test_the_table_has_a_row_per_scheme_with_fixed_and_reading_time():
    table = summarize_schemes(measurements())
    assert [*table.index] == all_schemes()
    assert np.allclose(table["fixed_ms"] / 1e3 + table["reading_s"], table["recovery_s"])
    assert table.loc[NOTHING, "lost"] == 100 and table.drop(NOTHING)["lost"].sum() == 0


def test_tables_of_break_even_and_own_numbers_are_readable():
    measured, operation = measurements(), NotebookParameters().operation
    measured.break_even.loc[0, "measured"] = np.inf
    assert "∞" in figures.break_even_table(measured).to_html()
    assert "lost" in figures.outcome_table(measured).to_html()
    assert MODEL in figures.own_table(measured, operation, 60.0).to_html()
    assert "97 %" in figures.accuracy_table(measured).to_html()
    assert "90 %" in figures.operation_table(measured).to_html()
    assert "43 %" in figures.threshold_table(measured).to_html()


def test_captions_have_at_most_two_sentences_and_the_runs_numbers():
    measured = measurements()
    told = [
        captions.describe_ratios(measured),
        captions.describe_outcomes(measured),
        captions.describe_accuracy(measured),
        captions.describe_operation(measured),
    ]
    for text in told:
        assert 1 <= len(re.split(r"(?<=[.?!]) (?=[A-ZΣ])", text)) <= 2 and text.endswith(".")
    assert (
        "70 % and 97 % are within ε at 24 hours; the difference" in told[2]
        and f"; at {RATES[0]:,g} samples/s their longest outages are, by (1), " in told[3]
        and "95 % of the speed" in told[3]
        and "24 checkpoints per window 20 %" in told[3]
    )
    assert "2 of 2 workers" in told[1] and "reads nothing again" in told[1]


def test_a_model_that_can_estimate_no_worker_reads_all_again():
    measured = measurements()
    case = NotebookParameters(epsilon_sd=0.01).read_case(WINDOWS[-1])
    text = captions.describe_outcomes(replace(measured, case=case))
    assert "0 of 2 workers" in text and "so it reads all samples again" in text


def test_the_caption_of_thresholds_has_the_longest_windows_numbers():
    measured = measurements()
    text = captions.describe_thresholds(measured)
    assert "in windows of 24 hours it is at most 0.9 ε off, for 0.5 backups" in text
    assert "of these 43 % are within ε; of D1 by model's estimates 97 % are" in text
    measured.accuracy.loc[measured.accuracy["scheme"] == MODEL, "within"] = np.nan
    alone = captions.describe_thresholds(measured)
    assert alone.endswith("43 % are within ε.") and "D1 by model" not in alone


@pytest.mark.parametrize(
    ("widths", "words"),
    [
        (WINDOWS[:1], "the difference is what a model is worth; at 6 hours D1 by model"),
        (WINDOWS, "At 6 hours and 24 hours D1 by model estimates nothing at this ε; guaranteed"),
    ],
)
def test_the_caption_says_where_a_model_estimates_nothing(widths, words):
    measured = measurements()
    rows = measured.accuracy
    rows.loc[(rows["scheme"] == MODEL) & rows["width"].isin(widths), "within"] = np.nan
    text = captions.describe_accuracy(measured)
    assert words in text and "–" not in text


def test_outages_in_normal_operation_are_those_of_the_cost_model():
    measured = measurements()
    outages = summarize_operation(measured)["outage_s"]
    points = measured.points.set_index(["scheme", "width", "rate"])["predicted_s"]
    assert outages[checkpoints_name(1)] == pytest.approx(points[EXACT, WINDOWS[-1], RATES[0]])
    assert outages[MODEL] == pytest.approx(points[MODEL, WINDOWS[-1], RATES[0]])
    wait = outages[checkpoints_name(1)] - outages[checkpoints_name(4)]
    assert wait == pytest.approx(0.75 * 0.5 * 12 * WINDOWS[-1] / RATES[0], rel=1e-3)
    assert np.isnan(outages[UNPROTECTED])


def test_a_share_of_the_speed_is_the_claims_ratio():
    """Medians of turns that one turn upsets have another ratio than their means."""
    measured = measurements()
    measured.normal.loc[measured.normal["turn"] == 0, "per_s"] *= [1, 3, 1, 1, 2, 1, 1]
    speeds = summarize_operation(measured)["speed"]
    bare = f"{speeds[MODEL]:.2f} times the throughput without fault tolerance"
    (d1_7,) = (claim for claim in CLAIMS if claim.id == "D1-7")
    assert bare in d1_7.judge(measured).sensitivity


def test_what_d1_saves_without_a_limit_has_the_sign_of_its_ratio():
    """Ratios are of means; medians may say the reverse."""
    measured = measurements()
    rows = measured.recoveries
    unlimited = np.isinf(rows["rate"]) & (rows["scheme"] == EXACT)
    measured.recoveries.loc[rows[unlimited].index[::9], "seconds"] += 0.9
    ratios = measured.ratios.set_index(["scheme", "width", "rate"])["ratio"]
    assert ratios[MODEL, WINDOWS[-1], np.inf] < 1
    assert "D1 by model saves 80 ms" in captions.describe_times(measured)


def test_exact_replay_suffices_unless_much_time_is_saved_without_a_limit():
    measured = measurements()
    assert "exact replay suffices" in captions.describe_times(measured)
    measured = measurements()
    rows = measured.recoveries
    measured.recoveries.loc[rows["scheme"] == EXACT, "seconds"] += 0.1
    assert "exact replay suffices" not in captions.describe_times(measured)


@pytest.mark.parametrize(
    ("rate", "limit_s", "words"),
    [
        (100.0, 60.0, ["estimating pays", "misses 60 s"]),
        (
            100.0,
            1e5,
            ["exact replay suffices", "keeps 100,000 s", "model is faster; it is below"],
        ),
        (
            1e8,
            0.001,
            ["neither exact replay nor D1", "misses 0.001 s, because no rate is", "is not faster"],
        ),
    ],
)
def test_the_answer_for_your_stream_names_both_criteria(rate, limit_s, words):
    p = NotebookParameters(own_read_rate=rate, own_t_sla_s=limit_s)
    answer = captions.answer_own(measurements(), p)
    assert all(word in answer for word in [*words, "keeps T_SLA", "is faster"])


def test_no_recovery_ends_if_the_source_is_slower_than_the_stream():
    """Estimating was said to pay beside a table in which its outages have no end."""
    p = NotebookParameters(own_read_rate=10.0)
    assert np.isinf(own_numbers(measurements(), p.operation)["outage_minutes"]).all()
    assert captions.answer_own(measurements(), p).endswith("so no recovery ends.")


def test_a_scheme_that_reads_nothing_has_costs_of_its_own():
    """A scheme of one's own, whatever it reads, is compared with exact replay."""
    measured = measurements()
    mine = measured.recoveries[measured.recoveries["scheme"] == LAST].assign(scheme="mine")
    measured.__dict__["recoveries"] = pd.concat([measured.recoveries, mine], ignore_index=True)
    table = own_costs(measured, NotebookParameters().operation, 60.0)
    assert table.loc["mine", "gb_read_again"] == 0
    assert table.loc["mine", "keeps_from"] == table.loc[LAST, "keeps_from"] > 600
    assert np.isnan(table.loc[EXACT, "keeps_from"])


def test_your_outage_falls_with_the_read_rate_to_that_of_d1():
    measured, operation = measurements(), NotebookParameters(own_samples_per_s=50.0).operation
    slow = own_numbers(measured, replace(operation, read_rate=60.0))["outage_minutes"]
    fast = own_numbers(measured, replace(operation, read_rate=5e5))["outage_minutes"]
    assert slow[EXACT] > 100 * slow[MODEL] and fast[EXACT] < 1e-3 * slow[EXACT]


test_parameters_that_cannot_run_are_refused = refused(
    lambda changed: NotebookParameters(**changed),
    ({"windows": []}, "windows must hold"),
    ({"rates": [100.0, 100.0]}, "rates must differ"),
    ({"workers": 5}, "give 2, 3, 4, 6 or 12"),
    ({"kills": 500}, "give shorter windows, .* kills or rates"),
)
