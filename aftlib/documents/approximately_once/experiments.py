"""D1's experiments: figs 10–13 for both interpretations, learned models, and real sensors.

The parameters of notebook 01 stand here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd
from pydantic import model_validator
from scipy.special import ndtr

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model, draw, draw_windows
from aftlib.core.paths import DATA_SETS, data_set, data_title
from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once.assignment import (
    Assignment,
    assign_greedy,
    divisors,
    residual_variance,
)
from aftlib.documents.approximately_once.error_rates import (
    ASSIGN,
    CHANCE,
    DOCUMENT_ROWS,
    RANDOM,
    ErrorRates,
)
from aftlib.notebook.parameters import ParameterModel, parameter
from aftlib.notebook.texts import some_of
from aftlib.spark.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKER_COUNTS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)
EPSILONS = (0.4, 0.5, 0.6, 0.65, 0.66, 0.67, 0.7, 0.75, 0.8, 0.9, 1.0, 1.5, 1.96)
"""Settings around the smallest ε with estimable workers; only the document's figures have its."""
TIES = 5
"""Random orders of equal sensors that are tried in each setting."""
LEARNED_ROWS = (100, 200, 500, 1000, 2000, 5000, 10_000)
"""Numbers of rows that a model is learned from."""
REPEATS = 5
"""Data sets of each size."""
COUNTED = "sample covariance"
"""Name of the sample's covariance."""
SHRUNK = "shrunk"
"""Name of the covariance with correlations shrunk as `GaussianModel.fit` does."""
REAL_METHODS = tuple(method for method in ASSIGN if method != CHANCE)
"""Methods on real sensors: all but ties by chance, because no two of them are equally reliable."""
REAL_WORKERS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24)
REAL_FRACTIONS = (0.3, 0.4, 0.5, 0.7, 1.0, 1.3)
"""Settings on real sensors: workers, and ε in standard deviations of the median sensor."""


class NotebookParameters(ParameterModel):
    """Parameters of notebook 01."""

    workers: list[int] | None = parameter(
        None,
        "worker counts m, divisors of `dimensions`; null: ours",
        smoke=[2, 6, 10, 24, 60],
        least=1,
    )
    epsilons: list[float] | None = parameter(
        None,
        "tolerances ε, sensor units; null: ours",
        smoke=[0.5, 0.65, 0.67, 0.7, 1.0, 1.96],
        above=0,
    )
    delta: float = parameter(0.05, "permitted failure probability δ", above=0, below=1)
    dimensions: int = parameter(120, "sensors of the generated data", least=2, most=5000)
    blocks: int = parameter(10, "equally large groups of correlated sensors", least=1)
    samples_per_window: int = parameter(
        3, "samples in a window, if rows are samples", least=2, most=100
    )
    rows: int = parameter(
        20_000, "sampled windows", smoke=5000, quick=5_000, full=200_000, least=100
    )
    draws: int = parameter(
        20, "random assignments per number of workers", smoke=5, full=200, least=2, most=1000
    )
    seed: int = parameter(1, "of data and random assignments", least=0)
    data: str | None = parameter(None, "a CSV or Parquet file; null: the project's real sensors")

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse values that do not fit together."""
        n = self.dimensions
        given = [("blocks", self.blocks), *(("workers", m) for m in self.workers or [])]
        for name, number in given:
            if n % number:
                raise ValueError(
                    f"{name} must divide the {n} sensors, got {number}; choose from {divisors(n)}"
                )
        return self

    @property
    def model(self) -> GaussianModel:
        """The model of the rows, which also generates the sample."""
        return block_model(self.dimensions, self.blocks)

    @property
    def settings(self) -> tuple[list[int], list[float]]:
        """The values of m and of ε, both ascending."""
        n = self.dimensions
        usual = [m for m in WORKER_COUNTS if n % m == 0] or divisors(n)[1:]
        return sorted({*(self.workers or usual)}), sorted({*(self.epsilons or EPSILONS)})

    @property
    def smallest_epsilon(self) -> float:
        """The ε below which no sensor can be estimated, even if it alone is lost."""
        alone = 1 / np.diag(self.model.precision)
        return float(Requirement(1.0, self.delta).half_width(alone.min()))

    @property
    def is_document(self) -> bool:
        """Whether data and δ are the document's."""
        return (self.dimensions, self.blocks, self.delta) == (120, 10, 0.05)


