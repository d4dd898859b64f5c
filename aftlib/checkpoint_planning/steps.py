"""Aggregates of sensors over some steps: read, or estimated step by step from other sensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.linalg import solve_triangular

from aftlib.core.extremes import most_likely_within
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import ROW_GROUP, LogReader, SensorLog
from aftlib.core.windows import AGGREGATES


def interval_sums(
    log: SensorLog | LogReader, keys: Sequence[int], start: int, stop: int, query: str = "mean"
) -> tuple[np.ndarray, np.ndarray]:
    """Sum (or extreme) and number of each sensor's finite samples in the steps [start, stop).

    Samples are added up by row groups, so that the bits do not depend on earlier reads.
    """
    aggregate = AGGREGATES[query]
    sums, counts = np.full(len(keys), aggregate.initial), np.zeros(len(keys), dtype=np.int64)
    at = start
    for block in log.blocks(keys, start, stop) if len(keys) else ():
        for values in np.split(block, range(-at % ROW_GROUP, len(block), ROW_GROUP)):
            part = aggregate.merge.reduce(values, initial=aggregate.initial)
            if aggregate.gaussian and np.isfinite(part).all():  # then all samples are finite
                counts += len(values)
            else:
                part, samples = aggregate.add(values)
                counts += samples
            sums = aggregate.merge(sums, part)
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


def estimate_extremes(
    model: GaussianModel,
    sensors: Sequence[int],
    values: np.ndarray,
    requirement: Requirement,
    query: str,
    known: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate all n sensors' extremes over some steps and earlier ones; return them and variances.

    `known` has the extremes of the earlier steps; `values` is as in `estimate_with_gaps`. A
    variance is (h / z)² with the half-width h of a sensor's extreme, and 0 if no sample of the
    sensor is missing. Exact samples that are added later do not increase the error:
    |max(Y, x) − max(y, x)| ≤ |Y − y|.
    """
    means, variance = np.zeros((2, len(values), model.size))
    for at, seen, samples in _by_presence(sensors, values):
        others = np.setdiff1d(np.arange(model.size), seen)
        gain, given = model.conditional(seen, others)
        means[np.ix_(at, seen)] = samples
        means[np.ix_(at, others)] = model.mean[others] + (samples - model.mean[seen]) @ gain.T
        variance[np.ix_(at, others)] = np.maximum(np.diag(given), 0)

    fold, rest = AGGREGATES[query].merge, variance.any(axis=0)
    extremes, half = fold(known, fold.reduce(means)), np.zeros(model.size)
    if rest.any():
        args = requirement, known[rest], query
        extremes[rest], _, half[rest] = most_likely_within(means[:, rest], variance[:, rest], *args)
    return extremes, (half / requirement.z) ** 2


def _by_presence(
    sensors: Sequence[int], values: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the steps at which the same sensors have samples, these sensors, and their samples."""
    present = np.isfinite(values)
    patterns, number = np.unique(present, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        at = np.flatnonzero(number.ravel() == i)
        yield at, np.array(sensors, dtype=int)[pattern], values[at][:, pattern]
