"""The simulation against ns-3: its stored runs, and a fresh run where ns-3 is installed."""

import re

import numpy as np
import pandas as pd
import pytest

from aftlib.upstream_backup.closed_form import traffic
from aftlib.upstream_backup.experiments import recoveries
from aftlib.upstream_backup.failures import Failure, failure_times
from aftlib.upstream_backup.parameters import Link, Parameters, Phases, Tcp
from aftlib.upstream_backup.recursion import simulate
from aftlib.upstream_backup.schemes import PROPOSED, SCHEMES, UPSTREAM
from benchmarks import standby
from benchmarks.ns3 import generator, scenario
from benchmarks.ns3.scenario import Scenario
from tests.refusals import refused

MISSING = scenario.missing()
needs_ns3 = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return Scenario.compiled(tmp_path_factory.mktemp("ns3"))


def test_stored_runs_are_of_all_schemes_rates_and_paired_failures():
    stored = recoveries.read_runs("recoveries")
    assert len(stored) == len(SCHEMES) * len(generator.RATES) * generator.TRIALS
    times = stored.groupby(["scheme", "rate"])["failure_ms"].apply(tuple)
    assert len(set(times)) == 1
    np.testing.assert_allclose(times.iloc[0], failure_times(generator.TRIALS, generator.SEED))
    for name in generator.TABLES:
        with (recoveries.STORED_RUNS / f"{name}.csv").open() as table:
            assert table.readline() == f"# {generator.COMMAND}\n"


def test_agreement_at_every_rate():
    """Much closer than the 10 % on tuples sent again and 15 % on recovery time that claims need."""
    table = recoveries.against_ns3()
    counted, timed = table[table["resent_ns3"] > 0], table[table["recovery_ms_ns3"] > 0]
    assert counted["scheme"].nunique() == 4
    assert timed["scheme"].nunique() == 3
    # one tuple in ten runs, where its time is no whole number of nanoseconds
    assert (counted["resent_error"].abs() <= 1e-4).all()
    assert (timed["recovery_ms_error"].abs() <= 0.02).all()


def test_counts_and_times_have_limits_of_their_own(monkeypatch):
    """A tenth for tuples sent again, 15 % for recovery times."""
    table = recoveries.against_ns3().assign(resent_error=0.0, recovery_ms_error=0.0)
    for column, allowed, outside in (("resent", 0.09, 0.11), ("recovery_ms", 0.14, 0.16)):
        for error in (allowed, -allowed, outside, -outside):
            changed = table.assign(**{f"{column}_error": error})
            monkeypatch.setattr(standby, "against_ns3", lambda changed=changed: changed)
            assert standby.agreement()["within_limits"] is (abs(error) == allowed)


def test_agreement_on_traffic():
    """Stored bytes, ACKs at a switch included: without them the proposal was 14 % low."""
    table = recoveries.counted_traffic()
    assert len(table) == len(SCHEMES) * len(generator.SWITCH_RATES)
    assert (table["error"].abs() < 0.01).all()


def test_agreement_on_tcps_parts():
    parts = recoveries.tcp_parts().dropna()
    assert parts["switch"].nunique() == 6
    assert np.allclose(parts["ms"], parts["ns3_ms"], rtol=0.02)


@pytest.mark.slow
@needs_ns3
def test_a_fresh_run_equals_the_stored_one(build):
    for scheme in (UPSTREAM, PROPOSED):
        runs = recoveries.read_runs("recoveries")
        stored = runs[(runs["rate"] == 500) & (runs["scheme"] == scheme.name)].head(2)
        phases = [system.phases for system in recoveries.systems(stored)]
        fresh = build.run(Parameters(rate=500), scheme, stored["failure_ms"].tolist(), phases)
        names = ["queue_at_crash", "resent", "recovery_ms", "caught_up_ms"]
        pd.testing.assert_frame_equal(fresh[names], stored[names].reset_index(drop=True), rtol=1e-6)
    one = Parameters(rate=500, tcp=Tcp(initial_window=None))
    lines = []
    table = generator.run_cases("switches", build, rates=(500,), trials=1, report=lines.append)
    assert len(table) == len(lines) == len(recoveries.SWITCHES)
    assert [*table] == [*recoveries.read_runs("switches")]
    assert build.run(one, UPSTREAM, [2500.0])["recovery_ms"].iloc[0] > 0
    with pytest.raises(RuntimeError, match="a failure time must lie in"):
        build.run(one, UPSTREAM, [float("nan")])


PHASES = Phases(ack=0.3, heartbeat=0.7, switching=0.1, checkpoint=0.5)
BOTH = (UPSTREAM, PROPOSED)
OTHERS = [
    *((BOTH, {"link": link}) for link in (Link(delay_ms=8.0), Link(bandwidth_mbps=4.0))),
    *((BOTH, {name: 100}) for name in ("processing_us", "tuple_bytes")),
    # the network has settled when the first heartbeat goes out, so four delays are enough
    *(([*SCHEMES.values()], {"heartbeat_ms": ms, "phases": PHASES}) for ms in (20.0, 15.0, 100.0)),
]


