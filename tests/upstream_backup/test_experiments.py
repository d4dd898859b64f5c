"""D4's experiments: the worked example, the sweep, the tables, and their figures."""

import numpy as np
import pytest

from aftlib.upstream_backup import figures
from aftlib.upstream_backup.experiments import beyond, recoveries
from aftlib.upstream_backup.figures import messages
from aftlib.upstream_backup.parameters import MS, Parameters
from aftlib.upstream_backup.processes import Delivery, Request
from aftlib.upstream_backup.schemes import SCHEMES
from tests.refusals import refused
from tests.upstream_backup.trials import trials_of

CASE = recoveries.Sweep((200, 1000, 20_000), 12, seed=1)
SMALL = recoveries.Sweep((1000,), 6)


@pytest.fixture(scope="module")
def trials(spark):
    return recoveries.recoveries(spark, CASE)


@pytest.fixture(scope="module")
def means(trials):
    return recoveries.summary(trials)


@pytest.fixture(scope="module")
def ns3():
    return recoveries.against_ns3()


def test_figs_3_and_4():
    table = recoveries.example_table().set_index("scheme")
    assert table.loc["upstream backup", "sent again"] == "9, 10, 11, 12, 13"
    assert table.loc["proposed", "sent again"] == "12, 13"
    assert table.loc["proposed", "recovery_ms"] < table.loc["upstream backup", "recovery_ms"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_can_be_stepped_through(scheme):
    run = recoveries.example(scheme)
    assert all(m.arrived > m.sent for m in messages(run))
    figure = figures.sequence(run, scheme, begin_ms=120)
    steps = figure.layout.sliders[0].steps
    assert len(steps) > 15
    first, last = ([len(x) for x in step.args[0]["x"]] for step in (steps[0], steps[-1]))
    assert sum(last) > sum(first)


def test_the_diagram_shows_queues_ends_with_the_recovery_and_has_no_label_on_another():
    run = recoveries.example("proposed")
    figure = figures.sequence(run, "", begin_ms=120)
    steps = figure.layout.sliders[0].steps
    shown = {step.label: step.args[0]["text"][-1][0] for step in steps}
    assert shown["200 ms"] == "kept for the primary: 12, 13   kept for the secondary: 9, 10, 11"
    assert shown["210 ms"].startswith("kept for the primary: –")

    end, _ = figure.layout.yaxis.range
    delivered = run.recoveries[0].delivered.max() / MS
    assert delivered < end <= delivered + figures.AFTER_MS
    numbers = steps[-1].args[0]
    places = list(zip(numbers["x"][-2], numbers["y"][-2], strict=True))
    assert len(set(places)) == len(places)


def test_a_sweep_is_a_loop(trials):
    assert len(trials) == len(SCHEMES) * len(CASE.rates) * CASE.trials
    for row in trials.sample(15, random_state=1).to_dict("records"):
        system, time = CASE.drawn(row["rate"])[row["trial"]]
        assert time == row["failure_ms"]
        again = recoveries.recovery_row(system, row["scheme"], time)
        assert {name: row[name] for name in again} == again


def test_phases_are_drawn_for_each_trial():
    """In step, 200 failures sent only four different numbers of tuples again."""
    case = recoveries.Sweep((1000,), 200)
    rows = [recoveries.recovery_row(system, "upstream backup", t) for system, t in case.drawn(1000)]
    assert len({row["resent"] for row in rows}) > 60
    assert case.drawn(200)[3][0].phases == case.drawn(1000)[3][0].phases


def test_a_summary_keeps_the_order_of_the_schemes():
    means = recoveries.summary(trials_of(recoveries.Sweep((1000, 200), 2)))
    assert means["scheme"].unique().tolist() == [*SCHEMES]
    assert means["rate"].unique().tolist() == [1000, 200]


def test_savings_are_differences_of_means(trials, means):
    assert (means["resent_low"] <= means["resent"]).all()
    less = recoveries.savings(trials)["ms of recovery"]
    by = means.pivot_table(index="rate", columns="scheme", values="recovery_ms")
    np.testing.assert_allclose(less["mean"], by["upstream backup"] - by["proposed"])
    np.testing.assert_allclose(less["ratio"], by["proposed"] / by["upstream backup"])
    assert (less["low"] > 0).all()


def test_simulation_agrees_with_the_closed_form_and_ns3(means, ns3):
    ratios = recoveries.against_closed_form(CASE, means)["sent again"]
    assert ((ratios > 0.8) & (ratios < 1.2)).all(axis=None)
    errors = recoveries.agreement(ns3)
    assert errors.abs().max().max() < 0.02
    assert len(errors) == 8


def test_gap_is_taken_apart():
    parts = recoveries.tcp_parts()
    table = recoveries.explained(parts)
    whole = table["handshake"] + table["initial_window"] + table["tuples"]
    np.testing.assert_allclose(whole, table["gap"])
    assert table["handshake"].between(9, 11).all()
    assert table["nagle_adds"].loc[1000:].abs().max() < 1
    assert table["window_1_adds"].between(17, 33).all()  # the fewer tuples wait, the less
    assert recoveries.tcp_table(parts).shape == (10, 8)


def test_all_schemes_are_compared(means):
    table = recoveries.comparison(means, recoveries.overheads(CASE), 1000)
    assert list(table.index) == list(SCHEMES)
    assert table.loc["active standby", "restored_ms"] == 0
    assert table.loc["passive standby", "restored_ms"] < table.loc["upstream backup", "restored_ms"]


test_a_case_needs_rates_and_two_trials = refused(
    recoveries.Sweep,
    ((), 5, "rates must hold at least one value"),
    ((200,), 1, "trials must be a whole number at least 2, got 1"),
)


def test_shares_of_unequal_nodes(spark):
    table = beyond.unequal_nodes(spark, SMALL, 12_000, 70.0, [0.3, 0.5, 0.875])
    by = table.pivot_table(index="share", columns="failed", values="recovery_ms")
    assert by["primary"].is_monotonic_increasing
    assert by["secondary"].is_monotonic_decreasing
    loads = table[np.isclose(table["share"], 70 / (70 + 10))]  # in proportion to their speeds
    np.testing.assert_allclose(loads["primary_load"], loads["secondary_load"])


def test_each_node_is_loaded_with_its_share():
    """The secondary works 1.75 % of the time: 250 tuples/s of 70 µs each."""
    system = Parameters(rate=1000, share=0.75, secondary_us=70)
    row = beyond.one_share((0.75, "primary", [(system, 2000.5)]))
    assert row["primary_load"] == pytest.approx(0.75 * 1000 * 10e-6)
    assert row["secondary_load"] == pytest.approx(0.25 * 1000 * 70e-6)


def test_order_matters_to_the_proposal_only():
    table = beyond.orders(SMALL, 1000).set_index(["scheme", "operator"]).sort_index()
    assert (table.drop("proposed") == 0).all(axis=None)
    assert (table.loc["proposed", ["wrong", "late", "waiting"]] > 0).all(axis=None)


def test_failures_in_a_row():
    table = beyond.in_a_row(SMALL, 1000, ["primary", "secondary", "primary", "primary"])
    assert (table["lost"] == 0).all()
    idle = table[(table["scheme"] == "upstream backup")].iloc[3]
    assert idle["resent"] == 0


def test_real_kills_stand_beside_the_simulation_of_the_same_rate(monkeypatch):
    """Of the recovery that a kill caused, not of one that a slow answer did."""
    slow = Request("secondary", None, (), 0.0)
    noticed = Request("primary", 300.0, (3, 4), 5.0)

    def delivered(scheme, tuples, kills):
        return Delivery((*range(tuples), 3, 4), (*range(tuples),), (slow, noticed), 1, 8000.0)

    monkeypatch.setattr(beyond, "deliver", delivered)
    table = beyond.real_kills(2, seed=3)
    assert table["scheme"].tolist() == 2 * ["upstream backup"] + 2 * ["proposed"]
    assert (table[["lost", "twice", "requests", "resent"]] == [0, 2, 2, 2]).all(axis=None)
    assert (table[["unnoticed_ms", "recovery_ms"]] == [300, 5]).all(axis=None)
    assert table["unnoticed_ms_simulated"].between(250, 500).all()
    one, half = table.groupby("scheme", sort=False)["resent_simulated"].mean()
    assert half == pytest.approx(one / 2, rel=0.1)

    traces = figures.real_kills(table, "title").data
    resent, times = ({t.name: t for t in traces if t.yaxis == axis} for axis in ("y", "y2"))
    kinds = ("processes", "simulated means")
    assert [*resent] == [f"{s}: {k}" for s in ("upstream backup", "proposed") for k in kinds]
    assert resent["proposed: processes"].y.tolist() == [2, 2]
    assert times["proposed: processes"].x.tolist() == [300, 300]
    assert (
        times["upstream backup: simulated means"].y.tolist()
        == (table["recovery_ms_simulated"].tolist()[:2])
    )
    assert resent["proposed: simulated means"].marker.symbol.endswith("-open")


def test_ns3_is_shown_beside_the_same_system_only(means, ns3):
    assert len(recoveries.same_system(ns3, CASE)) == len(ns3)
    figure = figures.by_rate(means, "recovery_ms", "Times", "ms", ns3)
    lines = {trace.name: trace for trace in figure.data}
    assert len(lines) == 2 * len(SCHEMES)
    assert len(lines["proposed, ns-3"].x) == 8
    assert (lines["proposed, ns-3"].error_y.array > 0).all()
    assert figure.layout.xaxis.ticktext == ("200", "1k", "20k")

    slow = recoveries.Sweep(CASE.rates, 2, parameters=Parameters(ack_ms=100.0))
    alone = figures.by_rate(means, "resent", "Again", "", recoveries.same_system(ns3, slow))
    assert [trace.name for trace in alone.data] == [*SCHEMES]
    suffix = "; simulation only: ns-3 ran the default parameters"
    assert suffix in alone.layout.title.text
    assert suffix not in figure.layout.title.text
