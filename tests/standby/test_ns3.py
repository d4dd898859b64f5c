"""The simulation against ns-3: its stored runs, and one made anew where it is installed."""

import numpy as np
import pandas as pd
import pytest

from aftlib.experiments import d4
from aftlib.standby.failures import failure_times
from aftlib.standby.ns3 import scenario, tables
from aftlib.standby.ns3.scenario import Scenario
from aftlib.standby.parameters import Parameters, Tcp
from aftlib.standby.schemes import PROPOSED, SCHEMES, UPSTREAM

MISSING = scenario.missing()


def test_stored_runs_are_of_all_schemes_rates_and_paired_failures():
    stored = tables.recoveries()
    assert len(stored) == len(SCHEMES) * len(tables.RATES) * tables.TRIALS
    times = stored.groupby(["scheme", "rate"])["failure_ms"].apply(tuple)
    assert len(set(times)) == 1
    np.testing.assert_allclose(times.iloc[0], failure_times(tables.TRIALS, tables.SEED))


@pytest.mark.parametrize("name", ["recoveries", "switches"])
def test_tables_name_the_command_that_made_them(name):
    with (tables.PLACE / f"{name}.csv").open() as table:
        assert table.readline() == f"# {tables.COMMAND}\n"


def test_agreement_at_every_rate():
    """Within 10 % on tuples sent again and 15 % on recovery time; in fact much closer."""
    table = d4.against_ns3()
    counted, timed = table[table["resent_ns3"] > 0], table[table["recovery_ms_ns3"] > 0]
    assert counted["scheme"].nunique() == 4
    assert timed["scheme"].nunique() == 3
    assert (counted["resent_error"].abs() <= 0.10).all()
    assert (timed["recovery_ms_error"].abs() <= 0.15).all()
    assert (counted["resent_error"] == 0).all()
    assert (timed["recovery_ms_error"].abs() <= 0.02).all()


def test_agreement_on_tcps_parts():
    parts = d4.tcp_parts().dropna()
    assert parts["switch"].nunique() == 6
    assert np.allclose(parts["ms"], parts["ns3_ms"], rtol=0.02)


@pytest.mark.slow
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_run_made_anew_is_the_stored_one(tmp_path):
    made = Scenario.compiled(tmp_path)
    for scheme in (UPSTREAM, PROPOSED):
        fresh = made.run(Parameters(rate=500), scheme, failure_times(2, tables.SEED))
        stored = tables.recoveries().query("rate == 500 and scheme == @scheme.name")
        names = ["queue_at_crash", "resent", "recovery_ms", "caught_up_ms"]
        pd.testing.assert_frame_equal(
            fresh[names], stored[names].head(2).reset_index(drop=True), rtol=1e-6
        )
    one = Parameters(rate=500, tcp=Tcp(initial_window=None))
    told = []
    table = tables.make_switches(made, rates=(500,), trials=1, told=told.append)
    assert len(table) == len(told) == len(tables.SWITCHES)
    assert made.run(one, UPSTREAM, [2500.0])["recovery_ms"].iloc[0] > 0
    with pytest.raises(RuntimeError, match="a failure time must lie in"):
        made.run(one, UPSTREAM, [float("nan")])


def test_tables_are_written_with_their_command(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "PLACE", tmp_path)
    tables.write("switches", pd.DataFrame({"rate": [200], "switch": ["as it is"]}))
    assert tables.switches().to_dict("list") == {"rate": [200], "switch": ["as it is"]}


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(scenario, "INCLUDES", (tmp_path,))
    monkeypatch.setattr(scenario.shutil, "which", lambda name: "/usr/bin/g++")
    with pytest.raises(FileNotFoundError, match="no ns-3 headers: install ns-3 3.37 or newer"):
        Scenario.compiled(tmp_path)
    monkeypatch.setattr(scenario.shutil, "which", lambda name: None)
    assert "no g++ on the PATH" in scenario.missing()


def test_a_scenario_that_fails_says_why(tmp_path):
    program = tmp_path / "standby"
    program.write_text("#!/bin/sh\necho 'the send buffer is too small' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match="failed: the send buffer is too small"):
        Scenario(program).run(Parameters(), UPSTREAM, [2500.0])
