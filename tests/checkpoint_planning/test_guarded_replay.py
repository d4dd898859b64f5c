"""D2's operator with a guard: valid over failures, crashes and restarts; audited afterwards."""

import os
from dataclasses import replace

import numpy as np
import pytest

from aftlib.checkpoint_planning import state
from aftlib.checkpoint_planning.driver import write_task
from aftlib.checkpoint_planning.experiments.guarded import wandering
from aftlib.checkpoint_planning.experiments.kills import killed_driver
from aftlib.checkpoint_planning.operator import ReplayQuery, bare_read, prepare
from aftlib.checkpoint_planning.pipeline import replay_in_process, replay_stream
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.spark.faults import Fault

W, N = 30, 5
NAMES = [f"s{i}" for i in range(N)]
VALUES = wandering(260, 0.9, seed=1)[:, :N]
MEANS = VALUES.reshape(-1, W, N).mean(axis=1)
LIMIT = 0.5 * MEANS.std()
MODEL_QUERY = ReplayQuery(
    GaussianModel(VALUES.mean(axis=0), np.cov(VALUES.T), NAMES),
    W,
    Requirement(LIMIT, 0.05),
    RecoveryTime(0, 1),
    60,
)
QUERY = replace(MODEL_QUERY, recover="guard", grid=(0, 10, 20))


def log_of(place, values=VALUES):
    return SensorLog.write(place / "log", values, NAMES)


def streamed(query, log, directory, failing, restart=10**6, after=120):
    """All batches, those from a window on failing by chance, or at the steps in `failing`."""
    operator, read, rng = prepare(query, log, directory), bare_read(log), np.random.default_rng(3)
    batch = 0
    while operator.checkpoint.position < log.steps:
        position = operator.checkpoint.position
        chosen = position in failing if isinstance(failing, set) else rng.random() < failing
        if position >= after * W and chosen:
            operator.store.begin(batch, position, "crashed")
        operator.process(batch, read)
        batch += 1
        if batch % restart == 0:
            operator = prepare(query, log, directory)
    return operator


