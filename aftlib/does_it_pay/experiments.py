"""Notebook 08's experiments: schemes by read rate × window × sensors, and a user's own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.core.recovery_costs import Operation, RecoveryCosts, Scheme, monthly_costs
from aftlib.does_it_pay.break_even import (
    CASE,
    COMPARED,
    break_evens,
    guard_share,
    measured_costs,
    median_interval,
    points_of,
)
from aftlib.does_it_pay.cases import BLOCKS, GENERATED, Case, make_case
from aftlib.does_it_pay.process_recoveries import IN_PROCESS, calm_windows, process_recoveries
from aftlib.does_it_pay.spark_recoveries import EXACT, GUARD, MODEL, ON_SPARK, spark_recoveries
from aftlib.workbench.parameters import ParameterModel, parameter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMES = (*ON_SPARK, *IN_PROCESS)
WARM = (np.inf,)
"""Rate of the first kill, which is slow and not counted."""


class NotebookParameters(ParameterModel):
    """Parameters of notebook 08."""

    data: str = parameter(
        "beijing", "PM2.5 at twelve stations; a CSV or Parquet file of yours; or generated"
    )
    sensors: list[int] = parameter([12], "the first of the data", least=4, full=[6, 12])
    windows: list[int] = parameter([6, 24], "tumbling, steps", least=2, smoke=[6], full=[6, 12, 24])
    rates: list[float] = parameter(
        [150.0, 3200.0],
        "at which input can be read again, samples per second",
        above=0,
        full=[50.0, 100.0, 400.0, 1600.0, 6400.0],
    )
    repeats: int = parameter(3, "kills per scheme, case and rate", least=2, smoke=2, full=15)
    calm: int = parameter(
        4, "windows of each scheme while nothing fails", least=3, smoke=3, full=40
    )
    schemes: list[str] = parameter(
        [*SCHEMES], "an approximate one needs the exact one that it is compared with"
    )
    workers: int = parameter(2, "on Spark; one of them is killed", least=2)
    learned: int = parameter(
        600, "windows before the first kill; the guard learns from them", least=20, smoke=150
    )
    epsilon_sd: float = parameter(
        0.7, "largest error ε, standard deviations of a window's mean", above=0
    )
    delta: float = parameter(0.05, "share δ of the estimates that may be wrong", above=0, below=1)
    budget: float = parameter(
        0.15, "share of a window's samples that D2 may read again", above=0, most=1
    )
    own_sensors: int = parameter(200, "of your stream", least=1)
    own_samples_per_s: float = parameter(20.0, "of all your sensors together", above=0)
    own_window_s: float = parameter(3600.0, "length of your windows, seconds", above=0)
    own_read_rate: float = parameter(
        100.0, "samples per second that your source hands out, live ones included", above=0
    )
    own_failures: float = parameter(10.0, "failures of your workers per month", least=0)
    own_price: float = parameter(0.09, "price of reading a gigabyte", least=0)
    seed: int = parameter(1, "of generated data and the order of the rates", least=0)

    @model_validator(mode="after")
    def fit_together(self) -> Self:
        """Refuse parameters with which the notebook could not run to its end."""
        for n in self.sensors:
            if n % self.workers or (self.data == GENERATED and n % BLOCKS):
                raise ValueError(
                    f"sensors must be multiples of workers = {self.workers}, and of {BLOCKS} where "
                    f"they are generated, got {n}"
                )
        for name in ("sensors", "windows", "rates"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must differ, got {values}: give each once")
        if len(self.rates) < 2:
            raise ValueError(
                f"rates must hold two rates or more for a break-even, got {self.rates}"
            )
        unknown = [name for name in self.schemes if name not in SCHEMES]
        lonely = [name for name in self.schemes if COMPARED.get(name, name) not in self.schemes]
        if unknown or lonely or len(set(self.schemes)) < len(self.schemes):
            raise ValueError(
                f"schemes must be some of {[*SCHEMES]}, each once, and each approximate one with "
                f"the exact one that it is compared with, got {self.schemes}"
            )
        if self.data != GENERATED:
            self.case(max(self.sensors), max(self.windows))  # long enough, or refused
        return self

    @property
    def schedule(self) -> list[float]:
        """Read rates of the micro-batches after the learning phase, in random order."""
        rng, kills = np.random.default_rng(self.seed), list[float]()
        for _ in range(self.repeats):
            kills += rng.permutation([*self.rates, np.inf]).tolist()
        return [*WARM, *kills, *[np.nan] * self.calm]

    def case(self, sensors: int, width: int) -> Case:
        """Return the stream with this number of sensors and width of windows."""
        own = {"data", "workers", "learned", "epsilon_sd", "delta", "budget", "seed"}
        return make_case(
            sensors=sensors,
            width=width,
            measured=len(self.schedule),
            **self.model_dump(include=own),
        )

    @property
    def operation(self) -> Operation:
        """The user's own numbers."""
        return Operation(
            sensors=self.own_sensors,
            samples_per_s=self.own_samples_per_s,
            window_s=self.own_window_s,
            read_rate=self.own_read_rate,
            failures_per_month=self.own_failures,
            price_per_gb=self.own_price,
        )


