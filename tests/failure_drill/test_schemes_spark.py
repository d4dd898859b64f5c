"""The schemes on Spark under real signals: what each loses, doubles and reads again, to the row."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.failure_drill import schemes_spark
from aftlib.failure_drill.metrics import score_emitted
from aftlib.failure_drill.schedule import draw_drill, pattern_of, worker_of
from aftlib.failure_drill.schemes_spark import AT_LEAST, AT_MOST, EXACTLY, MODEL, NONE
from tests.failure_drill.conftest import SMALL
from tests.failure_drill.in_process import all_here


def drill_of(directory, windows, faults):
    changed = {"windows": windows, "calm": 0.0, "faults": faults, "pause_s": 0.2}
    return draw_drill(directory, **SMALL | changed)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Each pattern once, in as few micro-batches as hold them."""
    return drill_of(tmp_path_factory.mktemp("drill"), 45, 6)


@pytest.fixture(scope="module")
def short(small):
    """Leave out the repeated pattern, whose process restarts take most of the time."""
    events = [event for event in small.events if pattern_of(event) != "repeated"]
    return replace(small, schedule=tuple(fault for event in events for fault in event))


def run_scheme(spark, scheme, small, directory):
    run = schemes_spark.stream(spark, scheme, small, directory)
    return run, score(small, run)


def score(drill, run):
    return score_emitted(run.drill or drill, run.emitted, np.random.default_rng(1))


def between(small, away):
    """Collect windows and sensors between each kill and its replacement, step by step."""
    lost = set()
    for fault in small.kills:
        for step in range(fault.step, min(fault.step + away, small.log.steps)):
            for sensor in small.assignment.workers[worker_of(fault)]:
                lost.add((step // small.windows.width, sensor))
    return lost


def test_at_most_once_loses_what_lay_between_and_nothing_else(spark, small, tmp_path):
    run, tally = run_scheme(spark, AT_MOST, small, tmp_path)
    emitted = set(zip(run.emitted["window"], run.emitted["sensor"], strict=True))
    everything = {tuple(place) for place in np.ndindex(small.truth.shape)}
    assert everything - emitted == between(small, small.away)
    assert (tally.doubled, tally.wrong, run.read_again) == (0, 0, 0)
    assert run.faults == len(small.schedule)
    assert (run.recoveries > 0).all(axis=None)


def test_without_tolerance_failed_workers_stay_silent(spark, short, tmp_path):
    run, tally = run_scheme(spark, NONE, short, tmp_path)
    assert tally.lost == len(between(short, short.log.steps))
    assert (tally.doubled, tally.wrong) == (0, 0)


def test_at_least_once_doubles_what_was_sent_before_the_kill(spark, short, tmp_path):
    run, tally = run_scheme(spark, AT_LEAST, short, tmp_path)
    keys, width = 3, short.windows.width
    sent = sum((s.step % short.every) // width * keys for s in short.kills)
    assert (tally.lost, tally.doubled, tally.wrong) == (0, sent, 0)
    assert sent > 0 and run.read_again == short.wasted_samples.sum()


def test_exactly_once_reads_again_and_harms_nothing(spark, small, tmp_path):
    run, tally = run_scheme(spark, EXACTLY, small, tmp_path)
    assert (tally.lost, tally.doubled, tally.wrong, tally.estimated) == (0, 0, 0, 0)
    assert run.read_again == small.wasted_samples.sum()
    assert run.faults == len(small.schedule)
    reached = [step for step, _ in run.progress]
    assert reached == [*range(0, small.log.steps + 1, small.every)]


def test_d1_reads_again_what_its_plan_does_not_spare(spark, small, tmp_path):
    run, tally = run_scheme(spark, MODEL, small, tmp_path)
    wasted, estimated = small.wasted_samples, small.estimated_kills
    assert run.read_again == wasted[~estimated].sum() < wasted.sum()
    assert run.measures["read"] == run.measures["planned"]
    assert (tally.lost, tally.doubled, tally.wrong) == (0, 0, 0) and tally.estimated > 0


def test_a_replacement_that_reads_again_is_no_longer_at_most_once(spark, tmp_path, monkeypatch):
    """The mutant under which F-1 turns: splits that are worked on twice."""
    monkeypatch.setattr(schemes_spark, "OnwardSplits", schemes_spark.SensorSplits)
    monkeypatch.setattr(schemes_spark.Query, "approximate", [False] * 4)
    _, tally = run_scheme(spark, AT_MOST, drill_of(tmp_path, 10, 1), tmp_path / "stream")
    assert tally.doubled > 0 == tally.lost


def test_the_next_driver_runs_the_uncounted_micro_batch_again(small, tmp_path, monkeypatch):
    all_here(monkeypatch)
    run = schemes_spark.killed_driver(small, tmp_path)
    tally = score(small, run)
    assert tally.due == run.drill.truth.size == schemes_spark.BATCHES * 5 * 12
    assert (tally.lost, tally.doubled, tally.wrong, tally.estimated) == (0, 0, 0, 0)
    assert run.read_again == small.every * 12 and run.faults == 1
    assert (run.recoveries > 0).all(axis=None)
