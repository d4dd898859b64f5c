"""How long after a failure all is normal again, from how far a stream had come by when.

The measures are those of Vogel et al., "A Comprehensive Benchmarking Analysis of Fault Recovery in
Stream Processing Frameworks" (DEBS 2024): time until latency and throughput are normal again,
latency meanwhile, and whether it stays so. There the input comes at a constant rate. Here it is
replayed as fast as it goes, so the constant rate is put in afterwards: by Lindley's recursion, with
each micro-batch's measured time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LOAD = 0.7
"""Of what the stream can bear while nothing fails, so much comes in."""
WARM = 2
"""Micro-batches that are not counted as normal: what is slow the first time."""
NORMAL = 1.1
"""Of the longest undisturbed latency, and of the longest undisturbed time, what is normal still."""


@dataclass(frozen=True)
class Pace:
    """Times of the micro-batches, shape (batches,), and what followed the struck ones, (events,).

    `latency_s` is from when the last input of a micro-batch has come to when its results are out.
    """

    service_s: np.ndarray
    latency_s: np.ndarray
    normal_s: float  # median latency while nothing failed
    latency_again_s: np.ndarray  # from the struck micro-batch's input to a normal latency
    throughput_again_s: np.ndarray  # likewise, to a normal rate
    worst_s: np.ndarray  # the longest latency meanwhile
    unsteady: int  # of the undisturbed micro-batches afterwards, those not normal


def latencies(service_s: np.ndarray, every_s: float) -> np.ndarray:
    """Lindley's recursion: micro-batch i is complete at (i + 1)·T and waits for those before it.

    With completion C_i = max((i + 1)·T, C_{i−1}) + S_i, latency is C_i − (i + 1)·T.
    """
    found, done = np.empty(len(service_s)), 0.0
    for i, service in enumerate(service_s):
        done = max((i + 1) * every_s, done) + service
        found[i] = done - (i + 1) * every_s
    return found


def pace(progress: Sequence[tuple[int, float]], events: Sequence[tuple[int, int]]) -> Pace:
    """What the times of a stream tell.

    `progress` is the step and the second at which each micro-batch was done, beginning with step 0;
    `events` are the numbers of the first and the last micro-batch that each event struck, in order.
    ValueError when fewer than `WARM` + 2 micro-batches were done before the first.
    """
    service = np.diff([at for _, at in progress])
    calm = service[WARM : events[0][0]]
    if len(calm) < 2:
        raise ValueError(
            f"events must begin after {WARM + 2} micro-batches, got one in number {events[0][0]}: "
            "let more pass before the first"
        )
    every = float(np.median(calm)) / LOAD
    latency = latencies(service, every)
    usual = latency[WARM : WARM + len(calm)]
    bound, most = NORMAL * usual.max(), NORMAL * calm.max()
    again, rate, worst, unsteady = [], [], [], 0
    ends = [*(first for first, _ in events[1:]), len(service)]
    for (first, last), until in zip(events, ends, strict=True):
        fine = [i for i in range(last, until) if latency[i] <= bound]
        quick = [i for i in range(last, until) if service[i] <= most]
        again.append(_passed(first, fine[0] if fine else until - 1, latency, every))
        rate.append(_passed(first, quick[0] if quick else until - 1, latency, every))
        worst.append(latency[first:until].max())
        unsteady += sum(latency[i] > bound for i in range(fine[0], until)) if fine else 0
    return Pace(
        service, latency, float(np.median(usual)),
        np.array(again), np.array(rate), np.array(worst), unsteady,
    )  # fmt: skip


def _passed(first: int, last: int, latency: np.ndarray, every_s: float) -> float:
    """Seconds from when the input of one micro-batch was complete to when the last one was done."""
    return float((last - first) * every_s + latency[last])


def overhead(own_s: np.ndarray, plain_s: np.ndarray, rng: np.random.Generator) -> tuple[float, ...]:
    """By how much medians of times differ, and its interval by resampling: share, low, high."""
    share = np.median(own_s) / np.median(plain_s) - 1
    drawn = [
        np.median(own_s[rng.integers(0, len(own_s), len(own_s))])
        / np.median(plain_s[rng.integers(0, len(plain_s), len(plain_s))])
        - 1
        for _ in range(1000)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(share), float(low), float(high)
