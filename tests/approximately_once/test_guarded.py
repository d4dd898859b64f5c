"""With a guard: certified sensors are estimated, all else is exact, after crashes and restarts."""

import sqlite3

import numpy as np
import pandas as pd
import pytest

from aftlib.approximately_once.assignment import assess
from aftlib.approximately_once.coordinator import GuardedCoordinator
from aftlib.approximately_once.pipeline import Query, recover_stream, staff
from aftlib.approximately_once.sink import Outage
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows
from aftlib.guard import Guard
from aftlib.guard.accounts import Accounts
from tests.approximately_once.processes import micro_batch

WINDOWS, REQUIREMENT, EVERY, BATCHES = Windows(5, 5), Requirement(0.4, 0.05), 500, 7
OUTAGES = [Outage(0, 2012, 2081), Outage(1, 2950, 3031)]
NAMES = tuple("abcdef")
COLUMNS = ["start", "key", "value", "half_width", "estimated", "samples"]


@pytest.fixture(scope="module")
def query(tmp_path_factory):
    """A query over 700 windows of correlated sensors, the last two of them weakly correlated."""
    rng, steps = np.random.default_rng(5), EVERY * BATCHES
    common = np.zeros(steps)
    for step in range(1, steps):
        common[step] = 0.98 * common[step - 1] + 0.2 * rng.normal()
    values = common[:, None] + np.array([0.2, 0.2, 0.5, 0.5, 1.1, 1.1]) * rng.normal(
        size=(steps, 6)
    )
    log = SensorLog.write(tmp_path_factory.mktemp("log") / "log", values, NAMES)
    model = GaussianModel(np.zeros(6), np.eye(6) + 0.5, NAMES)
    assignment = assess(model, [(0, 2, 4), (1, 3, 5)], REQUIREMENT)
    return Query(log, WINDOWS, model, assignment, REQUIREMENT, EVERY, recover="guard")


def rows_of(query):
    due = WINDOWS.ending_in(0, query.steps)
    return WINDOWS.aggregate(query.log.read(None, 0, query.steps), 0, due)[0]


def twin(query, outages):
    """Slow twin without streams: it reads the certified sensors from the guard before each loss."""
    guard, account = Guard(query.assignment.workers, 0.4, 0.05), Accounts(6, 0.05)
    missing, certified = np.zeros(6, int), np.zeros((guard.horizons, 6), bool)
    owner, cells, waiting, counts = query.assignment.worker_of, [], [], np.zeros(2, int)

    def audit():
        for decisions, wrong in waiting:
            account.update(decisions, wrong)
            counts[:] += (decisions == 2).sum(), int(wrong[decisions == 2].sum())
        waiting.clear()

    for t, row in enumerate(rows_of(query)):
        if t * 5 % EVERY == 0:
            audit()
        crashed = {o.worker for o in outages if t * 5 < o.recovery and t * 5 + 5 > o.failure}
        lost, estimated = np.isin(owner, [*crashed]), np.zeros(6, bool)
        if crashed:
            within = np.minimum(missing, guard.horizons - 1)
            proposed = certified[within, range(6)] & (missing < guard.horizons)
            decisions = account.certify(lost & proposed)
            estimated = decisions == 2
        history = guard.update(np.where(estimated, np.nan, row))
        if crashed:
            off = np.abs(history.estimate[0] - row) > 0.4
            waiting.append((decisions, np.where(decisions > 0, off, np.nan)))
        missing = np.where(estimated, missing + 1, 0)
        certified = np.where(estimated, certified, guard.recoverable)
        value, half = (np.where(estimated, history.estimate, row), history.half_width)
        for k in range(6):
            width = half[0, k] if estimated[k] else np.nan
            samples = 0 if estimated[k] else 5
            cells.append((t * 5, NAMES[k], value[0, k], width, estimated[k], samples))
    audit()
    return pd.DataFrame(cells, columns=COLUMNS), counts.tolist()


def streamed(query, directory, outages=OUTAGES):
    """All micro-batches one after another by the same driver."""
    job = staff(query, directory, outages)
    for batch in range(BATCHES):
        sink = micro_batch(job, batch * EVERY, (batch + 1) * EVERY)
    return sink.windows()[COLUMNS], job[1]


def test_a_stream_is_what_the_guard_says_of_the_same_windows(query, tmp_path):
    results, coordinator = streamed(query, tmp_path)
    expected, (audited, wrong) = twin(query, OUTAGES)
    pd.testing.assert_frame_equal(results, expected, check_exact=True)
    before_the_last = (results["estimated"] & (results["start"] < EVERY * (BATCHES - 1))).sum()
    assert coordinator.coordinator.audited.estimates == before_the_last > 20
    audit = coordinator.close()
    assert (audit.estimates, audit.wrong) == (audited, wrong)
    assert audited == results["estimated"].sum() > 20 and wrong <= audit.bound
    assert {o.worker for o in coordinator.sink.outages()} == {0, 1}

    # per sensor, not per worker; and what was read again may be estimated again
    lost = results[(results["start"] >= 2010) & (results["start"] <= 2080)]
    mine = lost[lost["key"].isin(["a", "c", "e"])].pivot(index="start", columns="key")["estimated"]
    assert mine["a"].sum() > mine["e"].sum()
    turns = mine["a"].astype(int).diff().dropna()
    assert (turns == -1).any() and (turns == 1).any()


