"""The schemes on Spark under real signals: what each loses, doubles and reads again, to the row."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.failure_drill import pipeline
from aftlib.failure_drill.drill import drill, tallied
from aftlib.failure_drill.pipeline import AT_LEAST, AT_MOST, EXACTLY, MODEL, NONE
from tests.failure_drill.conftest import SMALL


def drilled(directory, windows, strikes):
    changed = {"windows": windows, "calm": 0.0, "strikes": strikes, "stall_s": 0.2}
    return drill(directory, **SMALL | changed)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Each form of strike once, in as few micro-batches as hold them."""
    return drilled(tmp_path_factory.mktemp("drill"), 45, 6)


@pytest.fixture(scope="module")
def short(small):
    """Of these a worker that dies, two at once and one that is stopped, in fewer micro-batches.

    Most of the time goes to processes that start anew.
    """
    strikes = [strike for strike in small.strikes if strike.form != "repeated"]
    return replace(small, strikes=tuple(strikes))


def streamed(spark, scheme, small, directory):
    found = pipeline.stream(spark, scheme, small, directory)
    return found, tallied(small, found.came, np.random.default_rng(1))


def between(small, away):
    """Windows and sensors that overlap a time between a kill and its substitute, the slow way."""
    lost = set()
    for strike in small.kills:
        for step in range(strike.step, min(strike.step + away, small.log.steps)):
            for sensor in small.assignment.workers[strike.worker]:
                lost.add((step // small.windows.width, sensor))
    return lost


def test_at_most_once_loses_what_lay_between_and_nothing_else(spark, small, tmp_path):
    found, tally = streamed(spark, AT_MOST, small, tmp_path)
    came = set(zip(found.came["window"], found.came["sensor"], strict=True))
    everything = {tuple(place) for place in np.ndindex(small.truth.shape)}
    assert everything - came == between(small, small.away)
    assert (tally.doubled, tally.wrong, found.rows_again) == (0, 0, 0)
    assert found.fallen == len(small.strikes)
    assert (found.recoveries > 0).to_numpy()[:, 1:].all()


def test_without_tolerance_the_dead_stay_silent(spark, short, tmp_path):
    found, tally = streamed(spark, NONE, short, tmp_path)
    assert tally.lost == len(between(short, short.log.steps))
    assert (tally.doubled, tally.wrong) == (0, 0)


def test_at_least_once_doubles_what_was_sent_before_the_kill(spark, short, tmp_path):
    found, tally = streamed(spark, AT_LEAST, short, tmp_path)
    keys, width = 3, short.windows.width
    sent = sum((s.step % short.every) // width * keys for s in short.kills)
    assert (tally.lost, tally.doubled, tally.wrong) == (0, sent, 0)
    assert sent > 0 and found.rows_again == short.in_vain.sum()


def test_exactly_once_reads_again_and_harms_nothing(spark, small, tmp_path):
    found, tally = streamed(spark, EXACTLY, small, tmp_path)
    assert (tally.lost, tally.doubled, tally.wrong, tally.estimated) == (0, 0, 0, 0)
    assert found.rows_again == small.in_vain.sum() and found.fallen == len(small.strikes)
    reached = [step for step, _ in found.progress]
    assert reached == [*range(0, small.log.steps + 1, small.every)]


def test_d1_reads_again_what_its_plan_does_not_spare(spark, small, tmp_path):
    found, tally = streamed(spark, MODEL, small, tmp_path)
    vain, spared = small.in_vain, small.spared
    assert found.rows_again == vain[~spared].sum() < vain.sum()
    assert found.more["read"] == found.more["planned"]
    assert (tally.lost, tally.doubled, tally.wrong) == (0, 0, 0) and tally.estimated > 0


def test_a_substitute_that_reads_again_is_no_longer_at_most_once(spark, tmp_path, monkeypatch):
    """The mutant under which F-1 turns: splits that are worked on twice."""
    monkeypatch.setattr(pipeline, "OnwardShifts", pipeline.SensorSplits)
    monkeypatch.setattr(pipeline.Query, "approximate", [False] * 4)
    _, tally = streamed(spark, AT_MOST, drilled(tmp_path, 10, 1), tmp_path / "stream")
    assert tally.doubled > 0 == tally.lost
