"""Whether approximate recovery pays: by hand, on the command line, and measured."""

from dataclasses import replace

import pytest

from aftlib.core.planfile import headline, read_plan
from aftlib.core.recovery_costs import RecoveryCosts
from aftlib.sensor_plans import figures
from aftlib.sensor_plans.worth import EXACT, GUARD, NEITHER, worth
from tests.sensor_plans.test_command import aft_plan, frame, there

__all__ = ["there"]
COSTS = RecoveryCosts(start_s=1.0, sample_s=0.0, estimate_s=0.0, checkpoint_s=0.0)


def plan(certified=0.75, t_sla_ms=20_000, step_s=1.0, workers=(2, 2, 2, 2)):
    return {
        "data": {"step_seconds": step_s},
        "question": {"window": 100, "t_sla_ms": t_sla_ms, "delta": 0.05},
        "sensors": [{}] * sum(workers),
        "assignment": [["a"] * sensors for sensors in workers],
        "backtest": {"declared_recoverable": certified},
    }


def test_the_comparison_by_hand():
    # the stream has 8 samples per second; at most 2 sensors × 100 steps are lost; 10/s are spare
    table = worth(plan(), 18.0, 3.0, COSTS)
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
        ({"t_sla_ms": 21_000}, 18.0, EXACT, "takes up to 21 s, within T_SLA"),
        ({"certified": 1.0}, 8.0, GUARD, "Exact recovery never ends, because the stream takes"),
    ],
)
def test_exact_recovery_is_recommended_wherever_it_meets_the_limit(
    change, rate, recommended, reason
):
    table = worth(plan(**change), rate, 1.0, COSTS)
    assert table["recommended"] == recommended and reason in table["reason"]


@pytest.mark.parametrize(
    ("change", "estimate_s", "recommended", "reason"),
    [
        ({}, 0, GUARD, "takes 6 s, not within T_SLA = 2 s, but saves 68% of the outage; where it"),
        ({"certified": 0.06}, 0, GUARD, "saves 5% of the outage"),
        ({"certified": 0.05}, 0, EXACT, "the guard does not save 5% of the outage"),
        ({"certified": 0.0}, 0, EXACT, "the guard does not save 5% of the outage"),
        ({}, 10, EXACT, "takes up to 21 s, not within T_SLA = 2 s, and the guard does not save"),
    ],
)
def test_where_neither_meets_the_limit_the_guard_must_save_outage(
    change, estimate_s, recommended, reason
):
    costs = replace(COSTS, estimate_s=estimate_s)
    table = worth(plan(t_sla_ms=2_000, **change), 18.0, 3.0, costs)
    assert table["recommended"] == recommended and reason in table["reason"]


def test_the_largest_worker_is_the_slowest():
    # the stream has 12 samples per second; at most 3 sensors × 100 steps are lost; 11/s are spare
    table = worth(plan(t_sla_ms=25_000, workers=(3, 3, 2, 2, 2)), 23.0, 3.0, COSTS)
    exact, guard = table["schemes"]
    assert exact["longest_s"] == pytest.approx(1 + 300 / 11)
    assert guard["longest_s"] == pytest.approx(1 + 75 / 11)
    assert exact["samples_read_again"] == 300
    assert exact["outage_minutes"] == pytest.approx(3 * (1 + 240 / 11 / 2) / 60)
    assert table["recommended"] == GUARD and "takes up to 28.3 s" in table["reason"]


@pytest.mark.parametrize("certified", [0.0, 0.75, 1.0])
def test_no_recovery_keeps_up_with_a_stream_faster_than_its_source(certified):
    table = worth(plan(certified), 7.0, 1.0, COSTS)
    assert [row["longest_s"] for row in table["schemes"]] == [None, None]
    assert table["recommended"] == NEITHER and "so no recovery keeps up" in table["reason"]


@pytest.mark.parametrize(("certified", "share"), [(0.0, "0.0%"), (0.999, "99.9%")])
def test_where_the_stream_needs_the_whole_rate_the_guard_only_estimates(certified, share):
    table = worth(plan(certified), 8.0, 1.0, COSTS)
    assert table["recommended"] == NEITHER
    assert f"Nor does the guard, which estimates only its certified {share}" in table["reason"]
    guard = table["schemes"][1]
    assert guard["outage_minutes"] is None and guard["samples_read_again"] == 0
    assert guard["estimated_results"] == pytest.approx(2 * certified * (1 + 1 / 100))


@pytest.mark.parametrize("rate", [8.0, 18.0, 1e6])
def test_without_failures_nothing_is_to_be_gained(rate):
    table = worth(plan(), rate, 0.0, COSTS)
    assert table["recommended"] == EXACT and "Without failures" in table["reason"]


def test_data_without_times_have_no_rate():
    with pytest.raises(ValueError, match="read_rate must be given with data that have times, got"):
        worth(plan(step_s=None), 5.0, 1.0, COSTS)


def test_the_command_compares_and_the_plan_has_the_comparison(there):
    frame().to_csv("f.csv")
    given = ("f.csv", "--epsilon-sd", 0.5, "--workers", 2, "--read-rate", 0.01)
    done = aft_plan(*given, "--failures-per-month", 2)
    assert done.exit_code == 0, done.output
    assert "Does it pay? At 0.01 samples per second" in done.output
    stored = read_plan("plan.json").worth
    assert stored.read_rate == 0.01 and stored.failures_per_month == 2
    assert f"Take {stored.recommended}. {stored.reason}" in done.output
    assert figures.worth(stored.model_dump() | {"worth": stored.model_dump()}).data.shape == (2, 5)
    assert figures.worth({}).data.empty
    assert headline("plan.json").endswith(f"Take {stored.recommended}. {stored.reason}")
    assert headline("plan.json")._repr_markdown_().startswith("**f.csv: 0.0% of the losses were ")


def test_the_command_names_outages_that_fill_the_month_and_those_without_end(there):
    frame().to_csv("f.csv")
    stream = 4 / 3600
    for rate, outage in [(stream + 1e-6, "longer than the month"), (stream / 2, "without end")]:
        done = aft_plan("f.csv", "--epsilon-sd", 0.5, "--workers", 2, "--read-rate", rate)
        assert f"exact recovery  an outage {outage}, " in done.output
    assert "an outage without end, 0 bytes read again" in done.output
    assert "Take neither. The stream takes " in done.output


def test_a_plan_without_a_read_rate_says_how_to_compare(there):
    frame().to_csv("f.csv")
    assert aft_plan("f.csv", "--epsilon-sd", 0.5).exit_code == 0
    assert headline("plan.json").endswith("Whether that pays, aft plan --read-rate compares.")
