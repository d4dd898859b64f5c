"""D3's jobs under a nemesis have the right results, at once or after a repair."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import replace

import pytest

from aftlib.spark.faults import Fault
from tests.crash import nemesis
from tests.crash.nemesis import Nemesis, ProcessGroup, SharedJob, TimedFault, compare_results
from tests.crash.sharing_driver import job_in
from tests.crash.test_shared_state import TUPLES

SAMPLE = [0, 1, 2, 5]
"""Among them are all embedded stores, and kills, pauses, a rival, and stores rolled back."""
LONG = [pytest.param(number, marks=pytest.mark.long) for number in range(6, 12)]
NUMBERS = range(200) if os.environ.get("AFT_TRIALS") == "full" else [*SAMPLE, *LONG]
OLDER = TimedFault("older_copy", whom=0.99)
"""Of the last store by name, which is the shared one."""
LIFETIMES = (1, 50, 5), (4, 90, 3)
"""Of each process group: the window at which the output task crashes, the reads at which each task
does, and the restarts at which the supervisor does. Each task that has crashed is held.

Tasks of two partitions have then read 25 and 70 of the 80 batches of each, and windows 0, then 200
to 1200 can be emitted; the others read their last batch in the second group.
"""


@pytest.mark.crash
@pytest.mark.parametrize("number", NUMBERS)
def test_a_job_is_right_or_reports_why_not(number, tmp_path, once):
    disturbed = Nemesis(number, tmp_path)
    try:
        assert disturbed.run().wrong == ""
    finally:
        disturbed.close()
    once()


def run_with_rollback(directory, broken):
    """D3 with its global store rolled back by one process group, with or without comparisons.

    Each group ends when all its faults have been injected, in whatever order.
    """
    disturbed = Nemesis(0, directory, broken)
    job, markers = disturbed.job, disturbed.job.place / "faults"
    job.on_postgres, job.base = False, replace(job.base, own="rocksdb", shared="sqlite:")
    try:
        base = job.base
        for number, (windows, reads, restarts) in enumerate(LIFETIMES, 1):
            faults = [
                Fault("kill", "output", windows, "written"),
                Fault("kill", "supervisor", restarts, "restarted"),
            ]
            job.base = replace(base, faults=faults, hold=reads)
            assert ProcessGroup(job).end(500)[0] == -signal.SIGKILL
            assert len(list(markers.glob("fault-*"))) == 2 * number
            disturbed.copy_stores()
        with job_in(directory, job.settings).open_shared() as unread:
            assert min(at.tuples for at in unread.progress().values()) < TUPLES
        disturbed.take_back(OLDER)
        assert disturbed.outcome.faults == {"older_copy": 1}
        job.base = base
        return disturbed.run([([], None)])
    finally:
        disturbed.close()


@pytest.mark.crash
def test_a_store_that_forgets_is_caught(tmp_path):
    """The broken control: servers set the offsets of the global store, and compare nothing."""
    assert run_with_rollback(tmp_path / "broken", "trusting").wrong.startswith("lost")
    sound = run_with_rollback(tmp_path / "sound", "")
    assert (sound.wrong, sound.faults) == ("", {"older_copy": 1})
    assert sound.stops[0].startswith("older_copy")


class Toy(SharedJob):
    """A job without stores, which is right when it ends well."""

    stores, windows = {}, []  # noqa: RUF012

    def wrong(self, whole):
        return ""


def works(directory, settings):
    pass


def hangs(directory, settings):
    time.sleep(600)


def leaves_a_process(directory, settings):
    subprocess.Popen(["sleep", "60"])


def gives_no_cause(directory, settings):
    raise ValueError("sorry")


def names_another_cause(directory, settings):
    raise OSError("No space left")


def stalls(directory, settings):
    raise TimeoutError("server-0 has given no sign of life for 8 s")


def stalls_once(directory, settings):
    if not (directory / "stalled").exists():
        (directory / "stalled").touch()
        stalls(directory, settings)


@pytest.mark.parametrize(
    ("work", "stops", "wrong"),
    [
        (works, 0, ""),
        (hangs, 0, "hung"),
        (leaves_a_process, 0, "left behind"),
        (gives_no_cause, 0, "stopped without reason (1)"),
        (names_another_cause, 0, "stopped without reason (1)"),
        (stalls, 9, "stopped again and again"),
        (stalls_once, 1, ""),
    ],
)
def test_wrong_outcomes_are_named(work, stops, wrong, tmp_path, monkeypatch):
    monkeypatch.setattr(nemesis, "GONE_S", 0.5)
    monkeypatch.setattr(Toy, "work", staticmethod(work))
    monkeypatch.setattr(Toy, "hung_s", 0.5 if work is hangs else 500.0)
    disturbed = Nemesis(0, tmp_path, kind=Toy)
    try:
        outcome = disturbed.run([([], None)])
    finally:
        disturbed.close()
    assert outcome.wrong.startswith(wrong) and bool(outcome.wrong) == bool(wrong)
    assert len(outcome.stops) == stops


@pytest.mark.parametrize(
    ("results", "expected", "whole", "wrong"),
    [
        ({1: 5}, {1: 5, 2: 5}, False, ""),
        ({1: 5}, {1: 5, 2: 5}, True, "lost: 2 is None instead of 5"),
        ({1: 4}, {1: 5}, False, "lost: 1 is 4 instead of 5"),
        ({1: 10}, {1: 5}, False, "doubled: 1 is 10 instead of 5"),
        ({3: 1}, {1: 5}, False, "doubled: 3 is not to come"),
    ],
)
def test_what_is_missing_and_what_came_twice(results, expected, whole, wrong):
    assert compare_results(Counter(results), Counter(expected), whole) == wrong
