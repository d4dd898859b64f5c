"""Jobs, what they refuse, their output and journal, and runs from end to end."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from os import getpid
from pathlib import Path
from signal import SIGKILL
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import psycopg
import pytest

from aftlib.core.windows import Windows
from aftlib.shared_state import job as jobs
from aftlib.shared_state import stores, supervisor
from aftlib.shared_state.job import Account, Job, Journal
from aftlib.shared_state.liveness import held_lock
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.stores.sql import SqliteTable
from aftlib.shared_state.supervisor import run_job
from aftlib.shared_state.tuplelog import TupleLog
from aftlib.spark.faults import Fault
from tests.refusals import refused


@pytest.fixture
def job(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"0,0,0\n"])
    return Job(log, Rules(Windows(10, 5)), tmp_path / "job")


test_impossible_jobs_are_refused = refused(
    lambda other, job: replace(job, **other),
    ({"servers": 0}, "servers must be a whole number at least 1, got 0"),
    ({"tasks": 1.5}, "tasks must be a whole number at least 1, got 1.5"),
    ({"batch": -1}, "batch must be a whole number at least 1, got -1"),
    ({"checkpoint_s": 0}, "checkpoint_s must be above 0, got 0"),
    ({"commit_s": -3}, "commit_s must be at least 0, got -3"),
    ({"patience_s": 0}, r"patience_s must be above 0 and at most 1e\+06, got 0"),
    ({"patience_s": 3e6}, r"patience_s must be above 0 and at most 1e\+06, got 3000000.0"),
    ({"aggregate": "median"}, "aggregate must be one of .*, got 'median'"),
    ({"own": "postgres"}, "own must be one of .*, got 'postgres'"),
    ({"shared": "rocksdb:x"}, "shared must be an address of sqlite, .*, got 'rocksdb:x'"),
)


def test_a_job_is_read_back_from_its_text(job):
    faults = Fault("kill", "task-0-0", 3, "read"), Fault("pause", "x", 1)
    url = "postgresql://me:word@h/d"
    other = replace(job, rules=Rules(Windows(9, 3), 4, 5), shared=url, faults=faults, servers=1)
    for one in (job, other):
        assert Job.from_json(one.to_json()) == one


def test_every_partition_has_one_task(job, tmp_path):
    log = TupleLog.write(tmp_path / "many", [b"0,0,0\n"] * 11)
    many = replace(job, log=log, servers=3, tasks=2)
    dealt = [p for s in range(3) for t in range(2) for p in many.partitions_of(s, t)]
    assert sorted(dealt) == list(range(11))
    assert many.partitions_of(1) == [1, 4, 7, 10]


def test_a_new_kind_of_store_serves_a_job(job, monkeypatch):
    """It is entered once, and a server's own store or the global one can be of it."""
    kind = stores.Kind("aftlib.shared_state.stores.sql:SqliteTable", shared=True)
    monkeypatch.setitem(stores.KINDS, "copy", kind)
    for module, name in ((jobs, "FILES"), (jobs, "SHARED"), (stores, "FILES")):
        monkeypatch.setattr(module, name, (*getattr(module, name), "copy"))
    job = replace(job, own="copy", shared="copy:")
    job.claim_folder()
    with job.open_shared() as table, job.open_own(1) as own:
        assert table.path == job.directory / "shared.copy"
        assert own.store.path == job.directory / "server-1.copy"


IMPATIENT = """#!/bin/sh
exec {python} -c '
import sys
from aftlib.shared_state import job as jobs
from aftlib.shared_state import stores, supervisor
from aftlib.shared_state import liveness as waiting

waiting.REPORT_S, supervisor.OTHERS_S = 0.3, 1.0
supervisor.Supervisor(supervisor.Job.from_json(sys.stdin.read())).run()
'
"""
"""A supervisor that reports after 0.3 s, and gives up after a second."""


