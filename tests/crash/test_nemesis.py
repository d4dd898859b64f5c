"""Jobs of every package under a nemesis are right, or stop with the reason and then are right."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import asdict

import pytest

from aftlib.spark.faults import Fault
from tests.crash import nemesis
from tests.crash.nemesis import Nemesis, Outcome, TimedFault, suffer, table
from tests.crash.nemesis_jobs import Job, compared
from tests.crash.test_shared_state import TUPLES

FULL = os.environ.get("AFT_TRIALS") == "full"
SAMPLE = [0, 1, 2, 5, 17, 18, 23, 29]
"""Of each package, and among them every kind of store and of fault but the database's own."""
LONG = [pytest.param(number, marks=pytest.mark.long) for number in SAMPLE[4:]]
NUMBERS = range(nemesis.JOBS_WITHOUT_SPARK) if FULL else [*SAMPLE[:4], *LONG]
ON_SPARK = range(nemesis.JOBS_WITHOUT_SPARK, nemesis.JOBS_WITHOUT_SPARK + nemesis.JOBS_ON_SPARK)
OLDER = TimedFault("older_copy", whom=0.99)
"""Of the last store by name, which is the shared one."""
LIVES = (1, 50, 5), (4, 90, 3)
"""Of each life: the window at which the output task dies, the reads at which each task does, and
the restarts at which the supervisor dies. Each task that has died is held.

Tasks of two partitions have then read 25 and 70 of the 80 batches of each, and windows 0, then 200
to 1200 can be emitted; the others read their last batch in the second life.
"""


@pytest.fixture(scope="module")
def outcomes(request):
    """What became of the jobs; counted when the last one has ended."""
    found: list[Outcome] = []
    yield found
    with request.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        print("\n" + table(found))


@pytest.mark.crash
@pytest.mark.parametrize("number", NUMBERS)
def test_a_job_is_right_or_says_why_not(number, tmp_path, outcomes, once):
    outcomes.append(suffer(number, tmp_path))
    assert outcomes[-1].wrong == ""
    once()


@pytest.mark.crash
@pytest.mark.skipif(not FULL, reason="starts Spark several times: part of the full trials")
@pytest.mark.parametrize("number", ON_SPARK)
def test_a_job_on_spark_is_right_or_says_why_not(number, tmp_path, outcomes, once):
    outcomes.append(suffer(number, tmp_path))
    assert outcomes[-1].wrong == ""
    once()


def taken_back(directory, broken):
    """D3 with its global store taken back by one life, whether anybody compares or not.

    Each life ends when all that its faults want has happened, in whatever order.
    """
    struck = Nemesis(0, directory, "shared_state", broken)
    job, notes = struck.job, struck.job.place / "faults"
    job.on_postgres, job.own = False, "rocksdb"
    try:
        for number, (windows, reads, restarts) in enumerate(LIVES, 1):
            faults = [
                asdict(Fault("kill", "output", windows, "written")),
                asdict(Fault("kill", "supervisor", restarts, "restarted")),
            ]
            job.faults = {"faults": faults, "hold": reads}
            assert nemesis.Life(job).end(500)[0] == -signal.SIGKILL
            assert len(list(notes.glob("fault-*"))) == 2 * number
            for name, store in job.stores.items():
                struck.copies[name].append(store.copy())
        unread = job.stage.open_shared()
        assert min(at.tuples for at in unread.progress().values()) < TUPLES
        unread.close()
        struck._take_back(OLDER)
        assert struck.outcome.faults == {"older_copy": 1}
        job.faults = {}
        return struck.run([([], None)])
    finally:
        struck.close()


@pytest.mark.crash
def test_a_store_that_forgets_is_caught(tmp_path):
    """The broken control: servers tell the global store where it stands, and compare nothing."""
    assert taken_back(tmp_path / "broken", "trusting").wrong.startswith("lost")
    sound = taken_back(tmp_path / "sound", "")
    assert (sound.wrong, sound.faults) == ("", {"older_copy": 1})
    assert sound.stops[0].startswith("older_copy")