def grid(
    spark: SparkSession,
    parameters: NotebookParameters,
    also: Mapping[str, Callable[..., Assignment]] | None = None,
) -> pd.DataFrame:
    """Estimable workers and error rates in each setting (m, ε), by assignment (D1 figs 10–13).

    A row of the data is a window's result. `also` has further assignments by name, called like
    those of `ASSIGN`. The columns are those of `ErrorRates.table`, and `bound`: an upper bound on
    the estimable workers of any assignment in this setting.
    """
    workers, epsilons = parameters.settings
    windows = partial(draw, parameters.model, parameters.rows, parameters.seed)
    work = ErrorRates(
        parameters.model,
        epsilons,
        parameters.delta,
        windows,
        parameters.seed,
        assign={**ASSIGN, **(also or {})},
    )
    frame = _run(spark, work, workers, {RANDOM: parameters.draws, CHANCE: TIES})
    bounds = pd.concat(sweep(spark, work.bounds, workers))
    return frame.merge(bounds, on=["workers", "epsilon"])


def one_data_set(grid: pd.DataFrame, m: int, parameters: NotebookParameters) -> pd.DataFrame:
    """Greedy's error rate at m: by formula, in the document's number of rows, and in all rows."""
    greedy = grid[(grid["method"] == "greedy") & (grid["workers"] == m)].dropna(subset="rate")
    few = min(DOCUMENT_ROWS, parameters.rows)
    names = {"epsilon": "ε", "rate": "by formula", "first": f"in {few:,} rows"}
    if parameters.rows > few:
        names["measured"] = f"in {parameters.rows:,} rows"
    return greedy[list(names)].rename(columns=names)


def averaged_grid(spark: SparkSession, parameters: NotebookParameters) -> pd.DataFrame:
    """The settings of `grid` if a row is a sample, and a window the mean of several (D1 6.1.2).

    The document's windows of 30 min begin every 10 min. If its rows are samples of every 10 min, a
    window is the mean of three, has the covariance Σ/3, and shares samples with its neighbours.
    Each ε of the settings is there, and ε/√3, where the numbers are those that `grid` has at ε.
    Ties by chance are left out, because no claim compares them. Columns as `ErrorRates.table`.
    """
    width = parameters.samples_per_window
    workers, epsilons = parameters.settings
    smaller = [float(f"{epsilon / np.sqrt(width):.6g}") for epsilon in epsilons]
    work = ErrorRates(
        parameters.model.aggregate(width),
        sorted({*epsilons, *smaller}),
        parameters.delta,
        partial(draw_windows, parameters.model, parameters.rows, parameters.seed, width),
        parameters.seed,
        shared=width,
        assign={name: assign for name, assign in ASSIGN.items() if name != CHANCE},
    )
    return _run(spark, work, workers, {RANDOM: min(TIES, parameters.draws)})


def _run(
    spark: SparkSession, work: ErrorRates, workers: list[int], draws: Mapping[str, int]
) -> pd.DataFrame:
    """Run all methods at all numbers of workers, in Spark tasks."""
    points = [
        (method, m, number)
        for method in work.assign
        for number in range(draws.get(method, 1))
        for m in workers
    ]
    frame = pd.concat(sweep(spark, work, points))
    return frame.sort_values(["method", "workers", "epsilon", "draw"], ignore_index=True)


