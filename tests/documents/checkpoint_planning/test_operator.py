"""The operator of D2: exact while nothing fails, within its variance after failures."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from aftlib.core.generators import draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import LogReader, SensorLog
from aftlib.documents.checkpoint_planning import operator
from aftlib.documents.checkpoint_planning.operator import (
    bare_read,
    driver,
    interval_sums,
    open_operator,
)
from aftlib.documents.checkpoint_planning.plan import RecoveryTime
from aftlib.documents.checkpoint_planning.state import CheckpointStore
from tests.documents.checkpoint_planning.crashes import (
    MODEL,
    QUERY,
    WINDOW,
    Crashed,
    crashing,
    stream,
)


@pytest.fixture
def log(tmp_path):
    return SensorLog.write(tmp_path / "log", draw(MODEL, 5 * WINDOW, 2), MODEL.names)


def table(store, name):
    values = store.results().set_index(["start", "key"])[name]
    return np.array([[values[w, key] for key in MODEL.names] for w in range(0, 5 * WINDOW, WINDOW)])


def truth(log, query="mean"):
    windows = log.read(None, 0, log.steps).reshape(5, WINDOW, 8)
    return windows.mean(axis=1) if query == "mean" else windows.sum(axis=1)


@pytest.mark.parametrize("query", ["mean", "sum"])
def test_undisturbed_stream_is_exact(tmp_path, log, query):
    requirement = Requirement(0.3 if query == "mean" else 0.3 * WINDOW, 0.05)
    store = stream(replace(QUERY, query=query, requirement=requirement), log, tmp_path)
    np.testing.assert_allclose(table(store, "value"), truth(log, query), rtol=1e-12)
    assert (table(store, "half_width") == 0).all()
    assert (table(store, "samples") == WINDOW).all()
    assert not store.records()["recovered"].any()


EVERYWHERE = ["replayed", "begun", "estimated", "restored"]


@pytest.mark.parametrize("points", [*([point] for point in EVERYWHERE), EVERYWHERE], ids=str)
def test_a_crash_before_the_commit_is_recovered_partially(tmp_path, log, points):
    """Also if the recovery crashes, again and again."""
    store = stream(QUERY, log, tmp_path, [(point, 1) for point in points])
    records = store.records()
    assert records.index[records["recovered"]].tolist() == [1]
    assert records["sensors"][1] == len(QUERY.first_plan.replay[1].sensors) < 8
    assert (table(store, "samples") == WINDOW).all()
    half = table(store, "half_width")
    assert (half[1:] == 0).all()
    estimated = np.setdiff1d(range(8), QUERY.first_plan.replay[1].sensors)
    assert (half[0, estimated] > 0).all()
    assert half.max() <= QUERY.requirement.epsilon
    np.testing.assert_allclose(table(store, "value")[1:], truth(log)[1:], rtol=1e-12)


def test_the_time_to_restore_begins_with_the_checkpoint(tmp_path, log, monkeypatch):
    clock = [0.0]
    restore = CheckpointStore.restore

    def restore_slowly(store):
        clock[0] += 1
        return restore(store)

    monkeypatch.setattr(CheckpointStore, "restore", restore_slowly)
    monkeypatch.setattr(operator.time, "perf_counter", lambda: clock[0])
    records = stream(QUERY, log, tmp_path, [("replayed", 1)]).records()
    assert records.query("recovered")["res_ms"].tolist() == [1000]


def test_a_crash_after_the_commit_changes_nothing(tmp_path, log):
    store = stream(QUERY, log, tmp_path, [("committed", 1), ("committed", 3)])
    assert not store.records()["recovered"].any()
    np.testing.assert_allclose(table(store, "value"), truth(log), rtol=1e-12)


def test_failures_in_every_interval_keep_the_guarantee(tmp_path):
    """The worst case of (12) and beyond: each batch crashes once; each window is planned again."""
    off, halves = [], []
    for seed in range(8):
        place = tmp_path / str(seed)
        log = SensorLog.write(place / "log", draw(MODEL, 5 * WINDOW, seed), MODEL.names)
        store = stream(QUERY, log, place, [("replayed", b) for b in range(200)])
        assert store.records()["recovered"].all()
        off.append(np.abs(table(store, "value") - truth(log)))
        halves.append(table(store, "half_width"))
    off, halves = np.array(off), np.array(halves)
    assert halves.max() <= QUERY.requirement.epsilon * (1 + 1e-9)
    assert (off <= QUERY.requirement.epsilon).mean() >= 0.95 - 0.04
    # and the half-widths are valid: 95 % of the errors lie within them
    inside = (off <= halves)[halves > 0]
    assert abs(inside.mean() - 0.95) < 0.04


def test_gaps_are_counted_and_stay_gaps(tmp_path):
    values = draw(MODEL, 5 * WINDOW, 2)
    values[3, 0], values[70, 2], values[:WINDOW, 5] = np.nan, np.inf, np.nan
    log = SensorLog.write(tmp_path / "log", values, MODEL.names)
    store = stream(QUERY, log, tmp_path)
    samples, means = table(store, "samples"), table(store, "value")
    assert samples[0, 0] == samples[1, 2] == WINDOW - 1
    assert samples[0, 5] == 0
    assert np.isnan(means[0, 5])
    assert means[1, 2] == pytest.approx(np.delete(values[WINDOW : 2 * WINDOW, 2], 10).mean())
    again = stream(QUERY, log, tmp_path / "again", [("replayed", b) for b in range(3)])
    samples = table(again, "samples")
    assert (samples[0] <= WINDOW).all()
    assert (samples[1:] == table(store, "samples")[1:]).all()


def test_sums_have_the_same_bits_whatever_was_read_before(tmp_path):
    log = SensorLog.write(tmp_path / "log", draw(MODEL, 6000, 2), MODEL.names)
    reader, keys = LogReader(log), range(MODEL.size)
    interval_sums(reader, keys, 0, 700)
    sums, _ = interval_sums(reader, keys, 700, 5500)
    np.testing.assert_array_equal(sums, interval_sums(log, keys, 700, 5500)[0])


def test_prepared_sets_that_are_gone_or_damaged_are_refused(tmp_path, log):
    with pytest.raises(Crashed):
        open_operator(QUERY, log, tmp_path, crashing([("replayed", 0)])).process(0, bare_read(log))
    operator = open_operator(QUERY, log, tmp_path)
    gain = tmp_path / "prepared" / operator.last_checkpoint().plan_name / "0.npy"
    gain.write_bytes(gain.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"path must be an intact prepared replay, got .*0.npy"):
        operator.process(0, bare_read(log))
    with pytest.raises(ValueError, match=r"path must be an intact .*prepared/a/0.npy"):
        operator.store.load_prepared("a", 0)


def test_state_of_another_plan_or_log_is_refused(tmp_path, log):
    stream(QUERY, log, tmp_path)
    other = replace(QUERY, requirement=Requirement(0.5, 0.05))
    with pytest.raises(ValueError, match="query must be the one that the stream in .* began"):
        open_operator(other, log, tmp_path)
    renamed = SensorLog.write(tmp_path / "other", np.zeros((5, 8)), list("abcdefgh"))
    with pytest.raises(ValueError, match=r"log must have the model's keys 'X1', .*, got 'a', 'b'"):
        open_operator(QUERY, renamed, tmp_path)
    for part, about in ((slice(8 * WINDOW), {}), (slice(5 * WINDOW), {"seed": 3})):
        values, place = draw(MODEL, 8 * WINDOW, 2)[part], tmp_path / f"log-{part.stop}"
        with pytest.raises(ValueError, match="log must be the one that the stream in .* began"):
            open_operator(QUERY, SensorLog.write(place, values, MODEL.names, about), tmp_path)
    for change, refused in ((0, False), (1e-3, True)):  # elsewhere, and with other samples
        values = draw(MODEL, 5 * WINDOW, 2) + change
        copy = SensorLog.write(tmp_path / f"copy-{change}", values, MODEL.names)
        with pytest.raises(ValueError, match="check_sum") if refused else nullcontext():
            open_operator(QUERY, copy, tmp_path)


def test_a_t_sla_that_failures_could_exhaust_is_refused(tmp_path, log):
    loose = Requirement(0.9, 0.05)
    tight = replace(QUERY, requirement=loose, recovery_time=RecoveryTime(1.0, 0.1))
    with pytest.raises(ValueError, match="must be at least 1.8 to replay 8 tuples, got 1.5"):
        open_operator(tight, log, tmp_path)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_process_that_stops_of_itself_has_not_failed(tmp_path, log, error):
    def stop(point, batch):
        if (point, batch) == ("replayed", 1):
            raise error

    with pytest.raises(error), driver(QUERY, log, tmp_path, stop) as operator:
        operator.finish(bare_read(log))
    with driver(QUERY, log, tmp_path) as operator:
        operator.finish(bare_read(log))
    done = operator.store
    assert not done.records()["recovered"].any()
    assert (done.results()["half_width"] == 0).all()


@pytest.mark.parametrize("query", ["mean", "sum"])
def test_an_adaptive_plan_keeps_its_guarantee_whatever_fails(tmp_path, log, query):
    """Through the operator: every pattern of failures of a window's batches."""
    adaptive = replace(QUERY, method="adaptive", query=query)
    if query == "sum":
        adaptive = replace(adaptive, requirement=Requirement(0.3 * WINDOW, 0.05))
    batches = len(adaptive.first_plan.replay)
    assert 2 <= batches < len(QUERY.first_plan.replay)
    halves = []
    for pattern in product([False, True], repeat=batches + 1):
        place = tmp_path / "".join(str(int(fails)) for fails in pattern)
        store = stream(adaptive, log, place, [("replayed", k) for k, f in enumerate(pattern) if f])
        assert len(store.results()) == 5 * 8
        recovered = store.records().query("recovered")
        for tuples in recovered["tuples"]:
            assert adaptive.recovery_time(tuples) <= adaptive.t_sla_ms
        assert recovered["batch"].tolist() == np.flatnonzero(pattern).tolist()
        halves.append(table(store, "half_width").max())
    assert halves[0] == 0
    assert max(halves) > 0.9 * adaptive.requirement.epsilon  # and nearly all of ε is used


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_a_recovery_is_committed_before_the_rest_is_planned(tmp_path, log, batch):
    """Planning may take long; if a process crashes in it, the interval stays recovered."""
    crashes = crashing([("replayed", batch), ("committed", batch)])
    replay = open_operator(QUERY, log, tmp_path, crashes)
    for number in range(batch):
        replay.process(number, bare_read(log))
    with pytest.raises(Crashed):
        replay.process(batch, bare_read(log))
    with pytest.raises(Crashed):
        open_operator(QUERY, log, tmp_path, crashes).recover(bare_read(log))
    left = CheckpointStore(tmp_path)
    assert left.committed(batch)
    assert left.restore().plan_name == ""
    open_operator(QUERY, log, tmp_path).recover(bare_read(log))  # nothing is left to be recovered
    assert not left.committed(batch + 1)
    planned = left.restore()
    assert planned.position == planned.times[0]
    assert planned.next_boundary > planned.position
    with driver(QUERY, log, tmp_path) as operator:
        operator.finish(bare_read(log))
    done = operator.store
    assert len(done.results()) == 5 * 8
    assert done.records().query("recovered")["batch"].tolist() == [batch]