class Toy(Job):
    """A job that does what `does` says, and is right when it ends well."""

    package = "toy"
    does = "pass"
    hung_s, forks = 500.0, False

    def prepare(self):
        self.place.mkdir(parents=True)

    def victims(self, members):
        (self.place / "struck").touch()  # a fault falls: jobs that wait for it go on
        return members

    def command(self):
        sign = f"open({str(self.place / 'began')!r}, 'w').close(); import time, subprocess, os\n"
        return [sys.executable, "-c", sign + self.does.replace("PLACE", str(self.place))]

    def wrong(self, whole):
        return ""


FULL_DISK = TimedFault("full_disk", lasts_s=0.05)
STRUCK = "while not os.path.exists('PLACE/struck'): time.sleep(.01)\n"
ENDS = {
    "works": ("pass", [], ""),
    "hangs": ("time.sleep(600)", [], "hung"),
    "leaves somebody": ("subprocess.Popen(['sleep', '60'])", [], "left behind"),
    "gives no cause": ("raise ValueError('sorry')", [], "stopped without reason (1): Traceback"),
    "gives no word": ("os._exit(3)", [], "stopped without reason (3)"),
    "names what is not": ("raise OSError('No space left')", [], "stopped without reason (1)"),
    "mends, once the machine stalls no more": (
        "p = 'PLACE/x'\nif not os.path.exists(p):\n  open(p, 'w').close()\n"
        "  raise TimeoutError('server-0 has given no sign of life for 8 s')",
        [],
        "",
    ),
    "stalls for ever": (
        "raise TimeoutError('server-0 has given no sign of life for 8 s')",
        [],
        "stopped again and again",
    ),
    "never mends": (
        STRUCK + "raise OSError('No space left')",
        [FULL_DISK],
        "stopped without reason (1)",
    ),
    "is mended": (
        "p = 'PLACE/x'\nif not os.path.exists(p):\n  open(p, 'w').close()\n  "
        + STRUCK
        + "  raise OSError('No space left')",
        [FULL_DISK],
        "",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_judge(end, tmp_path, monkeypatch):
    does, strikes, expected = ENDS[end]
    monkeypatch.setattr(Toy, "does", does)
    monkeypatch.setattr(nemesis, "GONE_S", 0.5)
    if end == "hangs":
        monkeypatch.setattr(Toy, "hung_s", 0.5)
    monkeypatch.setitem(nemesis.JOBS, "toy", Toy)
    struck = Nemesis(0, tmp_path, "toy")
    try:
        found = struck.run([(strikes, None)])
    finally:
        struck.close()
    assert found.wrong.startswith(expected) and bool(found.wrong) == bool(expected)
    assert len(found.stops) == (9 if "for ever" in end else "mend" in end)


def test_what_is_missing_and_what_came_twice():
    assert compared({1: 5}, {1: 5, 2: 5}, whole=False) == ""
    assert compared({1: 5}, {1: 5, 2: 5}, whole=True).startswith("lost: 2 is None")
    assert compared({1: 4}, {1: 5}, whole=False).startswith("lost: 1 is 4 instead of 5")
    assert compared({1: 10}, {1: 5}, whole=False).startswith("doubled: 1 is 10")
    assert compared({3: 1}, {1: 5}, whole=False).startswith("doubled: 3 is not to come")


def test_the_table():
    outcomes = [
        Outcome(0, "one", {"kill": 2}),
        Outcome(1, "one", {"kill": 1, "pause": 1}, ["said so"]),
        Outcome(2, "two", {"pause": 1}, [], "lost: 3"),
    ]
    assert table(outcomes).splitlines() == [
        "one: 2 jobs, 4 faults (3 kill, 1 pause)",
        "    1 right at once, 1 stopped with reason, then right, 0 lost, 0 doubled, 0 hung",
        "two: 1 jobs, 1 faults (1 pause)",
        "    0 right at once, 0 stopped with reason, then right, 1 lost, 0 doubled, 0 hung",
        "all: 3 jobs, 5 faults (3 kill, 2 pause)",
        "    1 right at once, 1 stopped with reason, then right, 1 lost, 0 doubled, 0 hung",
    ]
