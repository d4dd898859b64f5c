"""The operator of D2: exact while nothing fails, within its variance after failures."""

import numpy as np
import pytest

from aftlib.checkpoint_planning.operator import Preparation, PreparedReplay, ReplayQuery
from aftlib.checkpoint_planning.pipeline import bare_read, prepare
from aftlib.checkpoint_planning.recovery_time import RecoveryTime
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog

MODEL = block_model(8, 2, 4.0, 3.0, mean=5.0)
WINDOW = 60
QUERY = ReplayQuery(MODEL, WINDOW, Requirement(0.3, 0.05), RecoveryTime(1.0, 0.01), 1.5)


class Died(Exception):
    """Stands for a SIGKILL here; the real ones are in tests/crash."""


def dying(points):
    left = list(points)

    def at(point, batch):
        if (point, batch) in left:
            left.remove((point, batch))
            raise Died

    return at


def stream(query, log, directory, points=()):
    """Process the whole log; each death is followed by a new operator over the same directory."""
    at, read, batch = dying(points), bare_read(log), 0
    directory.mkdir(exist_ok=True)
    operator = prepare(query, log, directory, at)
    while (state := operator.store.restore()) is None or state.position < log.steps:
        try:
            operator.process(batch, read)
            batch += 1
        except Died:
            operator = prepare(query, log, directory, at)
    return operator.store


@pytest.fixture
def log(tmp_path):
    return SensorLog.write(tmp_path / "log", draw(MODEL, 5 * WINDOW, 2), MODEL.names)


def table(store, name):
    found = {(r.start, r.key): getattr(r, name) for r in store.results()}
    return np.array([[found[w, key] for key in MODEL.names] for w in range(0, 5 * WINDOW, WINDOW)])


def truth(log, query="mean"):
    windows = log.read(None, 0, log.steps).reshape(5, WINDOW, 8)
    return windows.mean(axis=1) if query == "mean" else windows.sum(axis=1)


def test_plan_of_these_tests_has_several_intervals():
    sizes = [len(r.sensors) for r in QUERY.first_plan.replay]
    assert len(sizes) >= 3
    assert 0 < sizes[0] < 8


@pytest.mark.parametrize("query", ["mean", "sum"])
def test_undisturbed_stream_is_exact(tmp_path, log, query):
    epsilon = 0.3 * (1 if query == "mean" else WINDOW)
    asked = ReplayQuery(
        MODEL, WINDOW, Requirement(epsilon, 0.05), QUERY.recovery_time, 1.5, query=query
    )
    store = stream(asked, log, tmp_path)
    np.testing.assert_allclose(table(store, "value"), truth(log, query), rtol=1e-12)
    assert (table(store, "half_width") == 0).all()
    assert (table(store, "samples") == WINDOW).all()
    assert not any(r.recovered for r in store.records())


@pytest.mark.parametrize("point", ["begun", "restored", "replayed", "estimated"])
def test_a_death_before_the_commit_is_recovered_partially(tmp_path, log, point):
    store = stream(QUERY, log, tmp_path, [(point, 1)])
    records = store.records()
    assert [r.recovered for r in records].count(True) == 1
    assert records[1].recovered
    assert records[1].sensors == len(QUERY.first_plan.replay[1].sensors) < 8
    assert (table(store, "samples") == WINDOW).all()
    half = table(store, "half_width")
    assert (half[1:] == 0).all()
    estimated = np.setdiff1d(range(8), QUERY.first_plan.replay[1].sensors)
    assert (half[0, estimated] > 0).all()
    assert half.max() <= QUERY.requirement.epsilon
    np.testing.assert_allclose(table(store, "value")[1:], truth(log)[1:], rtol=1e-12)


def test_a_death_after_the_commit_changes_nothing(tmp_path, log):
    store = stream(QUERY, log, tmp_path, [("committed", 1), ("committed", 3)])
    assert not any(r.recovered for r in store.records())
    np.testing.assert_allclose(table(store, "value"), truth(log), rtol=1e-12)


def test_a_recovery_that_dies_is_recovered(tmp_path, log):
    deaths = [("replayed", 1), ("begun", 1), ("estimated", 1), ("restored", 1)]
    store = stream(QUERY, log, tmp_path, deaths)
    assert sum(r.recovered for r in store.records()) == 1
    assert (table(store, "samples") == WINDOW).all()