@dataclass(frozen=True)
class Measurements:
    """Recoveries, micro-batches without a fault, and estimates of all schemes.

    `recoveries` has one row per kill: scheme, sensors, window, and the columns of
    `spark_recoveries`; planned: samples that the plan reads again. `calm` has one row per window
    without a fault: scheme, sensors, window, seconds, latency_s, samples. `estimates` has one row
    per estimate: scheme, sensors, window, batch, off in units of ε. `plans` has the result of
    `plan_of` for D2's plan in the last case, by scheme.
    """

    recoveries: pd.DataFrame
    calm: pd.DataFrame
    estimates: pd.DataFrame
    delta: float
    workers: int
    plans: Mapping[str, tuple[float, int]]

    @cached_property
    def costs(self) -> dict[tuple[str, int], RecoveryCosts]:
        """Constants of the cost model, by scheme and number of sensors."""
        return measured_costs(self.recoveries)

    @cached_property
    def points(self) -> pd.DataFrame:
        """Measured and predicted time of each scheme, case and rate."""
        return points_of(self.recoveries, self.costs)

    @cached_property
    def break_even(self) -> pd.DataFrame:
        """Measured and predicted break-even rates."""
        return break_evens(self.recoveries)


def measure(spark: SparkSession, p: NotebookParameters, directory: Path) -> Measurements:
    """Run every scheme over every case; `directory` must be new.

    D2's processes are forked from a server, so a script must guard its main code by ``if __name__
    == "__main__":``, as `multiprocessing` requires.
    """
    schedule, cases = np.array(p.schedule), list(product(p.sensors, p.windows))
    kills = schedule[~np.isnan(schedule)]
    recoveries, calm, estimates = [], [], []
    warm_up = [*WARM, np.nan]  # a session's first micro-batches are slow
    spark_recoveries(spark, p.case(*cases[0]), EXACT, directory / "warm-up", warm_up)
    for (n, width), scheme in product(cases, p.schemes):
        case = p.case(n, width)
        place = directory / f"{n}-{width}-{scheme.replace(' ', '-').replace(',', '')}"
        about: dict[str, Any] = {"scheme": scheme, "sensors": n, "window": width}
        if scheme in ON_SPARK:
            rows, errors = spark_recoveries(spark, case, scheme, place, schedule.tolist())
            undisturbed = rows[rows["rate"].isna() & (rows["batch"] >= len(WARM))]
        else:
            after = case.after_learning()
            rows, errors = process_recoveries(after, scheme, place, kills.tolist())
            undisturbed = calm_windows(after, scheme, place / "calm", p.calm)
        counted = rows[rows["rate"].notna()].iloc[len(WARM) :]
        recoveries.append(counted.assign(**about, planned=planned_again(case, scheme)))
        calm.append(undisturbed.assign(**about, samples=n * width))
        estimates.append(errors.assign(**about))
    largest = p.case(*cases[-1])
    return Measurements(
        recoveries=pd.concat(recoveries, ignore_index=True),
        calm=pd.concat(calm, ignore_index=True),
        estimates=pd.concat(estimates, ignore_index=True),
        delta=p.delta,
        workers=p.workers,
        plans={scheme: plan_of(largest, scheme) for scheme in p.schemes if scheme in IN_PROCESS},
    )