def learning_curve(
    spark: SparkSession, parameters: NotebookParameters, workers: int
) -> pd.DataFrame:
    """Greedy's error rate if Σ is learned from rows of the document's data.

    Columns: rows, repeat, epsilon; covariance: `COUNTED` (only with more rows than sensors) or
    `SHRUNK`; rate: the error rate (9) that the learned model predicts; true: the true one, by
    formula. Both are over the sensors of the workers that the learned model calls estimable, and
    NaN without such workers.
    """
    points = [(rows, repeat) for rows in LEARNED_ROWS for repeat in range(REPEATS)]
    frames = sweep(spark, partial(_learned_rates, parameters, workers), points)
    return pd.concat(frames, ignore_index=True)


def _learned_rates(
    parameters: NotebookParameters, workers: int, point: tuple[int, int]
) -> pd.DataFrame:
    """Return the rows of `learning_curve` of one data set, in a Spark task."""
    rows, repeat = point
    true = parameters.model
    sample = draw(true, rows, parameters.seed + 1 + repeat)
    fits = {SHRUNK: GaussianModel.fit(sample, shrinkage="auto")}
    if rows > true.size:
        fits[COUNTED] = GaussianModel.fit(sample)
    lines = []
    for (name, learned), epsilon in product(fits.items(), parameters.settings[1]):
        requirement = Requirement(epsilon, parameters.delta)
        assignment = assign_greedy(learned, workers, requirement, uneven=True)
        chance = 1 - requirement.reliability(residual_variance(learned, assignment.workers))
        rates = pd.DataFrame(
            {"rate": chance, "true": true_rates(true, learned, assignment.workers, epsilon)}
        )
        means = rates[assignment.estimable_keys].mean()
        lines.append({"covariance": name, "epsilon": epsilon, **means})
    return pd.DataFrame(lines).assign(rows=rows, repeat=repeat)


def true_rates(
    model: GaussianModel,
    learned: GaussianModel,
    workers: Sequence[Sequence[int]],
    epsilon: float,
) -> np.ndarray:
    """Probability that each sensor's estimate by a learned model is off by more than ε, shape (n,).

    `model` is the true one. An estimate's error is (Λ̂_AA)⁻¹ Λ̂_A (x − μ̂), which is Gaussian under
    the true model, with a mean where μ̂ is wrong.
    """
    rates = np.empty(model.size)
    for keys in map(list, workers):
        block = learned.precision[np.ix_(keys, keys)]
        weights = np.linalg.solve(block, learned.precision[keys])
        mean = weights @ (model.mean - learned.mean)
        deviation = np.sqrt(np.einsum("kn,nl,kl->k", weights, model.covariance, weights))
        rates[keys] = ndtr((mean - epsilon) / deviation) + ndtr((-mean - epsilon) / deviation)
    return rates


def project_tables() -> dict[str, pd.DataFrame]:
    """Return the project's sets of real sensors by name: rows are times, columns are sensors."""
    return {name: pd.read_parquet(data_set(name)).select_dtypes("number") for name in DATA_SETS}


