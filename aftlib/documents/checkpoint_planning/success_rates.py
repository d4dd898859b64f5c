"""Success: how often a recovered result is within ε, by formula, drawn, measured and learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession
from scipy.special import ndtr

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import draw
from aftlib.core.paths import beijing_pm25
from aftlib.core.requirement import Requirement
from aftlib.documents.checkpoint_planning.cases import AXES, SLIDES, PlanningCase, Point
from aftlib.documents.checkpoint_planning.operator import ReplayQuery
from aftlib.documents.checkpoint_planning.plan import CheckpointPlan
from aftlib.documents.checkpoint_planning.replay import ReplaySet, select_replay
from aftlib.spark.sweep import sweep

ROWS = (100, 300, 1_000, 3_000, 10_000)
"""Rows that models are learned from."""
BOTH_LEARNED = "mean and Σ learned"
SIGMA_LEARNED = "Σ learned, mean known"
PREDICTED = "as the learned model predicts"
"""Curves of `learning_curve`."""
DAY = 24
"""Steps of a window of the real sensors, in hours."""
EPSILON_SD = 0.5
"""ε of the real sensors, in standard deviations of a window's mean."""


def failure_rates(case: PlanningCase) -> pd.DataFrame:
    """Compute how often results of "proposed" err by more than ε where it estimates (fig. 7).

    The failure probability at τ_k is that of the window's result in the worst case (12): of
    sensor i, 1 − erf(ε / √(2 v_i)) with v_i = (w − τ_k) Var(X_i | O_k) / w².

    One row per point of the grid whose plan estimates something: epsilon, delta, t_sla_ms,
    checkpoints: those from which a sensor is estimated, the window's beginning included; failed:
    the mean over sensors and checkpoints, a point of fig. 7; hardest: the largest of any sensor and
    checkpoint.
    """
    rows = []
    for point in case.points:
        plan = case.query(*point).plan()
        failed = 1 - plan.worst_case_reliability[plan.estimating]
        if len(failed):
            rows.append((*point, len(failed), failed.mean(), failed.max()))
    return pd.DataFrame(rows, columns=[*AXES, "checkpoints", "failed", "hardest"])


def restored_checkpoints(plan: CheckpointPlan) -> pd.DataFrame:
    """Compare the window's result with the checkpoint that is restored when an interval fails.

    One row per interval of the plan in which a sensor is estimated: from_tau, tau: τ_k and τ_{k+1}
    in steps; replayed: |O_k|; worst_case: mean probability that a window's result is within ε in
    the worst case (12), over all sensors; restored: the same of the estimated sensors' running
    means at τ_{k+1}, and restored_all: of all sensors', in which replayed sensors have no error.
    """
    rows = []
    worst_case = plan.worst_case_reliability.mean(axis=1)
    for k in plan.estimating:
        replay = plan.replay[k]
        within = plan.requirement.reliability(plan.restored_variance(k))
        means = within[replay.estimated].mean(), within.mean()
        rows.append((*plan.times[k : k + 2], len(replay.sensors), worst_case[k], *means))
    names = ["from_tau", "tau", "replayed", "worst_case", "restored", "restored_all"]
    return pd.DataFrame(rows, columns=names)


