"""Aggregates of sensors over some steps: read, or estimated step by step from other sensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.linalg import solve_triangular

from aftlib.core.gaussian import GaussianModel
from aftlib.core.sensorlog import ROW_GROUP, LogReader, SensorLog


def interval_sums(
    log: SensorLog | LogReader, keys: Sequence[int], start: int, stop: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sum and number of each sensor's finite samples in the steps [start, stop).

    Samples are added up by row groups, so that the bits do not depend on earlier reads.
    """
    sums, counts = np.zeros(len(keys)), np.zeros(len(keys), dtype=np.int64)
    at = start
    for block in log.blocks(keys, start, stop) if len(keys) else ():
        for values in np.split(block, range(-at % ROW_GROUP, len(block), ROW_GROUP)):
            part = np.add.reduce(values, initial=0.0)
            if np.isfinite(part).all():  # then all samples are finite
                counts += len(values)
            else:
                present = np.isfinite(values)
                part = np.where(present, values, 0.0).sum(axis=0)
                counts += present.sum(axis=0)
            sums = sums + part
        at += len(block)
    return sums, counts


def estimate_with_gaps(
    model: GaussianModel, sensors: Sequence[int], values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate all n sensors' sums over some steps from `sensors`; return sums and error variances.

    `values` has shape (steps, len(sensors)), NaN or infinite where a sample is missing. A missing
    sample is estimated as if its sensor were not read. Steps at which the same sensors P are
    present are estimated together from P: Σ_steps μ_Y + Σ_YP Σ_PP⁻¹ (x_P − μ_P). The variances
    Σ_{Y|P} of steps add up.
    """
    prior = model.covariance.diagonal()
    sums, variance = len(values) * model.mean, np.zeros(model.size)
    for at, seen, samples in _by_presence(sensors, values):
        deviation = (samples - model.mean[seen]).sum(axis=0)
        factor = np.linalg.cholesky(model.covariance[np.ix_(seen, seen)])
        right = np.column_stack([model.covariance[seen], deviation])
        right = solve_triangular(factor, right, lower=True, check_finite=False)
        explained = (right[:, :-1] ** 2).sum(axis=0)
        estimate = right[:, :-1].T @ right[:, -1]
        explained[seen], estimate[seen] = prior[seen], deviation
        sums += estimate
        variance += len(at) * np.maximum(prior - explained, 0)
    return sums, variance


def _by_presence(
    sensors: Sequence[int], values: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the steps at which the same sensors have samples, these sensors, and their samples."""
    present = np.isfinite(values)
    patterns, number = np.unique(present, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        at = np.flatnonzero(number.ravel() == i)
        yield at, np.array(sensors, dtype=int)[pattern], values[at][:, pattern]
