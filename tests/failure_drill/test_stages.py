"""D2, D3 and D4 as processes under the schedule: nothing lost or doubled, every strike fell."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from aftlib.failure_drill import nodes, stages
from aftlib.failure_drill.drill import tallied
from aftlib.failure_drill.drivers import METHODS, replay
from aftlib.failure_drill.stages import faults, share
from aftlib.spark.faults import Fault
from aftlib.upstream_backup.schemes import PROPOSED


@pytest.mark.crash
def test_shared_state_is_exact_though_tasks_servers_and_the_supervisor_die(small, tmp_path):
    """And though a task is stopped for a while."""
    stall = replace(small.strikes[0], form="stall", worker=3)
    struck = replace(small, strikes=(*small.strikes, stall))
    run = share(struck, tmp_path, compared=False, supervisor=True)
    tally = tallied(small, run.came, np.random.default_rng(1))
    assert (tally.lost, tally.doubled, tally.wrong, tally.estimated) == (0, 0, 0, 0)
    assert run.fallen == len(small.strikes) + 2 and run.rows_again > 0
    notes = {path.name for path in (tmp_path / "strikes").rglob("fault-*.json")}
    assert "fault-supervisor restarted-1.json" in notes
    assert [path.name for path in (tmp_path / "strikes" / "stalls").iterdir()] == [
        "fault-task-1-1 read-25.json"
    ]


def test_the_error_of_a_job_that_fails_is_raised(monkeypatch, tmp_path):
    def broken(_):
        raise RuntimeError("ended with status 1")

    monkeypatch.setattr(stages, "run_job", broken)
    job = SimpleNamespace(faults=(Fault(tmp_path, "supervisor restarted", 1),))
    with pytest.raises(RuntimeError, match="ended with status 1"):
        stages.run_again(job)


@pytest.mark.crash
def test_partial_replay_reads_what_its_plan_says(small, tmp_path):
    run = replay(small, next(iter(METHODS)), 60, tmp_path / "d2")
    tally = tallied(small, run.came, np.random.default_rng(1))
    assert (tally.lost, tally.doubled, tally.wrong) == (0, 0, 0) and tally.estimated > 0
    assert run.fallen == len({s.step for s in small.strikes})
    assert run.more["read"] == pytest.approx(run.more["planned"], abs=0.02)
    assert 0 < run.more["read"] < 1 and (run.recoveries["restart_ms"] > 0).all()
    assert [step for step, _ in run.progress] == [*range(0, 601, 50)]


@pytest.mark.crash
def test_two_nodes_lose_no_window(small):
    stood = nodes.stand_by(small, PROPOSED)
    assert (stood.lost, stood.doubled) == (0, 0) and stood.fallen == 3
    assert stood.again > 0 and len(stood.unnoticed_ms) == 3


def test_a_simulated_node_fails_once_a_kill(small):
    stood = {s.name: nodes.simulated(small, s, 1) for s in nodes.STANDBY}
    assert {s.fallen for s in stood.values()} == {3} and {s.lost for s in stood.values()} == {0}
    assert stood["proposed"].again < stood["upstream backup"].again
    assert stood["active standby"].sent_share > stood["passive standby"].sent_share


def test_kills_of_one_process_are_spread_over_its_work(small, tmp_path):
    found = faults(small, tmp_path)
    assert len(found) == len(small.strikes) and len({(f.point, f.after) for f in found}) == 3
    assert all(f.after > 0 for f in found)
    assert {f.point.split()[1] for f in found} == {"read", "merged"}