@pytest.mark.slow
@needs_ns3
@pytest.mark.parametrize(("schemes", "changed"), OTHERS)
def test_other_parameters_than_the_documents(build, schemes, changed):
    system = Parameters(rate=500, **changed)
    for scheme in schemes:
        same_as_simulated(build.run(system, scheme, [2789.65]), system, scheme, "primary")


@pytest.mark.slow
@needs_ns3
def test_a_failed_secondary(build):
    usual = Parameters(rate=500)
    run = build.run(usual, PROPOSED, [2789.65], failed="secondary")
    same_as_simulated(run, usual, PROPOSED, "secondary")


@pytest.mark.slow
@needs_ns3
def test_a_failure_detected_before_it_happens_stops_the_run(build, monkeypatch):
    monkeypatch.setattr(Parameters, "__post_init__", lambda system: None)
    with pytest.raises(RuntimeError, match="taken for dead before it died"):
        build.run(Parameters(rate=500, heartbeat_ms=9), UPSTREAM, [2789.65])


@pytest.mark.slow
@needs_ns3
@pytest.mark.parametrize("rate", [200, 5000])
def test_traffic_is_what_ns3_counts(build, rate):
    """Each part of it, one ACK pair a switch included, within 2 %."""
    system = Parameters(rate=rate, phases=PHASES)
    for scheme in SCHEMES.values():
        counted, derived = build.run(system, scheme, [8000.0]).iloc[0], traffic(system, scheme)
        for part in ("stream", "copies", "acks", "checkpoints", "heartbeats"):
            assert getattr(derived, part) == pytest.approx(counted[f"{part}_bps"], rel=0.02), part


def same_as_simulated(run, system, scheme, node):
    ours = simulate(system, scheme, [Failure(2789.65, node)]).recoveries[0]
    row = run.iloc[0]
    assert (row["queue_at_crash"], row["resent"]) == (ours.queue_at_crash, len(ours.resent))
    assert row["recovery_ms"] == pytest.approx(ours.recovery_ms, rel=0.02, abs=0.2)
    assert row["caught_up_ms"] == pytest.approx(ours.caught_up_ms, rel=0.02, abs=0.2)


def test_tables_are_written_with_their_command(tmp_path, monkeypatch):
    monkeypatch.setattr(recoveries, "STORED_RUNS", tmp_path)
    monkeypatch.setattr(generator, "STORED_RUNS", tmp_path)
    generator.write("switches", pd.DataFrame({"rate": [200], "switch": ["as it is"]}))
    table = recoveries.read_runs("switches").to_dict("list")
    assert table == {"rate": [200], "switch": ["as it is"]}


def test_a_missing_compiler_or_header_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(scenario, "INCLUDES", (tmp_path,))
    monkeypatch.setattr(scenario.shutil, "which", lambda name: "/usr/bin/g++")
    with pytest.raises(FileNotFoundError, match="no ns-3 headers: install ns-3 3.37 or newer"):
        Scenario.compiled(tmp_path)
    monkeypatch.setattr(scenario.shutil, "which", lambda name: None)
    assert "no g++ on the PATH" in scenario.missing()


def test_every_parameter_reaches_the_scenario(tmp_path):
    """As an option that its source reads."""
    program = tmp_path / "standby"
    program.write_text('#!/bin/sh\necho failure_ms\nfor option; do echo "$option"; done\n')
    program.chmod(0o755)
    changed = Parameters(
        tuple_bytes=60, processing_us=20, write_ms=2, message_bytes=9, state_bytes=40,
        link=Link(bandwidth_mbps=8, delay_ms=7),
    )  # fmt: skip
    run = Scenario(program).run
    given = set(run(changed, PROPOSED, [2500.0], failed="secondary")["failure_ms"])
    options = "bandwidth=8 delay=7 processing=20 write=2 tuple=60 message=9 state=40"
    assert {f"--{option}" for option in [*options.split(), "failed=secondary"]} <= given
    read = set(re.findall(r'AddValue\("(\w+)"', scenario.SOURCE.read_text()))
    assert {option.lstrip("-").split("=")[0] for option in given} <= read


test_what_the_scenario_does_not_have_is_refused = refused(
    lambda changed, scheme, failed, tmp_path: Scenario(tmp_path / "standby").run(
        Parameters(**changed), scheme, [2500.0], failed=failed
    ),
    (
        *({"link": Link(header_bytes=40)}, PROPOSED, "primary"),
        "header_bytes must be 54 with ns-3, got 40: its TCP mak",
    ),
    ({"share": 0.6}, PROPOSED, "primary", "share must be 0.5 with ns-3, got 0.6: its turns are"),
    ({"secondary_us": 70.0}, PROPOSED, "primary", "must be None or 10.0 with ns-3, got 70.0: its"),
    ({}, UPSTREAM, "secondary", "failed must be primary with ns-3, got 'secondary': no other"),
)


def test_a_scenario_that_fails_says_why(tmp_path):
    program = tmp_path / "standby"
    program.write_text("#!/bin/sh\necho 'the send buffer is too small' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match="failed: the send buffer is too small"):
        Scenario(program).run(Parameters(), UPSTREAM, [2500.0])
