"""Spark's checkpoint older, torn or lost beside our own state, and vice versa.

Spark syncs none of it on a local disk, as the first test shows. So after a power failure any of its
files may be missing, empty or cut. A stream then gives the same results, or fails with the fix.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import pytest

from aftlib.approximately_once import pipeline as approximately_once
from aftlib.approximately_once import sink
from aftlib.approximately_once.pipeline import recover_stream
from aftlib.approximately_once.sink import Outage
from aftlib.checkpoint_planning import pipeline as checkpoint_planning
from aftlib.checkpoint_planning.pipeline import replay_stream
from aftlib.core.sensorlog import SensorLog
from aftlib.exponential_histogram import pipeline as exponential_histogram
from aftlib.exponential_histogram.operator import HistogramQuery
from aftlib.exponential_histogram.pipeline import run
from aftlib.exponential_histogram.source import BitEvents
from tests.crash import power, recovery_driver, replay_driver

pytestmark = pytest.mark.crash
FULL = os.environ.get("AFT_TRIALS") == "full"
MIDDLE, END = 3, 5
"""Micro-batches before the power fails, and in all."""
OUTAGES = [Outage(1, 14_000, 14_400)]
PACKAGES = {
    "D1": approximately_once,
    "D1 by guard": approximately_once,
    "D2": checkpoint_planning,
    "D5": exponential_histogram,
}


def of_d1(spark, place, begins=None, recover="model"):
    log, stop = SensorLog.open(place.parent / "log"), END * recovery_driver.EVERY
    query = recovery_driver.query(log, recover, stop)
    with pytest.MonkeyPatch.context() as patch:
        if begins:
            act = approximately_once.BatchHandler.__call__

            def begins_and_acts(self, frame, batch):
                begins(batch)
                act(self, frame, batch)

            patch.setattr(approximately_once.BatchHandler, "__call__", begins_and_acts)
        return recover_stream(spark, query, place, OUTAGES).windows.to_csv()


def of_d2(spark, place, begins=None):
    def passes(point, batch):
        if begins and point == "begun":
            begins(batch)

    log = SensorLog.open(place.parent / "log")
    return repr(replay_stream(spark, replay_driver.QUERY, log, place, passes).results)


def of_d5(spark, place, begins=None):
    for until in (MIDDLE, END) if begins else (END,):  # D5 has no hook at a batch's start
        events = BitEvents(0.3, None, 7, 2, 200 * until, 200, 2).stream(spark)
        estimates = run(spark, events, HistogramQuery(150, 0.1), place, partitions=1).toPandas()
        if begins:
            begins(until)
    return estimates.sort_values(["key", "at"], ignore_index=True).to_csv()


STREAMS = {
    "D1": (of_d1, recovery_driver.write_log),
    "D1 by guard": (partial(of_d1, recover="guard"), recovery_driver.write_log),
    "D2": (of_d2, partial(replay_driver.write_log, windows=2)),
    "D5": (of_d5, lambda folder: None),
}


def copy_before(place, target):
    """Copy the state of a stream that stopped before the batch that begins now."""
    # by another process, because SQLite loses its lock when this process closes the file
    subprocess.run(["cp", "-R", place, target], check=True)
    if (target / "state.sqlite").exists():  # of D2, which would take the batch for one that failed
        with closing(sqlite3.connect(target / "state.sqlite")) as state, state:
            state.execute("DELETE FROM begun")
    elif (target / "sink.sqlite").exists():
        lose(target / "checkpoint" / "offsets", 1)


@pytest.fixture(scope="module")
def streams(spark, tmp_path_factory):
    """A stream by name: its folder as it was when the power failed, and a call that resumes it.

    It runs once, undisturbed, and is copied as it runs; D5's stops in the middle and resumes.
    """
    known = {}

    def of(name, moment):
        if name not in known:
            folder = tmp_path_factory.mktemp("stream")
            stream, write = STREAMS[name]
            write(folder)
            place, moments = folder / "stream", {MIDDLE - 1: "earlier", MIDDLE: "middle"}

            def begins(batch):
                if batch in moments:
                    copy_before(place, folder / moments[batch])

            whole = stream(spark, place, begins)
            shutil.copytree(place, folder / "end")
            known[name] = folder, partial(stream, spark, place), whole
        folder, go_on, whole = known[name]
        place = folder / "stream"
        shutil.rmtree(place)
        shutil.copytree(folder / moment, place)  # D5's estimates are to lie where they were
        return SimpleNamespace(place=place, earlier=folder / "earlier", go_on=go_on, whole=whole)

    return of


def lose(folder, last):
    """Remove the files of the last micro-batches from one of Spark's logs."""
    numbers = sorted(int(path.name) for path in folder.glob("[0-9]*"))
    for number in numbers[-last:]:
        for path in (folder / str(number), folder / f".{number}.crc"):
            path.unlink(missing_ok=True)


def lose_both(place, last):
    for name in ("commits", "offsets"):
        lose(place / "checkpoint" / name, last)