def sampled_failures(spark: SparkSession, case: PlanningCase, rates: pd.DataFrame) -> pd.DataFrame:
    """Recover every window of drawn data sets from every checkpoint; return `rates` with controls.

    All data sets are drawn from the model and are as long as the log. Part 0 is drawn as the log of
    generated data is; `replications` further ones follow. A file's samples are not used here, but
    by `measured_success`. Windows begin every tenth of a window, as in the document.

    Added columns: sampled: the share of results that err by more than ε; low, high: its 95 %
    interval, and z: its distance from `failed` in standard errors, both from disjoint windows,
    because sensors of a window err together; missed: the data sets, out of `parts`, in which some
    point lies below 1 − δ.
    """
    points = list(rates[AXES].itertuples(index=False, name=None))
    fail = partial(draw_failures, case, points)
    failed = np.stack(sweep(spark, fail, range(1 + case.replications)))
    # so many begins later a window shares no step
    apart = -(-case.window // max(1, case.window // SLIDES))
    disjoint = failed[:, ::apart].reshape(-1, len(points))
    spread = disjoint.std(axis=0, ddof=1)
    exact = rates["failed"].to_numpy()
    # if no drawn result fails, the spread is that of sensors which fail together
    spread = np.where(spread > 0, spread, np.maximum(np.sqrt(exact * (1 - exact)), 1e-12))
    error = spread / np.sqrt(len(disjoint))
    sampled = disjoint.mean(axis=0)
    return rates.assign(
        sampled=sampled,
        low=np.maximum(sampled - 1.96 * error, 0),
        high=sampled + 1.96 * error,
        z=(sampled - rates["failed"]) / error,
        missed=int((failed.mean(axis=1) > rates["delta"].to_numpy()).any(axis=1).sum()),
        parts=len(failed),
    )


def draw_failures(case: PlanningCase, points: Sequence[Point], part: int) -> np.ndarray:
    """Draw a data set and recover its windows from every checkpoint of each point's plan.

    Return the share of failures, mean over sensors and checkpoints: (windows, points).
    """
    rows = case.samples.steps
    window = case.window
    n = case.model.size
    totals = np.zeros((rows + 1, n))  # any interval's sum is a difference
    drawn = draw(case.model, rows, case.seed, part * rows)
    np.cumsum(drawn - case.model.mean, axis=0, out=totals[1:])
    starts = np.arange(0, rows - window + 1, max(1, window // SLIDES))
    failed = np.empty((len(starts), len(points)))
    for i, point in enumerate(points):
        plan = case.query(*point).plan()
        shares = []
        for k in plan.estimating:
            rest = totals[starts + window] - totals[starts + plan.times[k]]
            error = estimation_error(plan.replay[k], rest) / window
            shares.append((np.abs(error) > plan.requirement.epsilon).sum(axis=1) / n)
        failed[:, i] = np.mean(shares, axis=0)
    return failed


def estimation_error(replay: ReplaySet, sums: np.ndarray) -> np.ndarray:
    """Return the errors of the estimated sensors' sums, from the deviations of all sums.

    `sums` has shape (windows, n), the result (windows, n − |O|).
    """
    return np.asarray(sums[:, replay.estimated] - sums[:, replay.sensors] @ replay.gain().T)


def measured_success(case: PlanningCase, query: ReplayQuery) -> pd.DataFrame:
    """Recover each window of the case's log from every checkpoint of a plan, by its replay set.

    From the checkpoint on only its set is replayed, the worst case (12). The log's samples need not
    be of the model. One row per interval in which a sensor is estimated: from_tau, tau, and
    replayed as in `restored_checkpoints`; predicted: the mean probability that an estimated
    sensor's result is within ε, by the model; measured: the share in the log's windows; windows.
    """
    windows = case.samples.steps // case.window
    samples = case.samples.read(None, 0, windows * case.window) - case.model.mean
    by_window = samples.reshape(windows, case.window, case.model.size)
    plan = query.first_plan
    rows = []
    for k in plan.estimating:
        replay = plan.replay[k]
        begin, end = plan.times[k : k + 2]
        error = estimation_error(replay, by_window[:, begin:].sum(axis=1)) / case.window
        within = (np.abs(error) <= plan.requirement.epsilon).mean()
        predicted = plan.worst_case_reliability[k, replay.estimated].mean()
        rows.append((begin, end, len(replay.sensors), predicted, within, windows))
    names = ["from_tau", "tau", "replayed", "predicted", "measured", "windows"]
    return pd.DataFrame(rows, columns=names)


def learning_curve(
    case: PlanningCase, point: Point, turns: int, rows: Sequence[int] = ROWS
) -> pd.DataFrame:
    """Learn models from rows drawn from the case's, plan with them, and compute the true success.

    Correlations are shrunk as by ``GaussianModel.fit(…, shrinkage="auto")``. Each of `turns` models
    is learned from other rows. One row per (rows, turn, curve): success: the mean probability that
    an estimated sensor's result is within ε in the worst case (12), over the plan's checkpoints;
    curve: `BOTH_LEARNED` or `SIGMA_LEARNED`, the true success of the learned model, or `PREDICTED`,
    the success that it predicts. Plans that estimate nothing have no row.
    """
    curves = list[tuple[int, int, str, float]]()
    for number, turn in product(rows, range(turns)):
        sample = draw(case.model, number, case.seed + 1 + turn)
        learned = GaussianModel.fit(sample, shrinkage="auto")
        known_mean = GaussianModel(case.model.mean, learned.covariance)
        for curve, model in ((BOTH_LEARNED, learned), (SIGMA_LEARNED, known_mean)):
            plan = replace(case, model=model).query(*point).plan()
            success, predicted = true_success(case.model, model, plan)
            if len(success):
                curves.append((number, turn, curve, float(success.mean())))
                if curve == BOTH_LEARNED:
                    curves.append((number, turn, PREDICTED, float(predicted.mean())))
    return pd.DataFrame(curves, columns=["rows", "turn", "curve", "success"])


def true_success(
    true: GaussianModel, learned: GaussianModel, plan: CheckpointPlan
) -> tuple[np.ndarray, np.ndarray]:
    """Return the true and the predicted success of every checkpoint and estimated sensor.

    The error of an estimated sensor at one step is a weighted sum of all sensors' deviations from
    their means: 1 for itself, minus the gain of the learned model for those of O. With l = w − τ
    steps left, the error of a result is Gaussian with the mean (l / w) W (μ − m), where m is the
    learned mean, and the variance (l / w²) W Σ Wᵀ. The mean does not average out.
    """
    window = plan.times[-1]
    epsilon = plan.requirement.epsilon
    success = [np.empty(0)]
    predicted = [np.empty(0)]
    for k in plan.estimating:
        replay = plan.replay[k]
        left = window - plan.times[k]
        weights = np.eye(true.size)[replay.estimated]
        weights[:, list(replay.sensors)] = -replay.gain()
        bias = left / window * (weights @ (true.mean - learned.mean))
        variance = left * np.einsum("ij,ij->i", weights @ true.covariance, weights)
        deviation = np.sqrt(variance) / window
        success.append(ndtr((epsilon - bias) / deviation) - ndtr((-epsilon - bias) / deviation))
        predicted.append(plan.worst_case_reliability[k, replay.estimated])
    return np.concatenate(success), np.concatenate(predicted)


def beijing_failures(delta: float) -> pd.DataFrame:
    """Replay D2's sensors at real stations, whose hours depend on each other, and count failures.

    PM2.5 at twelve stations in Beijing, in windows of a day without gaps. The model of one hour is
    fitted to the first half of the days; from a checkpoint at τ hours on, the other half's days are
    estimated. One row per τ: tau, replayed: |O|, guaranteed: 1 − δ; within: the share of estimates
    within ε, and worst_sensor: that of the worst station.
    """
    hours = pd.read_parquet(beijing_pm25())
    days = hours.to_numpy(float).reshape(-1, DAY, hours.shape[1])
    days = days[np.isfinite(days).all(axis=(1, 2))]
    past, later = np.split(days, [len(days) // 2])
    limit = EPSILON_SD * past.mean(axis=1).std(axis=0)  # ε of each station
    model = GaussianModel.fit(past.reshape(-1, len(limit)))
    permitted = (limit * DAY / Requirement(1, delta).z) ** 2
    rows = []
    for tau in range(0, DAY, 6):
        replay = select_replay(model, permitted / (DAY - tau))
        error = estimation_error(replay, (later[:, tau:] - model.mean).sum(axis=1))
        within = (np.abs(error) / DAY <= limit[replay.estimated]).mean(axis=0)
        rows.append((tau, len(replay.sensors), 1 - delta, within.mean(), within.min()))
    return pd.DataFrame(rows, columns=["tau", "replayed", "guaranteed", "within", "worst_sensor"])
