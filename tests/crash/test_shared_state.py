"""Tasks, servers, output tasks and supervisors killed for real: every tuple once, none lost."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from aftlib.shared_state.job import Account
from aftlib.shared_state.stores import FILES
from aftlib.shared_state.stores.tables import END
from aftlib.shared_state.tuplelog import TupleLog
from aftlib.spark.faults import Fault
from tests.crash.sharing_driver import DELAY, WINDOWS, Settings, job_in, markers_in
from tests.postgres import own_server

pytestmark = pytest.mark.crash
FULL = os.environ.get("AFT_TRIALS") == "full"
SEEDS = 5 if FULL else 1
STORES = [(own, shared) for own in FILES for shared in ("sqlite", "pg")]
SAMPLE = STORES if FULL else [("rocksdb", "pg"), ("sqlite", "sqlite")]
SERVER = ("met", "merged", "complete", "stored", "flushed", "committed", "dropped")
"""Points of a server; "stored" is within the barrier of a store that outlives it."""
TASK, OUTPUT = ("read", "merged"), ("written", "forgotten")
PARTITIONS, TUPLES, KEYS = 6, 8_000, 200


def partitions():
    """Tuples out of order, some of them late; values that no other set of tuples sums up to."""
    rng, logs = np.random.default_rng(7), []
    for _ in range(PARTITIONS):
        times = np.arange(TUPLES) // 4 - rng.integers(0, 60, TUPLES)
        keys = rng.integers(0, KEYS, TUPLES)
        logs.append(np.column_stack([times.clip(0), keys, rng.integers(1, 2**40, TUPLES)]))
    return logs


def write(directory):
    """The partitions as a log of text."""
    texts = [b"".join(b"%d,%d,%d\n" % tuple(row) for row in log.tolist()) for log in partitions()]
    TupleLog.write(directory / "log", texts)


def replay(logs):
    """The slow twin: sums by (window, key) and late tuples, one tuple after the other."""
    sums, late = Counter(), 0
    for log in logs:
        mark = -(2**62)
        for at, key, value in log.tolist():
            if at // WINDOWS.pane * WINDOWS.pane + WINDOWS.pane <= mark:
                late += 1
            else:
                last = at // WINDOWS.slide * WINDOWS.slide
                for start in range(last, at - WINDOWS.width, -WINDOWS.slide):
                    if start >= 0:
                        sums[start, key] += value
            mark = max(mark, at - DELAY)
    return dict(sums), late


@pytest.fixture(scope="module")
def expected():
    return replay(partitions())


@pytest.fixture
def trial(tmp_path, request):
    """A folder with the log, and settings with the global store."""

    def prepare(shared, **settings):
        write(tmp_path)
        place = {"shared": "sqlite:"}
        if shared == "pg":
            schema = request.getfixturevalue("schema")
            place = {"shared": schema.url, "schema": schema.name}
        return tmp_path, Settings(**place, **settings)

    return prepare


def start(directory, settings):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.sharing_driver", str(directory),
         json.dumps(asdict(settings))], cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run_to_exit(directory, settings):
    """Run to an end; return exit status and error output. A run without an end is killed."""
    process = start(directory, settings)
    try:
        error = process.communicate(timeout=500)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, error


def ends_with_an_error(directory, settings):
    code, error = run_to_exit(directory, settings)
    assert code == 1, error
    return error


def run_to_end(directory, settings):
    """Run to the end; a supervisor that was killed is started again."""
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        code, error = run_to_exit(directory, settings)
    assert code == 0, error
    return directory / "job"


def wait_for_joins(directory, process, number):
    journal = directory / "job" / "journal.jsonl"
    while process.poll() is None:
        if journal.exists() and journal.read_text().count("joined") >= number:
            return
        time.sleep(0.01)


def count_crashes(directory):
    markers = markers_in(directory).iterdir()
    return sum(not path.name.startswith(".") for path in markers)  # drafts do not count


def check(directory, settings, expected):
    """The output is the replay of the log, every window and key once; late tuples are counted."""
    sums, late = expected
    results = Counter()
    for path in sorted((directory / "job" / "output").iterdir()):
        for line in path.read_text().splitlines():
            window, key, value = map(int, line.split(","))
            assert (window, key) not in results
            results[window, key] = value
    assert results == sums
    with job_in(directory, replace(settings, broken="")).open_shared() as table:
        progress = table.progress()
        assert table.windows().tolist() == []
    assert {p: (now.tuples, now.watermark) for p, now in progress.items()} == {
        p: (TUPLES, END) for p in range(PARTITIONS)
    }
    assert sum(now.late for now in progress.values()) == late > 0


def chosen_faults(chance, own):
    """Three points of servers, two of tasks, one of the output task, and one of the supervisor."""
    most = {"met": 4, "merged": 30}
    servers = [
        (f"server-{chance.randrange(2)}", p, chance.randint(1, most.get(p, 2)))
        for p in SERVER
        if p != "stored" or own != "memory"
    ]
    tasks = [
        (f"task-{chance.randrange(2)}-{chance.randrange(2)}", p, chance.randint(1, 30))
        for p in TASK
    ]
    outputs = [("output", chance.choice(OUTPUT), chance.randint(1, 3))]
    chosen = [*chance.sample(servers, 3), *tasks, *outputs, ("supervisor", "restarted", 2)]
    return [Fault("kill", target, step, point) for target, point, step in chosen]


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(("own", "shared"), SAMPLE)
def test_processes_killed(trial, expected, own, shared, seed, once):
    """Seven chosen points, and one supervisor from outside."""
    chance = random.Random(f"{own} {shared} {seed}")
    directory, settings = trial(shared, own=own, faults=chosen_faults(chance, own))
    process = start(directory, settings)
    wait_for_joins(directory, process, 1)
    time.sleep(chance.uniform(0.0, 0.5))
    process.kill()
    process.communicate(timeout=500)
    run_to_end(directory, settings)
    check(directory, settings, expected)
    assert count_crashes(directory) >= 5
    once()


def test_a_server_that_crashes_after_the_last_tuple_has_it_read_again(trial, expected):
    """Its tasks have come to the end, but no barrier has; they must still be there."""
    faults = [Fault("kill", f"server-{i}", 1, "complete") for i in (0, 1)]
    directory, settings = trial("sqlite", own="memory", checkpoint_s=60.0, faults=faults)
    account = Account.of(run_to_end(directory, settings))
    check(directory, settings, expected)
    assert account.tuples == 2 * PARTITIONS * TUPLES


def test_postgres_stopped_and_started_in_mid_run(tmp_path, expected):
    """Tasks and local checkpoints go on meanwhile; complete tables are committed afterwards."""
    write(tmp_path)
    with own_server() as server:
        settings = Settings(shared=server.url)
        process = start(tmp_path, settings)
        wait_for_joins(tmp_path, process, 4)
        server.stop()
        everything, deadline = dict.fromkeys(range(PARTITIONS), TUPLES), time.monotonic() + 500
        while Account.of(tmp_path / "job").read != everything and time.monotonic() < deadline:
            time.sleep(0.1)
        read = Account.of(tmp_path / "job").read
        assert process.poll() is None
        assert not [*(tmp_path / "job" / "output").glob("*")]  # perhaps it is not there yet
        server.start()
        _, error = process.communicate(timeout=500)
        assert process.returncode == 0, error
        check(tmp_path, settings, expected)
    assert read == everything


def test_a_task_that_always_crashes_ends_the_run(trial):
    """Once, it was started 860 times in 20 s, without end."""
    error = ends_with_an_error(*trial("sqlite", broken="crashes always", most_crashes=5))
    assert (
        "task-0-1 crashed 6 times, the last time by signal 9, and the job made no progress" in error
    )


def test_a_stopped_server_is_named(trial, expected):
    """Once, the job waited without a report."""
    directory, settings = trial(
        "sqlite", faults=[Fault("pause", "server-0", 20, "merged")], patience_s=4.0
    )
    error = ends_with_an_error(directory, settings)
    assert re.search(r"server-0 \(process \d+\) has given no sign of life for \d+ s", error)
    assert re.search(r"waiting: server-0 \(process \d+\) .* \d s: .*the job ends after 4 s", error)
    lines = (directory / "job" / "journal.jsonl").read_text()
    assert '"waits for", "name": "server-0"' in lines
    run_to_end(directory, settings)
    check(directory, settings, expected)


def test_a_stopped_output_task_of_a_killed_supervisor_is_waited_for(trial, expected):
    """Once, a second one started beside it, and the first one later overwrote finished windows."""
    directory, settings = trial(
        "sqlite", faults=[Fault("pause", "output", 2, "written")], others_s=3.0
    )
    process, markers = start(directory, settings), markers_in(directory)
    while process.poll() is None and not list(markers.glob("*.json")):
        time.sleep(0.01)
    process.kill()
    process.wait(timeout=500)  # the stopped one still holds its pipe
    try:
        error = ends_with_an_error(directory, settings)
    finally:
        (marker,) = markers.glob("*.json")
        os.kill(json.loads(marker.read_text())["pid"], signal.SIGCONT)
    assert f"supervisor.lock' is held by process {process.pid} on " in error
    run_to_end(directory, settings)
    check(directory, settings, expected)


def test_a_full_disk_is_explained_and_the_folder_stays_usable(trial, expected):
    """Once, the reason was written to the same disk."""
    directory, settings = trial("sqlite", broken="full disk")
    assert "File too large" in ends_with_an_error(directory, settings)
    run_to_end(directory, replace(settings, broken=""))
    check(directory, settings, expected)


BROKEN = [
    ("sqlite", "rows first", Fault("kill", "server-0", 40, "between")),
    ("rocksdb", "offsets first", Fault("kill", "server-0", 40, "between")),
]


@pytest.mark.parametrize(("own", "broken", "fault"), BROKEN)
def test_a_broken_store_is_caught(trial, expected, own, broken, fault):
    """The broken controls: the same check over them must not pass."""
    directory, settings = trial("sqlite", own=own, broken=broken, faults=[fault])
    run_to_end(directory, settings)
    assert count_crashes(directory) == 1
    with pytest.raises(AssertionError):
        check(directory, settings, expected)


def test_an_epoch_commit_that_is_not_recorded_is_noticed(trial):
    """The broken control of epoch commits: the offsets show that this one was merged before."""
    broken, fault = "tokenless", Fault("kill", "server-0", 2, "committed")
    directory, settings = trial("sqlite", own="sqlite", broken=broken, faults=[fault])
    with pytest.raises(AssertionError, match="instead of .* was replaced or is an older copy"):
        run_to_end(directory, settings)
    assert count_crashes(directory) == 1
