"""Success of plans whose model is learned from few rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import ndtr

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import draw
from aftlib.documents.checkpoint_planning.cases import PlanningCase
from aftlib.documents.checkpoint_planning.plan import CheckpointPlan

ROWS = (100, 300, 1_000, 3_000, 10_000)
"""Rows that models are learned from."""
BOTH = "mean and Σ learned"
COVARIANCE = "Σ learned, mean known"
MODEL = "as the learned model predicts"


def learning_curve(
    case: PlanningCase, point: tuple[float, float, float], turns: int, rows: Sequence[int] = ROWS
) -> pd.DataFrame:
    """Learn models from rows drawn from the case's, plan with them, and compute the true success.

    Correlations are shrunk as by ``GaussianModel.fit(…, shrinkage="auto")``. Each of `turns` models
    is learned from other rows. One row per (rows, turn, curve): success: the mean probability that
    an estimated sensor's result is within ε in the worst case (12), over the plan's checkpoints;
    curve: `BOTH` or `COVARIANCE`, the true success with what is learned, or `MODEL`, what the
    learned model predicts. Plans that estimate nothing have no row.
    """
    found = list[tuple[int, int, str, float]]()
    for number in rows:
        for turn in range(turns):
            sample = draw(case.model, number, case.seed + 1 + turn)
            learned = GaussianModel.fit(sample, shrinkage="auto")
            known = GaussianModel(case.model.mean, learned.covariance)
            for curve, model in ((BOTH, learned), (COVARIANCE, known)):
                plan = _planned_by(case, model, point)
                success, predicted = true_success(case.model, model, plan)
                if len(success):
                    found.append((number, turn, curve, float(success.mean())))
                    if curve == BOTH:
                        found.append((number, turn, MODEL, float(predicted.mean())))
    return pd.DataFrame(found, columns=["rows", "turn", "curve", "success"])


def _planned_by(
    case: PlanningCase, model: GaussianModel, point: tuple[float, float, float]
) -> CheckpointPlan:
    own = PlanningCase(model, None, case.window, [point], recovery_time=case.recovery_time)
    return own.query(*point).plan()


def true_success(
    true: GaussianModel, learned: GaussianModel, plan: CheckpointPlan
) -> tuple[np.ndarray, np.ndarray]:
    """Return the true and the predicted success of every checkpoint and estimated sensor.

    With l = w − τ steps left, gain G and mean m of the learned model, the error of sensor i's
    result is Gaussian with mean (l / w) (μ_i − m_i − G_i (μ_O − m_O)) and variance
    (l / w²) (Σ_ii − 2 G_i Σ_Oi + G_i Σ_OO G_iᵀ), of which the first does not average out.
    """
    window = plan.times[-1]
    epsilon = plan.requirement.epsilon
    success = list[np.ndarray]()
    predicted = list[np.ndarray]()
    offset = true.mean - learned.mean
    for k, replay in enumerate(plan.replay):
        others = replay.estimated
        if not others.size:
            continue
        o = np.array(replay.sensors, dtype=np.int64)
        gain = replay.gain()
        across = true.covariance[np.ix_(others, o)]
        within = true.covariance[np.ix_(o, o)]
        step = true.covariance.diagonal()[others] - 2 * np.einsum("ij,ij->i", gain, across)
        step = step + np.einsum("ij,jk,ik->i", gain, within, gain, optimize=True)
        left = window - plan.times[k]
        deviation = np.sqrt(left * step) / window
        bias = left / window * (offset[others] - gain @ offset[o])
        success.append(ndtr((epsilon - bias) / deviation) - ndtr((-epsilon - bias) / deviation))
        predicted.append(plan.worst_case_reliability[k, others])
    if not success:
        return np.empty(0), np.empty(0)
    return np.concatenate(success), np.concatenate(predicted)
