"""When latency and throughput are normal again: by hand, and by a queue that is followed."""

import numpy as np
import pytest

from aftlib.failure_drill.pace import LOAD, latencies, overhead, pace


def queued(service, every):
    """The slow, obvious twin: a server that looks at a clock."""
    found, free = [], 0.0
    for i, needed in enumerate(service):
        complete = (i + 1) * every
        begin = max(free, complete)
        free = begin + needed
        found.append(free - complete)
    return found


def test_latency_is_a_queues():
    service = np.random.default_rng(2).exponential(1, 200)
    np.testing.assert_allclose(latencies(service, 1.2), queued(service, 1.2))


def progress(service):
    return [(i * 10, float(at)) for i, at in enumerate([0, *np.cumsum(service)])]


def test_a_failure_and_its_backlog():
    service = np.ones(20)
    service[8] = 4.0  # of a second each; input comes every 1 / LOAD s
    found, every = pace(progress(service), [(8, 8)]), 1 / LOAD
    assert found.normal_s == pytest.approx(1)
    assert found.worst_s == pytest.approx([4])
    # backlog: latencies 4, 5 − T, 6 − 2T, … until it is within a tenth of 1
    late = [4 + k - k * every for k in range(20)]
    normal = next(k for k, latency in enumerate(late) if latency <= 1.1)
    done = normal * every + max(late[normal], 1)
    assert found.latency_again_s == pytest.approx([done])
    assert found.throughput_again_s == pytest.approx([every + late[1]])
    assert found.unsteady == 0


def test_latency_is_normal_again_after_the_last_of_an_event_only():
    """The first of the two struck micro-batches was quick; the second was not."""
    service = np.ones(20)
    service[9] = 4.0
    found, every = pace(progress(service), [(8, 9)]), 1 / LOAD
    alone = pace(progress(service), [(9, 9)])
    assert found.latency_again_s == pytest.approx(every + alone.latency_again_s)
    assert found.throughput_again_s == pytest.approx(every + alone.throughput_again_s)
    assert found.worst_s == pytest.approx([4]) and found.unsteady == 0


def test_what_is_slow_again_later_is_unsteady():
    service = np.ones(20)
    service[[8, 16]] = 4.0
    assert pace(progress(service), [(8, 8)]).unsteady > 0


def test_a_strike_too_early_is_refused():
    with pytest.raises(ValueError, match="events must begin after 4 micro-batches, got .* 3"):
        pace(progress(np.ones(10)), [(3, 3)])


def test_overhead_is_a_ratio_of_medians():
    rng = np.random.default_rng(1)
    plain = rng.normal(1, 0.01, 50)
    share, low, high = overhead(1.2 * plain, plain, rng)
    assert share == pytest.approx(0.2)
    assert low <= 0.2 <= high and high - low < 0.05
