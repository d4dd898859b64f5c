"""D2, D3 and D4 as processes under the schedule: nothing lost or doubled, every fault injected."""

import signal
import sys
from dataclasses import replace

import numpy as np
import pytest

from aftlib.checkpoint_planning import driver
from aftlib.failure_drill import schemes_process as schemes
from aftlib.failure_drill.metrics import score_emitted, score_run
from aftlib.shared_state.job import Job
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.tuplelog import TupleLog
from aftlib.spark.faults import Fault, Injector
from aftlib.upstream_backup.schemes import PROPOSED


def score(drill, run):
    return score_emitted(run.drill or drill, run.emitted, np.random.default_rng(1))


def python(code):
    return [sys.executable, "-S", "-c", code]


@pytest.mark.parametrize(
    ("code", "expected", "message"),
    [
        ("import os; os.write(2, b'sorry'); os._exit(3)", (0,), "status 0, got 3; .* sorry"),
        ("pass", (-signal.SIGKILL,), "status -9, got 0"),
        ("import time; time.sleep(60)", (0,), "status 0, got -9 when it was killed after 0.3 s"),
    ],
)
def test_a_process_that_ends_otherwise_is_an_error(code, expected, message, monkeypatch):
    monkeypatch.setattr(driver, "PATIENCE_S", 0.3)
    with pytest.raises(RuntimeError, match=f"(?s)driver must end with {message}"):
        driver.run_process(python(code), expected)


def test_a_process_is_restarted_after_its_own_faults_only(tmp_path):
    marker = tmp_path / "x"
    killed = f"import os; p = {str(marker)!r}; "
    killed += "known = os.path.exists(p); open(p, 'w').close(); known or os.kill(os.getpid(), 9)"
    with pytest.raises(RuntimeError, match="SIGKILL from elsewhere"):
        schemes.run_to_end(python(killed), Injector(tmp_path))
    schemes.run_to_end(python("pass"), Injector(tmp_path))


@pytest.mark.crash
def test_shared_state_is_exact_though_tasks_servers_and_the_supervisor_fail(small, tmp_path):
    """A task is also paused for a while."""
    pause = replace(small.schedule[0], kind="pause", target="worker-3", lasts_s=0.1)
    drill = replace(small, schedule=(*small.schedule, pause))
    run = schemes.shared_state(drill, tmp_path, compared=False, supervisor=True)
    tally = score(small, run)
    assert (tally.lost, tally.doubled, tally.wrong, tally.estimated) == (0, 0, 0, 0)
    assert run.faults == len(small.schedule) + 2 and run.read_again > 0
    markers = {path.name for path in (tmp_path / "job" / "faults").iterdir()}
    assert {"fault-kill-supervisor-restarted-1.json", "fault-pause-task-1-1-read-25.json"} < markers


def test_the_error_of_a_job_that_fails_is_raised(monkeypatch, tmp_path):
    def broken(_):
        raise RuntimeError("ended with status 1")

    monkeypatch.setattr(schemes, "run_job", broken)
    log, rules = TupleLog.write(tmp_path / "log", [b"0,0,0\n"]), Rules(None, 1)
    faults = (Fault("kill", "supervisor", 1, "restarted"),)
    with pytest.raises(RuntimeError, match="ended with status 1"):
        schemes.run_until_done(Job(log, rules, tmp_path / "job", faults=faults))


@pytest.mark.crash
def test_partial_replay_reads_what_its_plan_says(small, tmp_path):
    run = schemes.partial_replay(small, tmp_path / "d2", "D2 proposed", 60)
    tally = score(small, run)
    assert (tally.lost, tally.doubled, tally.wrong) == (0, 0, 0) and tally.estimated > 0
    assert run.faults == len({fault.step for fault in small.schedule})
    assert run.measures["read"] == pytest.approx(run.measures["planned"], abs=0.02)
    assert 0 < run.measures["read"] < 1 and (run.recoveries > 0).all(axis=None)
    assert len(run.recoveries) == len({fault.step for fault in small.kills})
    assert [step for step, _ in run.progress] == [*range(0, 601, 50)]


@pytest.mark.crash
def test_two_nodes_lose_no_window(small):
    row = score_run(small, schemes.standby(small, PROPOSED), None)
    assert (row["lost"], row["doubled"], row["faults"], row["due"]) == (0, 0, 3, 720)
    assert row["recovery_ms"] >= row["restart_ms"] > 0


def test_a_simulated_node_fails_once_per_kill(small):
    rows = {
        scheme.name: score_run(small, schemes.simulated_standby(small, scheme, 1), None)
        for scheme in schemes.STANDBY
    }
    assert {(row["faults"], row["lost"], row["basis"]) for row in rows.values()} == {
        (3, 0, "simulated")
    }
    assert rows["proposed"]["again"] < rows["upstream backup"]["again"]
    assert rows["active standby"]["overhead"] > rows["passive standby"]["overhead"]


def test_the_faults_of_one_process_are_spread_over_its_work(small):
    faults = schemes.faults_of_job(small)
    assert len(faults) == len(small.schedule)
    assert len({(f.target, f.step) for f in faults}) == 3
    assert all(0 < f.step < schemes.READS for f in faults)
    assert {f.point for f in faults} == {"read", "merged"}


def test_long_windows_have_d2s_own_checkpoints_or_none(tmp_path):
    times = schemes.long_windows(tmp_path, seed=1, turns=2)
    counts = times.groupby("plan")["checkpoints"].agg(["first", "size"])
    assert set(counts.index) == {schemes.NO_CHECKPOINTS, *schemes.METHODS}
    assert set(counts["size"]) == {2} and (times["seconds"] > 0).all()
    assert counts["first"][[schemes.NO_CHECKPOINTS, "D2 proposed"]].tolist() == [0, 3]
