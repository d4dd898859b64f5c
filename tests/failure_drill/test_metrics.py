"""Scores of emitted values, and recovery metrics: by hand, and by a queue that is followed."""

import numpy as np
import pandas as pd
import pytest

from aftlib.failure_drill.metrics import (
    LOAD,
    folder_bytes,
    latencies,
    overhead,
    recovery_metrics,
    score_emitted,
)


def whole(small):
    """Return every due value, correct and once."""
    window, sensor = (places.ravel() for places in np.indices(small.truth.shape))
    value = small.truth.ravel().copy()
    return pd.DataFrame({"window": window, "sensor": sensor, "value": value, "estimated": False})


def score(small, emitted):
    return score_emitted(small, emitted, np.random.default_rng(1))


def test_a_perfect_run_has_no_harm(small):
    tally = score(small, whole(small))
    assert (tally.due, tally.lost, tally.doubled, tally.estimated) == (720, 0, 0, 0)
    assert tally.wrong == 0 and np.isnan(tally.within) and tally.largest_error == 0


def test_each_kind_of_harm_is_counted(small):
    emitted, epsilon = whole(small), small.requirement.epsilon
    emitted.loc[3, "value"] += 0.01  # wrong, and not marked as an estimate
    emitted.loc[[20, 40], "estimated"] = True
    emitted.loc[20, "value"] += 0.5 * epsilon
    emitted.loc[40, "value"] -= 2 * epsilon
    tally = score(small, pd.concat([emitted.drop(index=[5, 6, 7]), emitted.loc[[9, 9]]]))
    assert (tally.lost, tally.doubled, tally.estimated, tally.wrong) == (3, 1, 2, 1)
    assert tally.within == 0.5 and (tally.share_low, tally.share_high) == (0.0, 1.0)
    assert tally.largest_error == pytest.approx(2)


def test_windows_whose_estimates_are_all_within_have_the_exact_interval(small):
    emitted = whole(small)
    emitted.loc[[20, 40, 41], "estimated"] = True  # 12 sensors per window: two windows
    tally = score(small, emitted)
    assert (tally.estimated, tally.estimated_windows, tally.within) == (3, 2, 1.0)
    assert (tally.share_low, tally.share_high) == (pytest.approx(0.025**0.5), 1.0)


def test_a_missing_value_is_wrong(small):
    emitted = whole(small)
    emitted.loc[3, "value"] = np.nan
    emitted.loc[20, ["value", "estimated"]] = np.nan, True
    tally = score(small, emitted)
    assert (tally.wrong, tally.within) == (1, 0.0)


def test_bytes_of_files_and_folders(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"12345")
    (tmp_path / "y").write_bytes(b"12")
    assert folder_bytes([tmp_path / "a", tmp_path / "y"]) == 7
    vanished = [(str(tmp_path / "a"), [], ["x", "gone"])]
    monkeypatch.setattr("os.walk", lambda path: vanished)
    assert folder_bytes([tmp_path / "a"]) == 5


def follow_queue(service, every):
    """Compute the latencies by following a server's clock, the slow and obvious way."""
    delays, free = [], 0.0
    for i, needed in enumerate(service):
        complete = (i + 1) * every
        begin = max(free, complete)
        free = begin + needed
        delays.append(free - complete)
    return delays


def test_latency_is_a_queues():
    service = np.random.default_rng(2).exponential(1, 200)
    np.testing.assert_allclose(latencies(service, 1.2), follow_queue(service, 1.2))


def metrics(slow, events, batches=20, second=1.0):
    """Compute the metrics of micro-batches of 1 s each, except the slow ones of 4 s."""
    service = np.full(batches, second)
    service[slow] = 4.0 * second
    progress = [(i * 10, float(at)) for i, at in enumerate([0, *np.cumsum(service)])]
    return recovery_metrics(progress, events).columns


def test_a_failure_and_its_backlog():
    columns, every = metrics([8], [(8, 8)]), 1 / LOAD  # input comes every 1 / LOAD s
    assert columns["worst"] == pytest.approx(4)  # the normal latency is 1 s
    # backlog: latencies 4, 5 − T, 6 − 2T, … until it is within a tenth of 1
    late = [4 + k - k * every for k in range(20)]
    normal = next(k for k, latency in enumerate(late) if latency <= 1.1)
    done = normal * every + max(late[normal], 1)
    assert columns["latency_s"] == pytest.approx(done)
    assert columns["throughput_s"] == pytest.approx(every + late[1])
    assert columns["unsteady"] == 0


def test_all_durations_grow_with_those_of_the_micro_batches():
    once, twice = metrics([8], [(8, 8)]), metrics([8], [(8, 8)], second=2.0)
    for name in ("latency_s", "throughput_s"):
        assert twice[name] == pytest.approx(2 * once[name])
    assert (twice["worst"], twice["unsteady"]) == (once["worst"], 0)


def test_latency_is_normal_again_after_the_last_of_an_event_only():
    """The first of the two failed micro-batches was quick; the second was not."""
    both, alone, every = metrics([9], [(8, 9)]), metrics([9], [(9, 9)]), 1 / LOAD
    assert both["latency_s"] == pytest.approx(every + alone["latency_s"])
    assert both["throughput_s"] == pytest.approx(every + alone["throughput_s"])
    assert both["worst"] == pytest.approx(4) and both["unsteady"] == 0


def test_a_later_slow_micro_batch_is_unsteady():
    assert metrics([8, 16], [(8, 8)])["unsteady"] > 0


def test_an_event_too_early_is_refused():
    with pytest.raises(ValueError, match="events must begin after 4 micro-batches, got .* 3"):
        metrics([], [(3, 3)], 10)


def test_overhead_is_the_mean_ratio_of_pairs():
    base = np.array([1.0, 2.0, 1.5, 3.0])
    cost = overhead(1.2 * base, base)  # turns may differ by anything
    assert [*cost.values()] == pytest.approx([0.2, 0.2, 0.2])
    cost = overhead(np.array([1.1, 2.6, 1.8, 3.3]), base)
    assert cost["overhead_low"] < cost["overhead"] < cost["overhead_high"]
    assert cost["overhead"] == pytest.approx((1.1 * 1.3 * 1.2 * 1.1) ** 0.25 - 1)