def test_only_one_supervisor_runs_a_job_and_the_other_names_it(job, tmp_path, monkeypatch, caplog):
    script = tmp_path / "python"
    script.write_text(IMPATIENT.format(python=sys.executable))
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    job.claim_folder()
    held = rf"supervisor.lock' is held by process {getpid()}"
    with (
        held_lock(job.directory / "supervisor.lock", 0),
        pytest.raises(RuntimeError, match=held),
    ):
        run_job(job)
    (line,) = caplog.messages
    assert re.match(rf"waiting: '.*{held} on .*; waiting for it", line)


def test_crashes_with_progress_in_between_end_no_job(job, monkeypatch):
    job.claim_folder()
    monkeypatch.chdir(job.directory)
    boss, journal = supervisor.Supervisor(job), Journal("task-0-0")
    monkeypatch.setattr(boss, "_start", lambda name: None)
    for number in range(3 * supervisor.MOST_CRASHES):
        if number % supervisor.MOST_CRASHES == 0:
            journal.record("read", partition=0, since=number, upto=number + 1)
        boss.processes["task-0-0"] = MagicMock(exitcode=-SIGKILL)
        boss._pipes["task-0-0"] = os.open(os.devnull, 0)
        boss._restart("task-0-0", boss.processes["task-0-0"])


def test_a_removed_liveness_file_ends_no_job(job, monkeypatch):
    """Once, a bare FileNotFoundError; the process makes it again."""
    job.claim_folder()
    monkeypatch.chdir(job.directory)
    boss = supervisor.Supervisor(job)
    boss._check_alive("output", MagicMock(pid=7), 0.1)
    monkeypatch.chdir("/")
    job.directory.rename(job.directory.with_name("gone"))
    with pytest.raises(RuntimeError, match="directory must stay while the job runs, got none at"):
        boss._check_alive("output", MagicMock(pid=7), 0.1)


def test_a_database_that_others_hold_is_reported_and_waited_for_no_longer_than_wanted(
    job, schema, caplog
):
    """Once, an endless wait for PostgreSQL was not reported."""
    job = replace(job, own="memory", patience_s=2.0, shared=schema.url, schema=schema.name)
    job.claim_folder()
    with job.open_shared() as shared:
        job.claim_table(shared)
    with psycopg.connect(job.shared) as other, pytest.raises(RuntimeError, match="timeout|no Post"):
        other.execute(f"LOCK TABLE {job.schema}.state")
        run_job(job)
    assert any(re.match("waiting: .* in schema", message) for message in caplog.messages)
    assert run_job(replace(job, patience_s=600.0)).read == {0: 1}


def test_an_interrupt_ends_the_supervisor(job, monkeypatch):
    process = MagicMock(poll=lambda: None)
    process.__enter__.return_value = process
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **how: process)
    monkeypatch.setattr(supervisor, "wait", MagicMock(side_effect=KeyboardInterrupt))
    process.__exit__.return_value = False
    with pytest.raises(KeyboardInterrupt):
        run_job(job)
    process.kill.assert_called_once()


def test_a_process_that_outlives_the_supervisor_holds_nobody_up(job, tmp_path, monkeypatch):
    """One that is stopped keeps the pipe open through which the supervisor reported."""
    script, pid = tmp_path / "python", tmp_path / "pid"
    script.write_text(
        "#!/bin/sh\necho waiting: for nothing >&2\necho broken >&2\n"
        f"sleep 600 &\necho $! > {pid}\nexit 3\n"
    )
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(RuntimeError, match="ended with status 3: waiting: for nothing\nbroken\n"):
        run_job(job)
    os.kill(int(pid.read_text()), SIGKILL)  # it was still there


def test_an_account_is_of_the_whole_lines_of_a_journal(tmp_path, monkeypatch):
    """Once, a full disk that had cut a line short made the folder unusable."""
    monkeypatch.chdir(tmp_path)
    one, other = Journal("one"), Journal("other")
    one.record("joined")
    one.record("read", partition=3, since=0, upto=10)
    with Path("journal.jsonl").open("a") as file:
        file.write('\n{"time": 3.5, "who": "ta')
    one.record("read", partition=3, since=10, upto=20)
    other.record("joined")
    other.record("joined")
    other.record("read", partition=3, since=15, upto=30)
    account = Account.of(tmp_path)
    assert 0 <= account.seconds < 60
    assert replace(account, seconds=0) == Account(
        {"one": 1, "other": 2}, {3: 30}, 35, 0, {"other": 5}
    )