def test_a_gap_in_the_replay_set_replays_all_sensors(tmp_path):
    """The interval is then exact, as far as it has samples; the next windows are as ever."""
    values = draw(MODEL, 5 * WINDOW, 2)
    first, second = QUERY.first_plan.replay[0].sensors[0], QUERY.first_plan.times[1]
    values[3, first] = np.nan
    log = SensorLog.write(tmp_path / "log", values, MODEL.names)
    store = stream(QUERY, log, tmp_path, [("replayed", 0)])
    record = store.records().loc[0]
    assert (record.recovered, record.sensors, record.stop) == (True, 8, second)
    assert not table(store, "half_width").any()
    assert table(store, "samples")[0].tolist() == [WINDOW - (i == first) for i in range(8)]
    assert table(store, "value")[0, first] == pytest.approx(np.nanmean(values[:WINDOW, first]))


def test_a_driver_that_replays_all_sensors_restores_the_exact_results(tmp_path, log):
    """It is exactly-once's recovery: no sensor is estimated after a crash."""
    with pytest.raises(Crashed):
        open_operator(QUERY, log, tmp_path, crashing([("replayed", 1)])).finish(bare_read(log))
    with driver(QUERY, log, tmp_path, replays_all=True) as operator:
        operator.recover(bare_read(log))
        operator.finish(bare_read(log))
    records = operator.store.records()
    assert records["sensors"].eq(8).all()
    assert not records["recovered"].any()
    np.testing.assert_allclose(table(operator.store, "value"), truth(log), rtol=1e-12)
