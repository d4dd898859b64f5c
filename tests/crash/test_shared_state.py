"""D3's tasks, servers and driver are killed for real: every tuple counts once, none is lost."""

import os
import time
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest

from aftlib.documents.shared_state import kills
from aftlib.documents.shared_state.kills import (
    BROKEN,
    KILL_DISORDER,
    KILL_WINDOWS,
    POINTS,
    Missed,
    run_killed,
    run_kills,
    true_sums,
)
from aftlib.documents.shared_state.parsing import TupleSource
from aftlib.documents.shared_state.server import Job
from aftlib.documents.shared_state.strategies import run_job
from aftlib.documents.shared_state.table import PostgresTable
from aftlib.documents.shared_state.tuples import TupleStream, draw_log
from aftlib.spark.faults import Fault
from tests.crash import sharing_driver
from tests.crash.processes import KILLED, start
from tests.crash.sharing_driver import STREAM, job_in

pytestmark = pytest.mark.crash


def test_a_killed_task_or_server_loses_and_doubles_nothing_and_the_broken_control_is_caught(
    spark, tmp_path
):
    killed = run_kills(spark, tmp_path, 400_000, seed=7, turns=2)
    broken = killed["killed"] == BROKEN
    assert killed.loc[~broken, ["wrong", "disturbed"]].to_numpy().tolist() == [[0, 0]] * 10
    assert killed.loc[killed["killed"] == "task", "again"].to_list() == [2_000, 2_000]
    assert (killed.loc[broken, "wrong"] > 0).all()


def test_a_second_checkpoint_that_a_busy_machine_leaves_out_is_replaced_by_the_first(
    monkeypatch, tmp_path
):
    def run(spark, job, true):
        if job.faults[0].step == 2:
            raise Missed
        return {"step": job.faults[0].step}

    monkeypatch.setattr(kills, "run_killed", run)
    killed = run_kills(None, tmp_path, 1_000, seed=7, turns=3)
    assert (killed.loc[killed["killed"] != "task", "step"] == 1).all()
    monkeypatch.setattr(kills, "run_killed", Mock(side_effect=Missed))
    with pytest.raises(Missed):
        run_kills(None, tmp_path / "never", 1_000, seed=7, turns=1)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_server_on_postgres_loses_and_doubles_nothing(spark, schema, tmp_path, point):
    stream = TupleStream(200_000, 300, 1.2, seed=2, disorder=KILL_DISORDER)
    source = TupleSource(draw_log(tmp_path / "log", stream, 4), KILL_WINDOWS, KILL_DISORDER)
    job = Job(
        source, tmp_path / "job", partial(PostgresTable, schema.url, schema.name), servers=2,
        batch=2_000, checkpoint_s=0.0, faults=(Fault("kill", "server-0", 1, point),), journal=True,
    )  # fmt: skip
    result = run_killed(spark, job, true_sums(stream))
    assert (result["wrong"], result["disturbed"]) == (0, 0)


@pytest.mark.parametrize("seed", range(10 if os.environ.get("AFT_TRIALS") == "full" else 1))
def test_a_killed_driver_is_started_again_and_goes_on(spark, tmp_path, seed):
    draw_log(tmp_path / "log", STREAM, 4)
    job = job_in(tmp_path)
    first = start(sharing_driver, tmp_path, start_new_session=True)
    wait_for_commits(first, tmp_path / "shared.sqlite", job)
    time.sleep(np.random.default_rng(seed).uniform(0, 0.3))
    first.kill()  # its servers may live on for a moment
    assert first.wait() == KILLED
    run_job(spark, job)
    with job.table() as table:
        rows = table.results().itertuples(index=False, name=None)
        assert {(window, key): value for window, key, value in rows} == true_sums(STREAM)


def wait_for_commits(process, path, job):
    while process.poll() is None:
        if path.exists():
            with job.table() as table:
                if table.prepare(4).last_epoch("server-0") > 0:
                    return
        time.sleep(0.01)