def test_a_job_runs_to_its_end_wherever_it_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tuples = np.random.default_rng(4).integers(0, 50, (2, 500, 3))
    log = TupleLog.write("log", [b"%d,%d,%d\n" * 500 % (*part.ravel(),) for part in tuples])
    job = Job(log, Rules(Windows(10, 5)), "job", "mean", servers=1, own="memory", batch=70)
    account = run_job(job)
    assert (account.tuples, account.read_again) == (1000, {})
    files = [pd.read_csv(path, names=["start", "key", "mean"]) for path in job.output.iterdir()]
    rows = pd.DataFrame(tuples.reshape(-1, 3), columns=["at", "key", "mean"])
    last = rows.assign(start=rows["at"] // 5 * 5)
    both = pd.concat([last, last.assign(start=last["start"] - 5)]).query("start >= 0")
    expected = both.groupby(["start", "key"])["mean"].mean()
    pd.testing.assert_series_equal(
        pd.concat(files).set_index(["start", "key"])["mean"].sort_index(), expected
    )


def test_too_many_malformed_lines_end_the_run(job, tmp_path):
    log = TupleLog.write(tmp_path / "bad", [b"0,1,1\nno\ntuple\n"])
    wrong = replace(job, log=log, rules=Rules(Windows(5, 5), most_rejected=1))
    with pytest.raises(RuntimeError, match="more than most_rejected = 1 malformed lines"):
        run_job(wrong)


def belongs_to_another(other, job):
    name = job.claim_folder()
    assert replace(job, batch=7, tasks=1).claim_folder() == name
    run_job(replace(job, **other))


test_a_folder_belongs_to_the_job_that_started_there = refused(
    belongs_to_another,
    ({"servers": 3}, "servers was 2, is 3.*choose a new directory and schema"),
    ({"rules": Rules(Windows(20, 5))}, "width was 10, is 20"),
    ({"rules": Rules(Windows(10, 5), delay=7)}, "delay was None, is 7"),
    ({"aggregate": "max"}, "aggregate was 'sum', is 'max'"),
    ({"own": "memory"}, "own was 'rocksdb', is 'memory'"),
    ({"shared": "sqlite:other"}, "shared was 'sqlite:.*shared.sqlite', is 'sqlite:.*other'"),
    ({"shared": "postgresql://me:no@there/db"}, "'user=me host=there dbname=db schema=aft'"),
)


@pytest.mark.parametrize("text", ["", '{"folder": "/', "[]"])
def test_a_folder_whose_identity_is_damaged_is_refused(job, text):
    job.claim_folder()
    (job.directory / "job.json").write_text(text)
    message = "job .*(choose a new directory|restore that file from a copy)"
    with pytest.raises(ValueError, match=message):
        job.claim_folder()


def test_a_global_store_is_of_one_folders_job_and_not_replaced_by_an_empty_one(job, tmp_path):
    """Once, a restart with an emptied store emitted the sums since then as if they were all."""
    job = replace(job, shared=f"sqlite:{tmp_path / 'shared'}")
    other = replace(job, directory=tmp_path / "other")
    for each in (job, other):
        each.claim_folder()
    job.open_claimed(SqliteTable.close)
    job.open_claimed(SqliteTable.close)
    with pytest.raises(ValueError, match="table must be new, or the one .* another log, job"):
        other.open_claimed(SqliteTable.close)
    for path in tmp_path.glob("shared*"):
        path.unlink()
    with pytest.raises(ValueError, match="table must be new, or .* has been emptied"):
        job.open_claimed(SqliteTable.close)


def test_a_job_warns_on_a_cluster_that_it_runs_on_one_machine(monkeypatch):
    job = MagicMock()
    job.claim_folder.side_effect = KeyError("here")
    monkeypatch.setenv("AFT_MASTER", "spark://head:7077")
    warned = pytest.warns(UserWarning, match="no other machine of the cluster .* PostgresTable")
    with warned, pytest.raises(KeyError, match="here"):
        run_job(job)
