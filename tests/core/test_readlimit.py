"""A limit on all readers of a log: the schedule of its grants, and the read counts."""

import fcntl
import multiprocessing

import numpy as np
import pytest

from aftlib.core.readlimit import PAUSE_S, SLICE_S, ReadLimit, ReadMeter
from aftlib.core.sensorlog import LogReader, SensorLog
from tests.refusals import refused

STEPS, SENSORS = 3000, 4
RATE = 1000.0


class Clock:
    """A clock that advances when a reader sleeps."""

    def __init__(self):
        self.now = 50.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def log(tmp_path):
    values = np.random.default_rng(0).normal(size=(STEPS, SENSORS))
    return SensorLog.write(tmp_path / "log", values, ["a", "b", "c", "d"])


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limited(log, clock, monkeypatch):
    """The log, which its readers may read at `RATE` by the clock."""
    meter = ReadMeter(log.path, STEPS, SENSORS, clock, clock.sleep)
    monkeypatch.setattr(SensorLog, "meter", meter)
    meter.set_limit(ReadLimit(RATE))
    return log


def list_grants(clock, blocks):
    """Return the samples and the time of each block."""
    return [(block.size, clock.now) for block in blocks]


@pytest.mark.parametrize("columns", [[0], [0, 1, 2, 3]])
@pytest.mark.parametrize("burst_s", [0.0, 0.002, PAUSE_S])
@pytest.mark.parametrize("rate", [150.0, RATE])
def test_no_span_of_time_gets_more_than_the_rate_the_credit_and_a_slice(
    log, clock, columns, burst_s, rate
):
    meter, grants = ReadMeter(log.path, STEPS, SENSORS, clock, clock.sleep), []
    meter.set_limit(ReadLimit(rate, burst_s=burst_s))
    rng = np.random.default_rng(5)
    for _ in range(60):
        clock.sleep(float(rng.choice([0, 0.5, 0.9, 1.1]) * max(burst_s, SLICE_S)))
        steps = int(rng.integers(1, 30))
        block = np.zeros((steps, len(columns)))
        grants += list_grants(clock, meter.deliver(iter([block]), columns, 0, 1))
    samples, at = np.array(grants).T
    slice_ = max(rate * SLICE_S, len(columns))
    for first in range(len(grants)):
        granted = np.cumsum(samples[first:])
        most = rate * (at[first:] - at[first] + burst_s) + slice_
        assert (granted <= most + 1e-6).all()


def test_one_reader_gets_the_rate(limited, clock):
    grants = list_grants(clock, limited.blocks([0, 2], 0, STEPS))
    reached = np.cumsum([samples for samples, _ in grants])
    at = np.array([when for _, when in grants]) - 50
    np.testing.assert_allclose(at, reached / RATE, atol=1e-9)


def test_live_readers_and_re_readers_share_the_rate(limited, clock):
    live, again = limited.blocks([0, 1], 0, 2048), LogReader(limited).blocks([2], 0, 2048)
    for _ in range(2):
        next(live), next(again)
    assert clock.now - 50 == pytest.approx(3 * 2048 / RATE, abs=1e-9)


def test_the_rate_is_granted_for_work_between_two_reads_but_not_for_a_pause(limited, clock):
    for begin in range(0, 1000, 50):
        limited.read([0], begin, begin + 50)
        clock.now += 0.04  # less than the 50 ms that the samples take
    assert clock.now - 50 == pytest.approx(1000 / RATE + 0.04, abs=1e-9)
    clock.now += PAUSE_S
    began = clock.now
    limited.read([0], 0, 1000)
    assert clock.now - began == pytest.approx(1000 / RATE, abs=1e-9)


def test_the_rate_is_granted_while_the_first_block_is_read(limited, clock):
    def read_slowly():
        clock.now += PAUSE_S / 2
        yield np.zeros((1000, 1))

    clock.now += 9
    began = clock.now
    list(limited.meter.deliver(read_slowly(), [0], 0, 1024))
    assert clock.now - began == pytest.approx(1000 / RATE, abs=1e-9)


@pytest.mark.parametrize(("burst_s", "granted"), [(0.1, 0.065), (0.01, 0.0)])
def test_a_pause_as_long_as_a_start_is_granted_only_within_the_burst(
    limited, clock, burst_s, granted
):
    limited.meter.set_limit(ReadLimit(RATE, burst_s=burst_s))
    clock.now += 0.065
    began = clock.now
    limited.read([0], 0, 1000)
    assert clock.now - began == pytest.approx(1000 / RATE - granted, abs=1e-9)


def test_each_request_waits_its_latency_and_a_new_limit_holds_at_once(limited, clock):
    limited.meter.set_limit(ReadLimit(4 * RATE, request_s=0.3))
    limited.read([0], 0, 400)
    limited.read([0], 400, 800)
    assert clock.now - 50 == pytest.approx(2 * (0.3 + 400 / (4 * RATE)), abs=1e-9)


def test_live_input_may_be_free_where_an_archive_is_slow(limited, clock):
    limited.meter.set_limit(ReadLimit(RATE, request_s=0.3, again_only=True))
    limited.read([0, 1], 0, 1500)
    assert clock.now == 50
    limited.read([0, 2], 1000, 2000)  # 500 of these 2,000 samples were read before
    assert clock.now - 50 == pytest.approx(0.3 + 500 / RATE, abs=1e-9)