def own_table(data: str, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the set of sensors of a user's file `data` under the file's name.

    `table` has its samples, one column per sensor, NaN where one is missing. ValueError if a half
    of the file has no more rows without gaps than sensors.
    """
    half = len(table) // 2
    for name, part in (("first", table[:half]), ("second", table[half:])):
        whole = len(part.dropna())
        if whole <= table.shape[1]:
            raise ValueError(
                f"data must have more rows without gaps than sensors in each half, got {whole} "
                f"rows for {table.shape[1]} sensors in the {name} half: give more rows, or leave "
                "out the sensors with most gaps"
            )
    return {Path(data).stem: table}


def real_grid(tables: Mapping[str, pd.DataFrame], delta: float, seed: int) -> pd.DataFrame:
    """Assignments on real sensors: a model of the first half of the rows, tried on the second.

    A row is a window's result. Rows that miss a sensor are left out. ε is a multiple of the median
    sensor's standard deviation in the first half. Columns: those of `ErrorRates.table`; set: the
    name in `tables`; sensors: their number; fraction: ε in standard deviations; windows: those of
    the second half, in which errors are counted.
    """
    frames = []
    for name, table in tables.items():
        half = len(table) // 2
        model = GaussianModel.fit(table[:half].dropna())
        deviation = float(np.sqrt(np.median(np.diag(model.covariance))))
        epsilons = [fraction * deviation for fraction in REAL_FRACTIONS]
        later = table[half:].dropna().to_numpy(dtype=float)
        work = ErrorRates(model, epsilons, delta, later, seed, counted_draws=TIES)
        workers = [m for m in REAL_WORKERS if m <= model.size]
        frame = work.table(REAL_METHODS, workers, TIES)
        fraction = (frame["epsilon"] / deviation).round(6)
        frame = frame.assign(set=name, sensors=model.size, fraction=fraction)
        frames.append(frame.assign(windows=len(later)))
    return pd.concat(frames, ignore_index=True)


def summarize_real(real: pd.DataFrame) -> pd.DataFrame:
    """One row per set of real sensors and method: means over the settings (m, ε) and draws.

    Columns: set, sensors, method; estimable: workers, over all settings; rate, measured: error rate
    (9) by the model and in the second half, over the `common` settings, in which each method has
    estimable workers.
    """
    setting = ["set", "sensors", "workers", "epsilon"]
    means = real.groupby([*setting, "method"], as_index=False).mean(numeric_only=True)
    common = means.groupby(setting)["rate"].transform(lambda rates: rates.notna().all())
    rates = ["rate", "measured"]
    means[rates] = means[rates].where(common)
    means["common"] = common
    columns = {"estimable": "mean", "rate": "mean", "measured": "mean", "common": "sum"}
    return means.groupby(["set", "sensors", "method"], as_index=False).agg(columns)


def compare_real(real: pd.DataFrame) -> pd.DataFrame:
    """Greedy against other assignments, one row per set of real sensors.

    Columns: more: its estimable workers minus h-best's; gap, measured_gap: its error rate minus
    h-best's, by the model and in the second half; ratio, measured_ratio: its rate over random's.
    """
    by_method = summarize_real(real).pivot(index="set", columns="method")
    estimable = by_method["estimable"]
    columns = {"more": estimable["greedy"] - estimable["h-best"]}
    for prefix, rates in (("", by_method["rate"]), ("measured_", by_method["measured"])):
        columns[f"{prefix}gap"] = rates["greedy"] - rates["h-best"]
        columns[f"{prefix}ratio"] = rates["greedy"] / rates[RANDOM]
    return pd.DataFrame(columns)


def list_by_set(values: pd.Series, form: str) -> str:
    """Return one number per set of real sensors as text; the index has the sets' names.

    >>> list_by_set(pd.Series({"beijing_pm25": 0.93, "irish_wind": 1.031}), "{:.2f}")
    "Beijing's stations 0.93, Irish wind 1.03"
    """
    texts = [
        f"{data_title(str(name))} {form.format(value).replace('-', '−')}"
        for name, value in values.items()
    ]
    return ", ".join(texts)


def above_delta(real: pd.DataFrame, delta: float) -> str:
    """Return on which sets of real sensors greedy's measured rate exceeds δ, and how often.

    Counted are the settings with estimable workers; the text is empty if no set has such.
    """
    greedy = real[(real["method"] == "greedy") & real["measured"].notna()]
    settings = (greedy["measured"] > delta).groupby(greedy["set"])
    counts = settings.agg(above="sum", all="count")
    if counts.empty:
        return ""
    beyond = counts[counts["above"] > 0]
    names = [f"{data_title(row.Index)} {row.above} of {row.all}" for row in beyond.itertuples()]
    text = some_of(len(beyond), len(counts), "set")
    return f"{text} ({', '.join(names)})" if names else text
