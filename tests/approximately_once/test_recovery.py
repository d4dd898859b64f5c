"""Which windows are estimated after which crashes: real processes, without Spark between them."""

from dataclasses import replace

import numpy as np
import pytest

from aftlib.approximately_once.assignment import assign_packed, assign_spread
from aftlib.approximately_once.coordinator import Coordinator
from aftlib.approximately_once.message_log import MessageLog
from aftlib.approximately_once.pipeline import Query, staff
from aftlib.approximately_once.sink import Outage
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.spark.faults import Fault
from tests.approximately_once.processes import attempt, micro_batch

MODEL, WINDOWS, REQUIREMENT = block_model(6, 2), Windows(10, 5), Requirement(1.0, 0.05)


@pytest.fixture(scope="module")
def query(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log"
    log = SensorLog.write(path, draw(MODEL, 120, 4), MODEL.names)
    means = MODEL.aggregate(WINDOWS.width)
    return Query(log, WINDOWS, means, assign_spread(means, 2, REQUIREMENT), REQUIREMENT, every=40)


def truth(query):
    due = WINDOWS.ending_in(0, query.log.steps)
    values, _ = WINDOWS.aggregate(query.log.read(None, 0, query.log.steps), 0, due)
    return {
        (j * WINDOWS.slide, name): values[i, k]
        for i, j in enumerate(due)
        for k, name in enumerate(query.log.names)
    }


def estimated(sink, query):
    """Starts of each worker's windows that are estimated; all others must be exact."""
    expected, starts = truth(query), {}
    for row in sink.windows().itertuples():
        if row.estimated:
            key = query.log.names.index(row.key)
            starts.setdefault(int(query.assignment.worker_of[key]), set()).add(row.start)
        else:
            assert row.value == expected[row.start, row.key]
    return starts


def test_what_overlaps_the_outage_is_estimated_and_nothing_else(query, tmp_path):
    job = staff(query, tmp_path, [Outage(1, 52, 61)])
    for start in (0, 40, 80):
        sink = micro_batch(job, start, start + 40)
    assert len(sink.windows()) == len(truth(query))
    assert estimated(sink, query) == {1: {45, 50, 55, 60}}
    (outage,) = sink.outages()
    assert (outage.worker, outage.failure, outage.recovery) == (1, 52, 61)
    assert outage.crashed_pid not in (None, outage.replacement_pid)


def test_an_unscheduled_crash_lasts_until_the_end_of_the_micro_batch(query, tmp_path):
    splits, coordinator = staff(query, tmp_path)
    injector = replace(splits.worker.injector, schedule=(Fault("kill", "worker-1", 52),))
    worker = replace(splits.worker, injector=injector)
    job = replace(splits, worker=worker), coordinator
    for start in (0, 40, 80):
        sink = micro_batch(job, start, start + 40)
    assert estimated(sink, query) == {1: set(range(45, 80, 5))}
    (outage,) = sink.outages()
    assert (outage.worker, outage.failure, outage.recovery) == (1, 52, 80)


def test_samples_read_again_are_counted(query, tmp_path):
    for mode, counted in (("model", 0), ("exact", 3 * (52 - 35))):
        variant = Query(**{**vars(query), "recover": mode})
        job = staff(variant, tmp_path / mode, [Outage(1, 52, 61)])
        micro_batch(job, 40, 80)
        assert [split["again"] for split in job[1].splits] == [0, counted]


def test_a_worker_that_crashes_while_a_batch_runs_again_costs_nothing(query, tmp_path, monkeypatch):
    micro_batch(staff(query, tmp_path), 0, 40)
    monkeypatch.delattr(Coordinator, "recover")  # whose memory begins from what the sink holds
    # the driver crashes after the sink's write and before Spark's commit
    sink = micro_batch(staff(query, tmp_path, [Outage(0, 20, 27)]), 0, 40)
    assert estimated(sink, query) == {}
    assert [o.worker for o in sink.outages()] == [0]


def test_another_worker_that_crashes_while_a_batch_runs_again(query, tmp_path):
    first = micro_batch(staff(query, tmp_path, [Outage(1, 20, 27)]), 0, 40).windows()
    again = staff(query, tmp_path, [Outage(0, 22, 29)])
    sink = micro_batch(again, 0, 40)
    assert estimated(sink, query) == {1: {15, 20, 25}}
    assert sink.windows().equals(first)
    assert [o.worker for o in sink.outages()] == [1]  # the other was recovered exactly
    micro_batch(again, 40, 80)
    assert estimated(sink, query) == {1: {15, 20, 25}}


def test_two_workers_that_crash_in_one_batch_are_not_both_estimated(query, tmp_path):
    job = staff(query, tmp_path, [Outage(0, 20, 27), Outage(1, 22, 29)])
    sink = micro_batch(job, 0, 40)
    assert estimated(sink, query) == {0: {15, 20, 25}}


def test_driver_and_worker_that_crash_together(query, tmp_path):
    splits, _ = staff(query, tmp_path, [Outage(1, 20, 27)])
    assert attempt(splits, splits.partitions(0, 40)[1], 0, lambda *_: None) is None
    sink = micro_batch(staff(query, tmp_path, [Outage(1, 20, 27)]), 0, 40)
    assert estimated(sink, query) == {}  # the restarted worker has read all, and lost nothing


def test_a_second_attempt_without_a_crash_is_exact(query, tmp_path):
    def failing(split, number):
        if split.worker == 1 and number == 0:
            raise RuntimeError("no input")

    splits, _ = job = staff(query, tmp_path)
    sink = micro_batch(job, 0, 40, failing)
    assert estimated(sink, query) == {} and sink.outages() == []
    with MessageLog(splits.worker.messages).writing(
        1, 40, 0, begin=35
    ):  # slow: Spark speculates beside it
        table = attempt(splits, splits.partitions(40, 80)[1], 1, lambda *_: None)
    rows = [row for row in table.to_pylist() if row["first"] is not None]
    assert all(row["values"] is not None and row["crashed"] is None for row in rows)


def test_what_makes_another_query(query):
    def changed(**other):
        return Query(**{**vars(query), **other}).fingerprint

    same = changed(every=7), changed(stop=60), changed(recover="exact")
    assert {*same} == {query.fingerprint}
    sums = Windows(10, 5, "sum")
    others = [{"windows": sums}, {"requirement": Requirement(0.9, 0.05)}, {"model": MODEL}]
    others += [{"assignment": assign_packed(query.model, 2, REQUIREMENT)}]
    others += [{"recover": "guard"}, {"recover": "guard", "seasons": (24,)}]
    assert len({query.fingerprint, *(changed(**other) for other in others)}) == 7


def test_what_too_little_is_known_of_is_read_again(query, tmp_path):
    values = query.log.read(None, 0, 120)
    for key in query.assignment.workers[0]:
        values[50:58, key] = np.nan  # of the peers' windows 5, 2, 7 and 10 samples are left
    log = SensorLog.write(tmp_path / "log", values, query.log.names)
    tight = Requirement(0.45, 0.05)
    variant = Query(**{**vars(query), "log": log, "requirement": tight})
    job = staff(variant, tmp_path, [Outage(1, 52, 61)])
    sink = micro_batch(job, 40, 80)
    results = sink.windows()
    lost = results[results["estimated"]]
    assert (lost["half_width"] <= tight.epsilon).all()
    assert set(lost["start"]) == {55, 60}
    assert [split["again"] for split in job[1].splits] == [0, 2 * 10 * 3]
    whole, _ = WINDOWS.aggregate(values, 0, WINDOWS.ending_in(0, 120))
    for row in results[~results["estimated"]].itertuples():
        expected = whole[row.start // 5, log.names.index(row.key)]
        np.testing.assert_equal(row.value, expected)