def test_repeated_reads_get_no_credit_for_a_start_or_for_live_reads(limited, clock):
    limited.meter.set_limit(ReadLimit(RATE, again_only=True, burst_s=SLICE_S))
    for begin in range(0, 1000, 50):
        limited.read([0], begin, begin + 50)
        clock.now += SLICE_S / 2
        assert limited.meter.usage.last_s == pytest.approx(clock.now - SLICE_S / 2, abs=1e-9)
    clock.now += 0.065  # a replacement starts
    began = clock.now
    limited.read([0], 0, 500)
    assert clock.now - began == pytest.approx(500 / RATE, abs=1e-9)
    assert limited.meter.usage.last_s == pytest.approx(clock.now, abs=1e-9)


def test_one_of_two_concurrent_first_reads_is_a_repeat(limited, clock):
    meter, waits = limited.meter, []
    meter.set_limit(ReadLimit(RATE, again_only=True))

    def read_meanwhile(seconds):
        if not waits and meter.usage.samples:
            other = ReadMeter(limited.path, STEPS, SENSORS, clock, waits.append)
            list(other.deliver(iter([np.zeros((10, 1))]), [0], 0, 1024))

    first = ReadMeter(limited.path, STEPS, SENSORS, clock, read_meanwhile)
    list(first.deliver(iter([np.zeros((10, 1))]), [0], 0, 1024))
    assert max(waits) == pytest.approx(10 / RATE)
    assert meter.samples_again(0, STEPS) == 10


def test_counts_stop_at_the_largest_number(limited, clock):
    limited.meter.set_limit(ReadLimit(RATE, again_only=True))
    counts = np.memmap(limited.path / "read-counts", np.uint16, "r+", shape=(STEPS, SENSORS))
    counts[:10, 0] = 65_535
    for _ in range(2):
        limited.read([0], 0, 10)
    assert limited.meter.counts[:10, 0].tolist() == [65_535] * 10
    assert clock.now - 50 == pytest.approx(2 * 10 / RATE, abs=1e-9)


def test_samples_are_those_of_the_free_log_in_parts_of_a_row_group(log):
    free = log.read([2, 0], 1000, STEPS)
    log.meter.set_limit(ReadLimit())
    blocks = list(log.blocks([2, 0], 1000, STEPS))
    np.testing.assert_array_equal(np.concatenate(blocks), free)
    assert [len(block) for block in blocks] == [24, 1024, STEPS - 2048]


def test_every_read_is_counted(log):
    log.meter.set_limit(ReadLimit(price_per_gb=1e9))
    log.read(None, 0, 10)
    log.read([1, 3], 5, 12)
    usage = log.meter.usage
    assert (usage.requests, usage.samples, usage.price) == (2, 40 + 14, 8 * 54)
    assert log.meter.counts[4:13].tolist() == [
        [1, 1, 1, 1], *[[1, 2, 1, 2]] * 5, *[[0, 1, 0, 1]] * 2, [0, 0, 0, 0],
    ]  # fmt: skip
    assert log.meter.samples_again(0, STEPS) == 10
    assert log.meter.samples_again(6, 8) == 4


def test_a_reader_holds_the_lock_while_it_reserves_samples(log):
    probed = []

    def probe():
        with (log.path / "read-limit").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        probed.append(True)
        return 0.0

    meter = ReadMeter(log.path, STEPS, SENSORS, probe, lambda _: None)
    meter.set_limit(ReadLimit(RATE))
    list(meter.deliver(iter([np.zeros((3, 1))]), [0], 0, 1024))
    assert probed


def read_all(path, worker):
    SensorLog.open(path).read([worker, 3], 0, STEPS)


def test_processes_share_the_bucket_and_lose_no_count(log):
    log.meter.set_limit(ReadLimit(1e7))
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=read_all, args=(log.path, i)) for i in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    usage = log.meter.usage
    assert (usage.requests, usage.samples) == (3, 3 * 2 * STEPS)
    assert np.unique(log.meter.counts, axis=0).tolist() == [[1, 1, 1, 3]]


test_a_limit_that_is_none_is_refused = refused(
    lambda limit: ReadLimit(**limit),
    ({"samples_per_s": 0}, "samples_per_s must be at least 1e-06, got 0; give a higher rate"),
    ({"samples_per_s": float("nan")}, "samples_per_s must be at least 1e-06, got nan"),
    ({"samples_per_s": 1e-320}, "samples_per_s must be at least 1e-06, got 1e-320; give a higher"),
    ({"request_s": -1}, "request_s must be at least 0, got -1"),
    ({"price_per_gb": -1}, "price_per_gb must be at least 0, got -1"),
)


def test_an_empty_log_cannot_be_limited(tmp_path):
    log = SensorLog.write(tmp_path / "log", np.empty((0, 2)), ["a", "b"])
    with pytest.raises(ValueError, match="log must hold samples to be limited, got 0 steps"):
        log.meter.set_limit(ReadLimit(1))