def errors(results):
    return {(r.start, r.key): abs(r.value - MEANS[r.start // W, int(r.key[1])]) for r in results}


def test_estimates_are_within_epsilon_and_audited_and_the_rest_is_exact(tmp_path):
    operator = streamed(QUERY, log_of(tmp_path), tmp_path / "s", failing=0.4)
    results, records = operator.store.results(), operator.store.records()
    off, guessed = errors(results), {(r.start, r.key) for r in results if r.half_width > 0}
    assert len(results) == 260 * N and len(guessed) > 100
    assert max(off[cell] for cell in off if cell not in guessed) < 1e-12
    wrong = sum(off[cell] > LIMIT for cell in guessed)
    assert wrong < 0.05 * len(guessed)
    audit = operator.close()
    assert (audit.estimates, audit.wrong) == (len(guessed), wrong)
    assert wrong <= audit.bound < 0.05 * len(guessed) + 40
    assert prepare(QUERY, operator.log, tmp_path / "s").audited == audit
    recovered = [r for r in records if r.recovered]
    assert len(recovered) > 30
    assert all(r.sensors * (r.stop - r.start) <= 60 for r in recovered)
    assert min(r.sensors for r in recovered) < N


def test_processes_that_come_and_go_leave_the_same(tmp_path):
    log = log_of(tmp_path, VALUES[: 80 * W])
    whole = streamed(QUERY, log, tmp_path / "a", failing=0.4, after=50)
    parts = streamed(QUERY, log, tmp_path / "b", failing=0.4, after=50, restart=1)
    assert whole.close().estimates > 10
    assert parts.store.results() == whole.store.results()
    assert parts.close() == whole.close()
    np.testing.assert_array_equal(parts.guard.outcomes, whole.guard.outcomes)


def test_failures_that_come_with_the_data_are_seen_by_the_audit_and_stopped(tmp_path):
    """The guard never sees what was lost; only the log shows that those windows differ."""
    values, faulty = VALUES.copy(), {window * W for window in range(120, 260, 3)}
    for start in faulty:
        values[start : start + W, 4] += 10
    query = replace(QUERY, t_sla_ms=150)  # a window is one interval
    operator = streamed(query, log_of(tmp_path, values), tmp_path / "s", failing=faulty)
    guessed = [r.start for r in operator.store.results() if r.half_width and r.key == "s4"]
    assert set(guessed) < faulty
    assert 3 <= len(guessed) <= 8
    assert operator.close().wrong >= 3
    others = [r.start for r in operator.store.results() if r.half_width and r.key == "s3"]
    assert max(others) > max(guessed)


def test_the_audit_weighs_an_estimate_by_its_share_of_the_window(tmp_path):
    """ε is of the window's mean: what is off by 1.8 ε over its last third is off by less."""
    values, faulty = VALUES.copy(), {window * W + 20 for window in range(200, 240)}
    for start in faulty:
        values[start : start + 10, 4] += 1.8 * LIMIT
    query = replace(QUERY, t_sla_ms=50)  # with a checkpoint at 20
    operator = streamed(query, log_of(tmp_path, values), tmp_path / "s", failing=faulty)
    truth = values.reshape(-1, W, N).mean(axis=1)
    guessed = [r for r in operator.store.results() if r.half_width > 0]
    off = [abs(r.value - truth[r.start // W, int(r.key[1])]) for r in guessed]
    assert sum(one > LIMIT / 3 for one in off) > 10 and max(off) <= LIMIT
    audit = operator.close()
    assert (audit.estimates, audit.wrong) == (len(guessed), 0)


def test_a_batch_that_fails_leaves_nothing_behind(tmp_path):
    log = log_of(tmp_path, VALUES[: 20 * W])
    whole = streamed(QUERY, log, tmp_path / "a", failing=0)
    operator, read, faulty = prepare(QUERY, log, tmp_path / "b"), bare_read(log), set()

    def full(point, batch):
        if point == "estimated" and batch not in faulty:
            faulty.add(batch)
            raise OSError("disk full")

    operator.passes = full
    for batch in range(20 * 3):
        if operator.checkpoint.position == log.steps:
            break
        with pytest.raises(OSError, match="disk full"):
            operator.process(batch, read)
        operator.process(batch, read)
    assert operator.store.results() == whole.store.results()
    assert operator.guard.to_bytes() == whole.guard.to_bytes()


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_sample_that_is_no_measurement_does_not_end_the_stream(tmp_path):
    values, faulty = VALUES[: 60 * W].copy(), {window * W for window in range(48, 60)}
    values[45 * W + 2, 1] = 1e200
    values[50 * W : 50 * W + 2, 1] = -1.7e308  # whose sum is infinite
    log = log_of(tmp_path, values)
    query = replace(QUERY, t_sla_ms=150)  # a window is one interval
    operator = streamed(query, log, tmp_path / "s", failing=faulty, after=0)
    results = {(r.start // W, r.key): r for r in operator.store.results()}
    assert results[45, "s1"].value == pytest.approx(1e200 / W)
    guessed = [cell for cell, result in results.items() if result.half_width > 0]
    assert (50, "s1") in guessed
    assert operator.close().estimates == len(guessed)  # an infinite truth is one, too
    assert max(window for window, _ in guessed) > 55


def test_a_stream_that_was_closed_and_goes_on_keeps_t_sla(tmp_path):
    """The audit at the end changes the next window's plan, not only the sensors that are read."""
    values, rng = VALUES[: 60 * W].copy(), np.random.default_rng(2)
    values[45 * W :, 4] += np.repeat(10 * rng.normal(size=15), W)
    operator = prepare(replace(QUERY, t_sla_ms=50), log_of(tmp_path, values), tmp_path / "s")
    for batch in range(200):
        position = operator.checkpoint.position
        if position == len(values):
            break
        if position >= 45 * W and position % W == 0:
            operator.close()
            operator.store.begin(batch, position, "crashed")
        operator.process(batch, bare_read(operator.log))
    recovered = [r for r in operator.store.records() if r.recovered]
    assert len({r.sensors for r in recovered}) > 1  # an account was used up meanwhile
    assert all(r.sensors * (r.stop - r.start) <= 50 for r in recovered)
    again, audited = prepare(operator.query, operator.log, tmp_path / "s"), operator.close()
    assert again.close() == audited == operator.close()


def test_the_plan_after_the_last_audit_is_stored_with_its_accounts(tmp_path, monkeypatch):
    """It is one transaction: a crash between two would lose the second."""
    values = VALUES[: 60 * W].copy()
    faulty = {window * W for window in range(45, 60)}
    operator = streamed(QUERY, log_of(tmp_path, values), tmp_path / "s", failing=faulty, after=0)
    transaction, left = state.transaction, iter([True])

    def crashes(*given, **named):
        next(left)  # StopIteration where it is called once more
        return transaction(*given, **named)

    monkeypatch.setattr(state, "transaction", crashes)
    audited = operator.close()
    monkeypatch.undo()
    again = prepare(QUERY, operator.log, tmp_path / "s")
    assert again.audited == audited and audited.estimates > 0 and not again.estimates.open


def test_a_sensor_that_loses_its_correlation_is_read_and_planned_for(tmp_path):
    values = VALUES.copy()
    values[160 * W :, 4] = 5 * np.random.default_rng(1).normal(size=len(values) - 160 * W)
    query = replace(QUERY, t_sla_ms=50)
    operator = streamed(query, log_of(tmp_path, values), tmp_path / "s", failing=0.3)
    estimated = [r.start // W for r in operator.store.results() if r.half_width and r.key == "s4"]
    assert any(120 <= window < 160 for window in estimated)
    assert max(estimated) < 200
    assert 4 in operator.guard.replay[0]
    records = operator.store.records()
    assert {r.stop - r.start for r in records} == {10, 20, 30}  # the further the less is read
    assert all(r.sensors * (r.stop - r.start) <= 50 for r in records if r.recovered)


def test_sums_and_gaps(tmp_path):
    values = VALUES.copy()
    values[np.random.default_rng(5).random(values.shape) < 0.02] = np.nan
    sums = replace(QUERY, query="sum", requirement=Requirement(LIMIT * W, 0.05))
    operator = streamed(sums, log_of(tmp_path, values), tmp_path / "s", failing=0.4)
    for result in operator.store.results():
        samples = values[result.start : result.stop, int(result.key[1])]
        if not result.half_width:
            assert result.value == pytest.approx(np.nansum(samples))
            assert result.samples == np.isfinite(samples).sum()
    guessed = [r for r in operator.store.results() if r.half_width]
    off = [abs(r.value - W * MEANS[r.start // W, int(r.key[1])]) for r in guessed]
    assert len(off) > 100 and np.mean(np.array(off) <= LIMIT * W) >= 0.95


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"t_sla_ms": 49}, "t_sla_ms must be at least 50 to replay all 5 sensors over the grid's"),
        ({"recover": "luck"}, "recover must be one of model, guard, got 'luck'"),
        ({"grid": (5, 10)}, r"grid must hold rising steps from 0 .* got \(5, 10\) and 'guard'"),
        ({"grid": (0, 10, 10)}, "grid must hold rising steps from 0"),
        ({"grid": (0, 30)}, "grid must hold rising steps from 0 to below the window"),
        ({"grid": ()}, r"grid must hold .* got \(\) and 'guard'"),
        ({"recover": "model"}, r"be empty with recover='model', got \(0, 10, 20\)"),
    ],
)
def test_what_no_guard_could_keep_is_refused(tmp_path, change, message):
    log = log_of(tmp_path)
    with pytest.raises(ValueError, match=message):
        prepare(replace(QUERY, **change), log, tmp_path / "s")


def test_in_one_process_it_is_the_same(tmp_path):
    log = log_of(tmp_path, VALUES[: 60 * W])
    done = replay_in_process(QUERY, log, tmp_path / "a")
    assert done.audited.estimates == 0
    assert done.results == streamed(QUERY, log, tmp_path / "b", failing=0).store.results()
    assert replay_in_process(MODEL_QUERY, log, tmp_path / "c").audited is None


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.skipif(
    os.environ.get("AFT_TRIALS") != "full", reason="starts Spark several times: full trials"
)
def test_a_driver_killed_on_spark_is_recovered_as_certified(spark, tmp_path):
    query = replace(QUERY, grid=(0, 15), t_sla_ms=80)
    log = log_of(tmp_path, VALUES[: 44 * W])
    write_task(tmp_path / "s", query, log)
    killed_driver(tmp_path / "s", "spark", Fault("kill", "driver", 41, "replayed"))
    done = replay_stream(spark, query, log, tmp_path / "s")
    (failed,) = [r for r in done.records if r.recovered]
    guessed = [r for r in done.results if r.half_width > 0]
    assert failed.sensors == N - len(guessed) < N
    assert {r.start for r in guessed} == {failed.start - failed.start % W}
    off = errors(done.results)
    assert done.audited.estimates == len(guessed)
    assert done.audited.wrong == sum(off[r.start, r.key] > LIMIT for r in guessed)
    assert max(off[r.start, r.key] for r in done.results if not r.half_width) < 1e-12
    undisturbed = replay_in_process(query, log, tmp_path / "t")
    exact = {(r.start, r.key): r.value for r in undisturbed.results}
    assert all(exact[r.start, r.key] == r.value for r in done.results if not r.half_width)