def test_failures_in_every_interval_keep_the_promise(tmp_path):
    """The worst case of (12) and beyond: each batch dies once; each window is planned anew."""
    off, halves = [], []
    for seed in range(8):
        place = tmp_path / str(seed)
        log = SensorLog.write(place / "log", draw(MODEL, 5 * WINDOW, seed), MODEL.names)
        store = stream(QUERY, log, place, [("replayed", b) for b in range(200)])
        assert all(r.recovered for r in store.records())
        off.append(np.abs(table(store, "value") - truth(log)))
        halves.append(table(store, "half_width"))
    off, halves = np.array(off), np.array(halves)
    assert halves.max() <= QUERY.requirement.epsilon * (1 + 1e-9)
    assert (off <= QUERY.requirement.epsilon).mean() >= 0.95 - 0.04
    # and the half-widths tell the truth: 95 % of the errors lie within them
    inside = (off <= halves)[halves > 0]
    assert abs(inside.mean() - 0.95) < 0.04


def test_completed_sums_are_the_posterior_mean():
    sensors, steps = [1, 6], 10
    gain = MODEL.gain(sensors, [0, 2, 3, 4, 5, 7])
    prepared = PreparedReplay(sensors, gain, MODEL.posterior_variance(sensors))
    sums, counts = prepared.complete(MODEL.mean, np.array([60.0, 45.0]), np.array([10, 10]), steps)
    seen = MODEL.aggregate(steps, "sum").condition({"X2": 60.0, "X7": 45.0})
    np.testing.assert_allclose(sums[[0, 2, 3, 4, 5, 7]], seen.mean)
    np.testing.assert_array_equal(counts, 10)


def test_gaps_are_counted_and_stay_gaps(tmp_path):
    values = draw(MODEL, 5 * WINDOW, 2)
    values[3, 0], values[70, 2], values[:WINDOW, 5] = np.nan, np.inf, np.nan
    log = SensorLog.write(tmp_path / "log", values, MODEL.names)
    store = stream(QUERY, log, tmp_path)
    samples, found = table(store, "samples"), table(store, "value")
    assert samples[0, 0] == samples[1, 2] == WINDOW - 1
    assert samples[0, 5] == 0
    assert np.isnan(found[0, 5])
    assert found[1, 2] == pytest.approx(np.delete(values[WINDOW : 2 * WINDOW, 2], 10).mean())
    again = stream(QUERY, log, tmp_path / "again", [("replayed", b) for b in range(3)])
    samples = table(again, "samples")
    assert (samples[0] <= WINDOW).all()
    assert (samples[1:] == table(store, "samples")[1:]).all()


def test_prepared_sets_that_are_gone_or_damaged_are_refused(tmp_path, log):
    with pytest.raises(Died):
        prepare(QUERY, log, tmp_path, dying([("replayed", 0)])).process(0, bare_read(log))
    operator = prepare(QUERY, log, tmp_path)
    gain = tmp_path / "prepared" / "first" / "0-gain.npy"
    gain.write_bytes(gain.read_bytes()[:50])
    with pytest.raises(
        ValueError, match="directory lacks an intact 0-gain.npy of the plan at step 0"
    ):
        operator.process(0, bare_read(log))
    with pytest.raises(ValueError, match="directory lacks an intact 0-sensors.npy"):
        Preparation(tmp_path / "nowhere").load(0, 0, 0)


def test_state_of_another_plan_or_log_is_refused(tmp_path, log):
    stream(QUERY, log, tmp_path)
    other = ReplayQuery(MODEL, WINDOW, Requirement(0.5, 0.05), QUERY.recovery_time, 1.5)
    with pytest.raises(ValueError, match="path belongs to another stream"):
        prepare(other, log, tmp_path)
    renamed = SensorLog.write(tmp_path / "other", np.zeros((5, 8)), list("abcdefgh"))
    with pytest.raises(ValueError, match=r"log must have the model's 8 keys .*missing \['X1'"):
        prepare(QUERY, renamed, tmp_path)


def test_a_t_sla_that_failures_could_exhaust_is_refused(tmp_path, log):
    tight = ReplayQuery(MODEL, WINDOW, Requirement(0.9, 0.05), RecoveryTime(1.0, 0.1), 1.5)
    with pytest.raises(ValueError, match="t_sla_ms must be at least 1.8, got 1.5"):
        prepare(tight, log, tmp_path)
