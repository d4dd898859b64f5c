"""Small runs of D5's experiments, made once for all tests of the package."""

from __future__ import annotations

import pytest

from aftlib.exponential_histogram.bits import BitStream
from aftlib.exponential_histogram.experiments import costs, errors


@pytest.fixture(scope="session")
def few():
    return errors.few_ones([0.01, 0.1, 0.5], most=200)


@pytest.fixture(scope="session")
def swept(spark):
    return errors.sweep(
        spark, epsilons=[0.02, 0.1], windows=[50, 400], shares=[0.01, 0.5], bursts=[0, 20],
        windows_of_events=20, seed=3,
    )  # fmt: skip


@pytest.fixture(scope="session")
def sizes():
    return costs.sizes([0.01, 0.5], [100, 10_000, 1_000_000])


@pytest.fixture(scope="session")
def long_run():
    return costs.long_run(
        BitStream(0.5, None, 2), events=300_000, window=20_000, epsilon=0.05, chunk=10_000,
        points=10,
    )  # fmt: skip


@pytest.fixture(scope="session")
def rates():
    return costs.rates(1000, 0.1, [1, 1000], seconds=0.01, seed=1)
