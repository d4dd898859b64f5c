"""Seeded streams of the documents' data; the bytes do not depend on the number of tasks."""

from __future__ import annotations

import numpy as np

from aftlib.core.gaussian import GaussianModel
from aftlib.core.sensorlog import ROWS_PER_RANGE


def block_model(
    dimensions: int = 120,
    blocks: int = 10,
    variance: float = 1.0,
    covariance: float = 0.9,
    mean: float = 0.0,
) -> GaussianModel:
    """Model of n = `dimensions` keys in equal blocks (D1 section 6.1, D2 section 5).

    Two keys of a block have the covariance `covariance`, keys of different blocks 0. ValueError
    when `blocks` does not divide `dimensions`, or the matrix is not positive definite.
    """
    if not (blocks >= 1 and dimensions >= 1 and dimensions % blocks == 0):
        raise ValueError(
            f"blocks must divide dimensions = {dimensions}, got {blocks!r}; choose a divisor"
        )
    size = dimensions // blocks
    block = np.full((size, size), covariance) + (variance - covariance) * np.eye(size)
    return GaussianModel(np.full(dimensions, mean), np.kron(np.eye(blocks), block))


def draw(model: GaussianModel, rows: int, seed: int, first: int = 0) -> np.ndarray:
    """Rows [first, first + rows) of the endless sample of this seed, shape (rows, n).

    Rows are independent; they do not depend on how a caller cuts the sample.
    """
    ranges = range(first // ROWS_PER_RANGE, -(-(first + rows) // ROWS_PER_RANGE))
    parts = [draw_range(model, seed, i) for i in ranges]
    whole = np.concatenate([np.empty((0, model.size)), *parts])
    offset = first - ranges.start * ROWS_PER_RANGE
    return whole[offset : offset + rows]


def draw_windows(model: GaussianModel, rows: int, seed: int, width: int) -> np.ndarray:
    """Means of `width` successive rows of the sample, a window beginning at each row: (rows, n).

    `model` is that of a row, so a mean has the covariance Σ / width. Windows that begin less than
    `width` rows apart share rows, and correlate.
    """
    sample = draw(model, rows + width - 1, seed)
    windows = sum(sample[begin : begin + rows] for begin in range(width))
    return np.asarray(windows / width)


def draw_range(model: GaussianModel, seed: int, index: int) -> np.ndarray:
    """Draw the rows of the sample in the range with this index, shape (ROWS_PER_RANGE, n)."""
    rng = np.random.default_rng([seed, index])
    noise = rng.standard_normal((ROWS_PER_RANGE, model.size))
    return np.asarray(model.mean + noise @ model.cholesky.T)
