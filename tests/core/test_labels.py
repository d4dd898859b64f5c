"""Results as frames with the names of their keys, and as short texts."""

from __future__ import annotations

import numpy as np

from aftlib import ExponentialHistogram, GaussianModel

NAMES = ["kitchen", "<hall>", "cellar", "attic"]
MODEL = GaussianModel(np.zeros(4), np.kron(np.eye(2), [[1, 0.9], [0.9, 1]]), NAMES)


def test_a_histogram_is_a_frame_of_its_buckets():
    histogram = ExponentialHistogram(window=7, epsilon=0.5)
    histogram.update([0, 1, 1, 0, 1, 1, 1, 1, 1])
    assert histogram.to_frame()["size"].tolist() == [1, 2, 4]
