"""D1's worked examples: two variables (figs 4–6) and six sensors (fig. 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession
from scipy.stats import norm

from aftlib.approximately_once.assignment import Assignment
from aftlib.approximately_once.master import Outage
from aftlib.approximately_once.pipeline import Query, Run, run
from aftlib.core.gaussian import GaussianModel
from aftlib.core.requirement import Requirement
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows


def two_variables(model: GaussianModel, observed: float, points: int = 201) -> pd.DataFrame:
    """Marginal of X1 and its posterior given X2 (D1 figs 4–6).

    Parameters
    ----------
    model : GaussianModel
        Two keys; the document gives no numbers, so the caller chooses.
    observed : float
        Value of the second key.
    points : int
        Length of the grid.

    Returns
    -------
    DataFrame
        x, density, curve ("X1" or "X1 given X2").
    """
    prior, posterior = model.condition({}), model.condition({model.names[1]: observed})
    spread = 4 * np.sqrt(prior.variance[0])
    x = np.linspace(prior.mean[0] - spread, prior.mean[0] + spread, points)
    labels = {model.names[0]: prior, f"{model.names[0]} given {model.names[1]}": posterior}
    curves = [
        pd.DataFrame({"x": x, "density": norm.pdf(x, p.mean[0], p.variance[0] ** 0.5), "curve": c})
        for c, p in labels.items()
    ]
    return pd.concat(curves, ignore_index=True)


FIGURE_8 = pd.DataFrame(
    {
        "X1": [21, 21, 22, 23, 23],
        "X2": [19, 20, 20, 22, 22],
        "X3": [20, 20, 21, 22, 23],
        "X4": [18, 19, 20, 21, 21],
        "X5": [19, 19, 20, 21, 22],
        "X6": [21, 22, 22, 23, 23],
    },
    index=pd.Index([0, 5, 10, 15, 20], name="start"),
    dtype=float,
)
"""Window means of D1 fig. 8; X4–X6 over [10, 20) and [15, 25), which it lost, are our choice."""


@dataclass(frozen=True)
class SixSensors:
    """Fig. 8 as it came out of the pipeline.

    Attributes
    ----------
    table : DataFrame
        The sink's rows with the true window mean beside: start, stop, key, value, half_width,
        estimated, samples, truth.
    run : Run
    """

    table: pd.DataFrame
    run: Run


def six_sensors(spark: SparkSession, directory: Path, failure: int, recovery: int) -> SixSensors:
    """Run fig. 8's six sensors on two workers and kill worker B for real.

    Parameters
    ----------
    spark : SparkSession
    directory : path
        New directory for the log, the sink and Spark's checkpoint.
    failure, recovery : int
        Steps; 16 and 19 in the document.

    Returns
    -------
    SixSensors
    """
    log = SensorLog.write(
        directory / "log", _samples_with_means(FIGURE_8), FIGURE_8.columns.tolist()
    )
    model = GaussianModel(FIGURE_8.mean(), 1.4 * np.ones((6, 6)) + 0.1 * np.eye(6), log.names)
    requirement = Requirement(1.0, 0.05)
    assignment = _given([(0, 1, 2), (3, 4, 5)], model, requirement)
    query = Query(log, Windows(10, 5), model, assignment, requirement, every=5)
    done = run(spark, query, directory, [Outage(1, failure, recovery)])
    truth = FIGURE_8.reset_index().melt("start", var_name="key", value_name="truth")
    return SixSensors(done.windows.merge(truth, on=["start", "key"], how="left"), done)


def _samples_with_means(means: pd.DataFrame, half: int = 5) -> np.ndarray:
    """Samples, constant over half windows, whose sliding means are the table's."""
    levels = np.zeros((len(means) + 1, means.shape[1]))
    for j, row in enumerate(means.to_numpy()):
        levels[j + 1] = 2 * row - levels[j]
    sign = (-1.0) ** np.arange(len(levels))[:, None]
    step, turn = np.diff(levels, axis=0), np.diff(sign, axis=0)
    # adding c to even and taking it from odd half windows keeps every mean: take the smoothest
    return np.repeat(levels - sign * (step * turn).sum(axis=0) / (turn**2).sum(), half, axis=0)


def _given(
    workers: Sequence[tuple[int, ...]], model: GaussianModel, requirement: Requirement
) -> Assignment:
    reliability = requirement.reliability([model.block_variance(w).max() for w in workers])
    return Assignment(tuple(workers), reliability, requirement.is_met_by(reliability))
