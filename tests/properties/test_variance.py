"""Laws of the variance histogram: bulk updates equal single ones, and the bound holds."""

from __future__ import annotations

import numpy as np
import pytest

from aftlib.exponential_histogram import VarianceHistogram


def stream(rng: np.random.Generator, size: int) -> np.ndarray:
    """Noise, plateaus, a walk, few values, fading bursts, wild scales, an outlier that leaves."""
    noise = rng.normal(size=size)
    outlier = np.where(np.arange(size) == size // 3, 1e6, noise)
    kinds = (
        noise,
        np.repeat(rng.normal(size=size // 5 + 1), 5)[:size],
        np.cumsum(noise),
        rng.integers(0, 3, size).astype(float),
        rng.standard_cauchy(size) * np.exp(-np.arange(size) / 200),
        1e6 + np.exp(5 * noise),
        outlier,
    )
    return kinds[int(rng.integers(len(kinds)))]


def check(seed: int, longest: int) -> None:
    rng = np.random.default_rng(seed)
    make = (int(rng.choice([1, 2, 30, 400, 2000])), float(rng.choice([0.05, 0.1, 0.3, 0.6, 0.95])))
    values = stream(rng, int(rng.integers(1, longest)))
    single, bulk = VarianceHistogram(*make), VarianceHistogram(*make)
    start = 0
    while start < values.size:
        part = values[start : start + int(rng.choice([0, 1, 5, 90, 1500, 5000]))]
        bulk.update(part)
        for value in part.tolist():
            single.update(value)
        start += part.size
        if start:
            window = values[max(0, start - make[0]) : start]
            rounding = 1e-12 * np.abs(window).max() ** 2
            truth = window.var()
            assert abs(bulk.estimate() - truth) <= make[1] * truth + rounding
            assert single.estimate() == bulk.estimate()
    again = VarianceHistogram.from_bytes(bulk.to_bytes())
    again.update(values)
    bulk.update(values)
    single.update(values)
    assert single.to_bytes() == bulk.to_bytes() == again.to_bytes()


@pytest.mark.parametrize("block", range(3))
def test_bulk_is_one_by_one_and_the_bound_holds(block: int) -> None:
    for seed in range(30 * block, 30 * block + 30):
        check(seed, 6000)


def tight(rng: np.random.Generator, epsilon: float) -> tuple[int, np.ndarray]:
    """A window and a stream whose oldest bucket misleads as far as the proof of the bound allows.

    A long run leaves the window and a short one stays, both in one bucket that just could merge;
    then values swing about a distant level, which they keep at last.
    """
    before, inside, swings = int(rng.integers(200, 2000)), int(rng.integers(1, 8)), 62
    rest, share = int(rng.integers(50, 2000)), rng.uniform(0.3, 0.8)
    newer = float(swings)  # their spread; that of the window is newer / share. With the two runs
    # they fill the row of 64, so that the next value has the neighbours merged.
    squared = epsilon**2 / (1 + 1.5 * epsilon) * newer * (before + inside) / (before * inside)
    step = np.sqrt(squared) * rng.choice([0.5, 0.9, 0.99, 0.999, 1.01])
    level = np.sqrt(newer * (1 / share - 1) / inside) * rng.choice([-1, 1])
    swing = level + np.where(np.arange(swings) % 2, 1.0, -1.0)
    runs = np.repeat([step, 0.0], [before, inside])
    return inside + swings + rest, np.concatenate((runs, swing, np.full(rest, level)))


@pytest.mark.parametrize("epsilon", [0.05, 0.1, 0.3, 0.6, 0.95])
def test_the_bound_holds_on_adversarial_streams_and_is_nearly_reached(epsilon: float) -> None:
    rng, worst = np.random.default_rng(3), 0.0
    for _ in range(300):
        window, values = tight(rng, epsilon)
        histogram = VarianceHistogram(window, epsilon)
        histogram.update(values)
        worst = max(worst, abs(histogram.estimate() / values[-window:].var() - 1))
    assert 0.9 * epsilon < worst <= epsilon * (1 + 1e-9)
