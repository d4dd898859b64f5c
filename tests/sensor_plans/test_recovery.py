"""Whether approximate recovery pays, by hand."""

import pytest

from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.recovery import EXACT, GUARD, pays_below, weigh_costs

EQUAL = (2, 2, 2, 2)


def about(value):
    """Processing takes a microsecond per sample, which the sums by hand leave out."""
    return pytest.approx(value, rel=1e-3)


def compare(rate, certified=0.75, t_sla="20s", failures=3.0, sizes=EQUAL):
    question = Question(
        t_sla=t_sla, fixed_ms=1000.0, read_rate=rate, failures_per_month=failures, epsilon=1.0
    )
    return weigh_costs(question, sizes, 100, 1.0, certified)["worth"]


def test_the_comparison_by_hand():
    # the stream has 8 samples per second; at most 2 sensors × 100 steps are lost; 10/s are spare
    table = compare(18.0)
    exact, guard = table["schemes"]
    assert (exact["longest_s"], guard["longest_s"]) == (about(1 + 200 / 10), about(1 + 50 / 10))
    assert exact["outage_minutes"] == about(3 * (1 + 100 / 10) / 60)
    assert guard["outage_minutes"] == about(3 * (1 + 25 / 10) / 60)
    assert exact["estimated_results"] == 0
    assert guard["estimated_results"] == 3 * 2 * 0.75
    assert table["recommended"] == GUARD


@pytest.mark.parametrize(
    ("change", "rate", "recommended"),
    [
        ({}, 1e6, EXACT),
        ({"t_sla": "22s"}, 18.0, EXACT),
        ({"t_sla": "2s"}, 18.0, GUARD),
        ({"t_sla": "2s", "certified": 0.05}, 18.0, EXACT),
        ({"t_sla": "2s", "certified": 0.0}, 18.0, EXACT),
    ],
)
def test_recommendations(change, rate, recommended):
    assert compare(rate, **change)["recommended"] == recommended


def test_nothing_is_compared_without_times_or_a_read_rate():
    question = Question(read_rate=None)
    assert weigh_costs(question, EQUAL, 100, 1.0, 0.5)["worth"] is None
    assert weigh_costs(question, EQUAL, 100, None, 0.5) == {"pays_below": None, "worth": None}


def test_the_largest_machine_is_the_slowest():
    table = compare(23.0, sizes=(3, 3, 2, 2, 2), t_sla="25s")
    exact, guard = table["schemes"]
    assert (exact["longest_s"], guard["longest_s"]) == (about(1 + 300 / 11), about(1 + 75 / 11))
    assert table["recommended"] == GUARD


@pytest.mark.parametrize(
    ("change", "below"),
    [
        ({}, 8 + 200 / 19),
        ({"t_sla": "900ms"}, 8 + 200 * 0.7 / 0.05),
        ({"certified": 0.0}, 0.0),
        ({"certified": 0.05}, 0.0),
        ({"sizes": (5, 1, 1, 1)}, 8 + 500 / 19),
    ],
)
def test_below_the_rate_the_guard_is_recommended_and_above_it_exact_recovery(change, below):
    values = {"certified": 0.75, "t_sla": "20s", "sizes": EQUAL} | change
    question = Question(t_sla=values["t_sla"], fixed_ms=1000.0)
    rate = pays_below(question, values["sizes"], 100, 1.0, values["certified"])
    assert rate == pytest.approx(below, rel=0.02)
    for factor, recommended in ((0.999, GUARD), (1.001, EXACT)):
        if rate:
            assert compare(rate * factor, **change)["recommended"] == recommended


def test_estimating_pays_at_any_rate_where_processing_alone_misses_the_limit():
    assert pays_below(Question(), EQUAL, 10_000_000, 1.0, 0.9) is None


def test_failures_are_those_of_the_whole_job():
    one, two = compare(18.0, failures=1.0), compare(18.0, failures=2.0, sizes=(1,) * 8)
    minutes = [table["schemes"][0]["outage_minutes"] for table in (one, two)]
    assert minutes == [about((1 + 10) / 60), about(2 * (1 + 5) / 60)]
