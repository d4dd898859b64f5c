"""Whether approximate recovery pays, by hand."""

import numpy as np
import pytest

from aftlib.sensor_plans import recovery as module
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.recovery import EXACT, GUARD, NEITHER, pays_below, worth


@pytest.fixture(autouse=True)
def costs(monkeypatch):
    """Reading a sample takes only the time to wait for it."""
    whole = module.recovery_costs
    monkeypatch.setattr(
        module,
        "recovery_costs",
        lambda question: type(whole(question))(question.fixed_ms / 1e3, 0.0, 0.0, 0.0),
    )


def compare(rate, certified=0.75, t_sla="20s", failures=3.0, sizes=(2, 2, 2, 2)):
    question = Question(
        t_sla=t_sla, fixed_ms=1000.0, read_rate=rate, failures_per_month=failures, epsilon=1.0
    )
    return worth(question, sizes, 100, 1.0, certified)


def test_the_comparison_by_hand():
    # the stream has 8 samples per second; at most 2 sensors × 100 steps are lost; 10/s are spare
    table = compare(18.0)
    exact, guard = table["schemes"]
    assert exact["longest_s"] == 1 + 200 / 10 and guard["longest_s"] == 1 + 50 / 10
    assert exact["outage_minutes"] == pytest.approx(3 * (1 + 100 / 10) / 60)
    assert guard["gb_read_again"] == pytest.approx(3 * 25 * 8 / 1e9)
    assert exact["estimated_results"] == 0
    assert guard["estimated_results"] == 3 * 2 * 0.75 * (1 + 1 / 100)
    assert table["recommended"] == GUARD and "the guard takes 6 s, within T_SLA" in table["reason"]


@pytest.mark.parametrize(
    ("change", "rate", "recommended", "reason"),
    [
        ({}, 1e6, EXACT, "takes up to 1 s, within T_SLA = 20 s, and estimates nothing"),
        ({"t_sla": "21s"}, 18.0, EXACT, "takes up to 21 s, within T_SLA"),
        ({"certified": 1.0}, 8.0, GUARD, "Exact recovery never ends, because the stream takes"),
        ({"t_sla": "2s"}, 18.0, GUARD, "takes 6 s, not within T_SLA = 2 s, but saves 68% of"),
        ({"t_sla": "2s", "certified": 0.05}, 18.0, EXACT, "the guard does not save 5% of the"),
        ({}, 7.0, NEITHER, "so no recovery keeps up"),
        ({"certified": 0.999}, 8.0, NEITHER, "estimates only its certified 99.9%"),
        ({"failures": 0.0}, 18.0, EXACT, "Without failures"),
    ],
)
def test_recommendations(change, rate, recommended, reason):
    table = compare(rate, **change)
    assert table["recommended"] == recommended and reason in table["reason"]


def test_the_largest_machine_is_the_slowest():
    table = compare(23.0, sizes=(3, 3, 2, 2, 2), t_sla="25s")
    exact, guard = table["schemes"]
    assert exact["longest_s"] == pytest.approx(1 + 300 / 11)
    assert guard["longest_s"] == pytest.approx(1 + 75 / 11)
    assert table["recommended"] == GUARD and "takes up to 28.3 s" in table["reason"]


@pytest.mark.parametrize(
    ("change", "below"),
    [
        ({}, 8 + 200 / 19),
        ({"t_sla": "900ms"}, 8 + 100 * 0.7 / 0.05),
        ({"certified": 0.0}, 0.0),
        ({"t_sla": "1s", "certified": 0.05}, 0.0),
        ({"sizes": (5, 1, 1, 1)}, 8 + 500 / 19),
    ],
)
def test_below_the_rate_the_guard_is_recommended_and_above_it_exact_recovery(change, below):
    values = {"certified": 0.75, "t_sla": "20s", "sizes": (2, 2, 2, 2)} | change
    question = Question(t_sla=values["t_sla"], fixed_ms=1000.0)
    rate = pays_below(question, values["sizes"], 100, 1.0, values["certified"])
    assert rate == pytest.approx(below)
    if rate:
        assert compare(rate * 0.999, **change)["recommended"] == GUARD
        assert compare(rate * 1.001, **change)["recommended"] == EXACT


def test_failures_are_those_of_the_whole_job():
    one, two = compare(18.0, failures=1.0), compare(18.0, failures=2.0, sizes=(1,) * 8)
    assert two["failures_per_month"] == 2.0
    minutes = [table["schemes"][0]["outage_minutes"] for table in (one, two)]
    np.testing.assert_allclose(minutes, [(1 + 10) / 60, 2 * (1 + 5) / 60])