def cut(path, share=0.5):
    """Cut a file, and remove its check sum."""
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def last_of(place, name):
    return max((place / name).glob("[0-9]*"), key=lambda path: int(path.name))


def drop_line(place):
    """Cut the last offsets before the line that has them."""
    path = last_of(place, "checkpoint/offsets")
    cut(path, (path.read_bytes().rindex(b"\n")) / path.stat().st_size)


@pytest.mark.long
@pytest.mark.skipif(power.STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize("kind", ["D1", "D5"] if FULL else ["D5"])
def test_spark_syncs_nothing_of_its_checkpoint(kind, tmp_path):
    """If it does one day, docs/security.md may guarantee more."""
    traced, calls = tmp_path / "calls", "trace=fsync,fdatasync,openat,rename,renameat,renameat2"
    command = [power.STRACE, "-f", "-y", "-qq", "--seccomp-bpf", "-e", calls, "-o", str(traced)]
    program = [sys.executable, "-m", "tests.crash.checkpoint_driver", kind, str(tmp_path)]
    subprocess.run([*command, *program], check=True, capture_output=True, timeout=900)
    lines = traced.read_text().splitlines()
    synced = {line for line in lines if re.search(r"\d+ +f(data)?sync\(", line)}
    ours = {"D1": "/stream/sink.sqlite-wal>", "D5": "/query.json>"}[kind]
    assert any(ours in line for line in synced)  # the trace does see what is synced
    assert sum("/stream/checkpoint/offsets/" in line for line in lines) >= 2
    assert not [line for line in synced if re.search("/stream/(checkpoint|estimates)", line)]


OLDER = {
    "a commit": lambda place: lose(place / "checkpoint" / "commits", 1),
    "two commits": lambda place: lose(place / "checkpoint" / "commits", 2),
    "a batch": lambda place: lose_both(place, 1),
    "two batches": lambda place: lose_both(place, 2),
    "all": lambda place: shutil.rmtree(place / "checkpoint"),
}


SOME = [("middle", "a commit"), ("middle", "two batches")]
"""The moment, and what is lost; tests of the fix lose all of it."""
ALL = [(moment, lost) for moment in ("middle", "end") for lost in OLDER]


@pytest.mark.parametrize(("moment", "lost"), ALL if FULL else SOME)
@pytest.mark.parametrize("name", ["D1", "D1 by guard", "D2"])
def test_what_spark_has_lost_changes_no_result(name, moment, lost, streams):
    stream = streams(name, moment)
    OLDER[lost](stream.place)
    assert stream.go_on() == stream.whole


def test_a_sink_that_adds_what_comes_again_is_caught(streams, monkeypatch):
    """The control: writing twice is not writing once."""
    adding = sink._UPSERT.replace("value = excluded.value", "value = value + excluded.value")
    stream = streams("D1", "middle")
    monkeypatch.setattr(sink, "_UPSERT", adding)
    lose_both(stream.place, 1)
    assert stream.go_on() != stream.whole


def test_a_state_that_hides_its_batches_from_spark_is_caught(streams):
    """The control: Spark is behind, and our state has no ends of its batches."""
    stream = streams("D2", "middle")
    lose_both(stream.place, 3)
    with closing(sqlite3.connect(stream.place / "state.sqlite")) as state, state:
        state.execute("DELETE FROM batches")
    with pytest.raises(Exception, match="restore both from the same copy"):
        stream.go_on()


TORN = {
    "offsets lost": lambda place: lose(place / "checkpoint" / "offsets", 2),
    "the offsets before lost": lambda place: (place / "checkpoint" / "offsets" / "1").unlink(),
    "offsets empty": lambda place: cut(last_of(place, "checkpoint/offsets"), 0),
    "offsets cut": lambda place: cut(last_of(place, "checkpoint/offsets")),
    "offsets without a line": drop_line,
    "commit empty": lambda place: cut(last_of(place, "checkpoint/commits"), 0),
    "commit cut": lambda place: cut(last_of(place, "checkpoint/commits")),
    "metadata empty": lambda place: cut(place / "checkpoint" / "metadata", 0),
    "metadata lost": lambda place: (place / "checkpoint" / "metadata").unlink(),
}


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("name", ["D1", "D2", "D5"])
def test_a_torn_checkpoint_is_refused_with_the_fix(name, torn, streams):
    stream = streams(name, "middle")
    if torn == "the offsets before lost" and name == "D2":
        (stream.place / "checkpoint" / "offsets" / "2").unlink()  # one more had started
    TORN[torn](stream.place)
    with pytest.raises(ValueError, match="Spark's checkpoint must be whole, got .*: re"):
        stream.go_on()


@pytest.mark.parametrize(
    ("name", "moment"), [("D1", "end"), ("D1 by guard", "middle"), ("D2", "end")]
)
def test_the_fix_leads_to_the_same_results(name, moment, streams):
    stream = streams(name, moment)
    cut(last_of(stream.place, "checkpoint/offsets"))
    with pytest.raises(ValueError, match="remove the folder") as refused:
        stream.go_on()
    shutil.rmtree(re.search("remove the folder '(.*?)'", str(refused.value))[1])
    assert stream.go_on() == stream.whole


def put_back(stream):
    """Restore our own state of a micro-batch before."""
    lose_own(stream)
    for path in stream.earlier.glob("*.sqlite*"):
        shutil.copy(path, stream.place)


def lose_own(stream):
    for path in stream.place.glob("*.sqlite*"):
        path.unlink()


def lose_emitted(stream):
    lose(stream.place / "estimates" / "_spark_metadata", 1)


def lose_estimates(stream):
    shutil.rmtree(stream.place / "estimates")


AHEAD = {
    "D1, an older sink": ("D1", put_back, "sink must hold the .* results up to step .*, got 2394"),
    "D1, no sink": ("D1", lose_own, "sink must hold the .* results up to step .*, got 0"),
    "D1 by guard": ("D1 by guard", put_back, "sink must hold the .*, got 2394"),
    "D2, an older state": ("D2", put_back, "state must have come to step .*, got 20"),
    "D2, no state": ("D2", lose_own, "state must have come to step .*, got 0"),
    "D5, a batch not emitted": ("D5", lose_emitted, "must be of one moment, got micro-batch"),
    "D5, no estimates": ("D5", lose_estimates, "must be of one moment, .* -1 that was emitted"),
}


@pytest.mark.parametrize("moment", ["middle", "end"] if FULL else ["end"])
@pytest.mark.parametrize("lost", AHEAD)
def test_what_is_behind_sparks_checkpoint_is_refused(lost, moment, streams):
    name, act, message = AHEAD[lost]
    stream = streams(name, moment)
    act(stream)
    with pytest.raises(ValueError, match=message):
        stream.go_on()


@pytest.mark.parametrize("lost", AHEAD if FULL else ["D1, an older sink", "D2, an older state"])
def test_without_the_check_results_are_lost_without_a_word(lost, streams, monkeypatch):
    """The control."""
    name, act, _ = AHEAD[lost]
    monkeypatch.setattr(PACKAGES[name], "require_in_step", lambda *_: None)
    stream = streams(name, "end")
    act(stream)
    assert len(stream.go_on()) < len(stream.whole)


LOST_BY_D5 = {
    "a batch": (lambda place: lose_both(place, 1), "must be of one moment"),
    "all": (lambda place: shutil.rmtree(place / "checkpoint"), "must be of one moment"),
    "what a log says": (lambda place: cut(last_of(place, LOG), 0), "log of the estimates must be"),
    "half of it": (lambda place: cut(last_of(place, LOG)), "log of the estimates must be whole"),
    "what a file holds": (lambda place: cut(next(place.glob(FILES)), 0), "estimates must be whole"),
    "a file": (lambda place: next(place.glob(FILES)).unlink(), "got 0 of .* bytes of .*part"),
}
LOG, FILES = "estimates/_spark_metadata", "estimates/part*"


@pytest.mark.parametrize("lost", LOST_BY_D5)
def test_estimates_and_a_checkpoint_of_two_moments_are_refused(lost, streams):
    act, message = LOST_BY_D5[lost]
    stream = streams("D5", "middle")
    act(stream.place)
    with pytest.raises(ValueError, match=message):
        stream.go_on()


def test_an_emitted_batch_is_not_emitted_again(spark, streams, monkeypatch):
    """The control: Spark identifies a micro-batch by its number, and skips new rows in it."""
    monkeypatch.setattr(exponential_histogram, "require_in_step", lambda *_: None)
    stream = streams("D5", "middle")
    lose_both(stream.place, 1)
    longer = BitEvents(0.3, None, 7, 2, 200 * END, 600, 2).stream(spark)
    estimates = run(spark, longer, HistogramQuery(150, 0.1), stream.place, partitions=1)
    assert estimates.count() < stream.whole.count("\n") - 1


def test_estimates_that_were_moved_are_refused(spark, streams, tmp_path, monkeypatch):
    """Spark silently reads nothing of what was written to another path."""
    stream, moved = streams("D5", "end"), tmp_path / "moved"
    shutil.copytree(stream.place, moved)
    with pytest.raises(ValueError, match="estimates must lie where they were written, in .*move"):
        of_d5(spark, moved)
    monkeypatch.setattr(exponential_histogram, "require_in_step", lambda *_: None)
    assert of_d5(spark, moved).count("\n") == 1  # the control: the heading alone


def test_state_that_spark_lost_is_refused(streams):
    """Spark itself refuses D5's damaged state."""
    stream = streams("D5", "middle")
    cut(stream.place / "checkpoint" / "state" / "0" / "0" / f"{MIDDLE}.zip")
    with pytest.raises(Exception, match="CANNOT_LOAD_STATE_STORE"):
        stream.go_on()