def planned_again(case: Case, scheme: str) -> int:
    """Samples that a scheme must read again after the measured failure, by its plan."""
    if scheme in IN_PROCESS:
        return int(max(case.replay_query(IN_PROCESS[scheme]).first_plan.tuples))
    estimated = scheme != EXACT and bool(case.assignment.estimable[-1])
    return 0 if estimated else case.lost_samples


def plan_of(case: Case, scheme: str) -> tuple[float, int]:
    """Mean share of the lost samples that D2's plan reads again, and its number of checkpoints."""
    query = case.replay_query(IN_PROCESS[scheme])
    plan, steps = query.first_plan, np.diff(query.first_plan.times)
    again = float(np.sum(np.array(plan.tuples) * steps))
    return again / (query.model.size * float(np.sum(steps**2))), len(steps)


def accuracy(measured: Measurements) -> pd.DataFrame:
    """Estimates of each scheme: number, windows with any, share within ε, largest error in ε."""
    rows = {}
    approximate = measured.estimates[measured.estimates["scheme"].isin([*COMPARED])]
    for scheme, group in approximate.groupby("scheme"):
        off = group["off"].dropna()
        windows = group.groupby([*CASE, "batch"]).ngroups
        about = {"estimates": len(off), "windows": windows, "within": float((off <= 1).mean())}
        rows[scheme] = about | {"largest_error": float(off.max())}
    columns = ["estimates", "windows", "within", "largest_error"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("scheme")


def calm_table(measured: Measurements) -> pd.DataFrame:
    """Throughput and latency of each scheme and case while nothing fails, with intervals."""
    rows = []
    for key, group in measured.calm.groupby(["scheme", *CASE], sort=False):
        row = dict(zip(["scheme", *CASE], key, strict=True))
        rate = (group["samples"] / group["seconds"]).to_numpy()
        for name, values in (("samples_per_s", rate), ("latency_s", group["latency_s"].to_numpy())):
            low, high = median_interval(values)
            row |= {name: np.median(values), f"{name}_low": low, f"{name}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


def own_schemes(measured: Measurements) -> list[Scheme]:
    """Return the measured schemes as input of the cost model.

    The guard reads the same share of the lost samples again as it did in the last case.
    """
    rows, schemes = measured.recoveries, []
    largest = rows["sensors"].max()
    last = rows[(rows["sensors"] == largest) & (rows["window"] == rows["window"].max())]
    shares = {EXACT: 1.0, MODEL: 0.0, GUARD: guard_share(last) if GUARD in {*last["scheme"]} else 0}
    for (name, sensors), costs in measured.costs.items():
        if sensors < largest:
            continue
        if name in IN_PROCESS:
            replayed, checkpoints = measured.plans[name]
            schemes.append(Scheme(name, costs, 1.0, replayed, checkpoints))
        else:
            lost, skips = 1 / measured.workers, name in (MODEL, GUARD)
            schemes.append(Scheme(name, costs, lost, shares[name], skips_input=skips))
    return schemes


def own_numbers(measured: Measurements, operation: Operation) -> pd.DataFrame:
    """Cost of each scheme in the user's operation, one row per scheme."""
    rows = monthly_costs(operation, own_schemes(measured))
    return pd.DataFrame([vars(row) for row in rows]).set_index("scheme")