def test_so_is_a_stream_on_spark(spark, query, tmp_path):
    done = recover_stream(spark, query, tmp_path, OUTAGES)
    expected, counts = twin(query, OUTAGES)
    pd.testing.assert_frame_equal(done.windows[COLUMNS], expected, check_exact=True)
    assert [done.audit.estimates, done.audit.wrong] == counts
    assert (done.outages[0].failure, done.outages[0].recovery) == (2012, 2081)


def test_what_is_not_certified_is_read_and_counted(query, tmp_path):
    results, coordinator = streamed(query, tmp_path)
    splits = [s for s in coordinator.splits if s["start"] == 2000]
    lost = results[(results["start"] >= 2010) & (results["start"] <= 2080)]
    read = lost[lost["key"].isin(["a", "c", "e"]) & ~lost["estimated"]]
    assert [s["again"] for s in splits] == [5 * len(read), 0]


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("batch", [4, 6])
def test_a_killed_driver_goes_on_with_what_the_guard_knew(query, tmp_path, batch, written):
    """Before or after the sink's write; in the re-run no worker crashes, or another one."""
    for number in range(BATCHES):
        span = number * EVERY, (number + 1) * EVERY
        job = staff(query, tmp_path, OUTAGES)  # a driver that knows what the sink holds
        if number == batch and written:
            before = micro_batch(job, *span).windows()
            job = staff(query, tmp_path, [*OUTAGES, Outage(1, number * EVERY + 100, span[1])])
        elif number == batch:
            job[1].sink.write = lambda *_: 1 / 0
            with pytest.raises(ZeroDivisionError):
                micro_batch(job, *span)
            (tmp_path / "faults").rename(tmp_path / "old")  # so the faults are injected again
            job = staff(query, tmp_path, OUTAGES)
        sink = micro_batch(job, *span)
        if number == batch and written:
            pd.testing.assert_frame_equal(sink.windows(), before)
    expected, counts = twin(query, OUTAGES)
    pd.testing.assert_frame_equal(sink.windows()[COLUMNS], expected, check_exact=True)
    job[1].close()
    audit = staff(query, tmp_path)[1].close()
    assert [audit.estimates, audit.wrong] == counts


def test_windows_and_what_the_guard_learned_are_written_together(query, tmp_path):
    job = staff(query, tmp_path)
    before = micro_batch(job, 0, EVERY).windows()
    known = job[1].sink.coordinator()
    with sqlite3.connect(job[1].sink.path) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON coordinator "
            "BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    with pytest.raises(Exception, match="full"):
        micro_batch(job, EVERY, 2 * EVERY)
    pd.testing.assert_frame_equal(job[1].sink.windows(), before)
    assert job[1].sink.coordinator() == known


def test_outages_that_depend_on_the_data_are_detected():
    """Whenever worker 0 is lost its first sensor jumps, which no shadow can see."""
    rng = np.random.default_rng(2)
    model = GaussianModel(np.zeros(4), np.eye(4))
    coordinator = GuardedCoordinator(
        model, assess(model, [(0, 1), (2, 3)], REQUIREMENT), REQUIREMENT
    )
    truth = rng.normal(size=(3000, 1)) + 0.1 * rng.normal(size=(3000, 4))
    faulty = np.arange(3000) % 10 == 9
    faulty[:500] = False
    truth[faulty, 0] += 5.0

    def read(window, keys):
        return truth[window, keys], np.full(len(keys), 5)

    guessed = []
    for window, row in enumerate(truth):
        coordinator.audit(read)
        coordinator.receive(window, 1, row[2:])
        if faulty[window]:
            coordinator.expect(window)
            (lost,) = coordinator.recover(window, read)
            guessed.append(lost.estimated)
        else:
            coordinator.receive(window, 0, row[:2])
        coordinator.settle()
    coordinator.audit(read)
    first, second = np.array(guessed).T
    audit = coordinator.audited
    assert audit.wrong == first.sum() and 0 < first.sum() <= 10
    assert not first[-100:].any()  # its second account is closed
    assert audit.wrong <= audit.bound
    assert audit.estimates == first.sum() + second.sum()


def test_a_gap_among_the_peers_gives_no_guarantee(query, tmp_path):
    values = query.log.read(None, 0, query.steps)
    values[2040:2045, 1] = np.nan  # a whole window of a peer
    log = SensorLog.write(tmp_path / "log", values, NAMES)
    results, _ = streamed(Query(**{**vars(query), "log": log}), tmp_path)
    lost = results[results["start"] == 2040].set_index("key")
    assert not lost["estimated"].any() and np.isnan(lost["value"]["b"])
