"""The experiments of notebook 07: every scheme under the same kills, and a user's own numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from pydantic import model_validator

from aftlib.core.gaussian import GaussianModel
from aftlib.core.paths import beijing_pm25
from aftlib.core.recovery_costs import Operation, RecoveryCosts, Scheme, monthly_costs
from aftlib.core.requirement import Requirement
from aftlib.core.windows import Windows
from aftlib.does_it_pay.break_even import (
    BY_PROCESS,
    COMPARED,
    break_evens,
    compare_with_model,
    expected_again,
    measured_costs,
)
from aftlib.does_it_pay.schemes import (
    EXACT,
    GUARD,
    MODEL,
    NOTHING,
    Case,
    Kill,
    recover_partially,
    recover_workers,
    replay_query,
)
from aftlib.workbench.parameters import ParameterModel, parameter

BY_WORKERS = (NOTHING, EXACT, MODEL, GUARD)
SCHEMES = (*BY_WORKERS, *BY_PROCESS)
#: Beijing's stations.
SENSORS = 12


class NotebookParameters(ParameterModel):
    """Parameters of notebook 07."""

    windows: list[int] = parameter([6, 24], "tumbling, steps", least=2, smoke=[6], full=[6, 12, 24])
    rates: list[float] = parameter(
        [150.0, 1000.0, 6000.0],
        "of reading again, samples per second; no limit is added",
        above=0,
        smoke=[150.0],
        full=[50.0, 150.0, 1000.0, 6000.0],
    )
    kills: int = parameter(10, "per scheme, window and rate", least=2, smoke=3, full=20)
    workers: int = parameter(2, "of D1; one of them is killed", least=2, most=SENSORS)
    learned: int = parameter(600, "windows that model and guard learn from", least=20, most=700)
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
    seed: int = parameter(1, "of the schedule of kills", least=0)

    @model_validator(mode="after")
    def fit_together(self) -> Self:
        """Refuse parameters with which the notebook could not run to its end."""
        for name in ("windows", "rates"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must differ, got {values}: give each once")
        if SENSORS % self.workers:
            raise ValueError(
                f"workers must divide the {SENSORS} sensors, got {self.workers}: give 2, 3, 4, 6 "
                "or 12"
            )
        self.read_case(max(self.windows))  # long enough, or refused
        return self

    @property
    def schedule(self) -> list[Kill]:
        """The kills, the same for every scheme and window."""
        return draw_schedule(self.rates, self.kills, self.workers, self.seed)

    def read_case(self, width: int) -> Case:
        """Return Beijing's PM2.5 as a case with windows of `width` steps.

        ε is `epsilon_sd` times the median standard deviation of the sensors' window means. The
        model is fitted to the first `learned` windows. Of the later ones, as many as the schedule
        needs are streamed, those with a gap left out. ValueError when there are too few.
        """
        table, needed = pd.read_parquet(beijing_pm25()), self.schedule[-1].window + 2
        samples, n = table.to_numpy(dtype=float), table.shape[1]
        every = samples[: len(samples) // width * width].reshape(-1, width, n)
        later = every[self.learned :]
        later = later[np.isfinite(later).all(axis=(1, 2))]
        if len(later) < needed:
            raise ValueError(
                f"the data have {len(later)} windows of {width} steps without a gap after the "
                f"first {self.learned}, but the kills need {needed}: give shorter windows, "
                "fewer learned ones, kills or rates"
            )
        values = np.concatenate([*every[: self.learned], *later[:needed]])
        windows = Windows(width, width)
        means, _ = windows.aggregate(values, 0, range(self.learned))
        model = GaussianModel.fit(pd.DataFrame(means, columns=table.columns), missing="estimate")
        deviation = float(np.median(np.sqrt(model.covariance.diagonal())))
        requirement = Requirement(self.epsilon_sd * deviation, self.delta)
        return Case(values, model, windows, self.workers, requirement, self.learned, self.budget)

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


def draw_schedule(rates: Sequence[float], kills: int, workers: int, seed: int) -> list[Kill]:
    """Draw the kills of a stream: `kills` per rate and without a limit, in random order.

    As many more hit after their window is emitted. Every second window has a kill; the first kill,
    which no result counts, warms up.
    """
    rng = np.random.default_rng(seed)
    points = [(rate, False) for rate in (*rates, np.inf)] + [(np.inf, True)]
    drawn = [(np.inf, False)]
    for _ in range(kills):
        drawn += [points[i] for i in rng.permutation(len(points))]
    return [
        Kill(2 * number, int(rng.integers(workers)), rate, emitted)
        for number, (rate, emitted) in enumerate(drawn)
    ]


@dataclass(frozen=True)
class Measurements:
    """All schemes under the same kills.

    Each frame has the columns scheme and width, the steps of a window. `recoveries` has one row per
    kill before a window's end: rate and the columns of `schemes.Coordinator.process`. `outcomes`
    has one row per scheme and width: kills, lost, doubled, wrong: results that are not exact and
    not marked as estimates; estimated, within: the share of the estimates within ε; added_ms: the
    mean time that the scheme adds to a window while nothing fails; additions: the checkpoints or
    updates in it, for that time.
    """

    recoveries: pd.DataFrame
    outcomes: pd.DataFrame
    sample_s: float
    workers: int
    checkpoints: int  # of D2 per window, in the longest windows

    @cached_property
    def costs(self) -> dict[str, RecoveryCosts]:
        """Constants of the cost model, by scheme."""
        return measured_costs(self.recoveries, self.sample_s)

    @cached_property
    def points(self) -> pd.DataFrame:
        """Measured and predicted time of each scheme, window and rate."""
        return compare_with_model(self.recoveries, self.costs)

    @cached_property
    def break_even(self) -> pd.DataFrame:
        """Predicted and measured break-even rates."""
        return break_evens(self.recoveries)


def measure(p: NotebookParameters, directory: Path) -> Measurements:
    """Run every scheme over every window length; `directory` must be new.

    Processes are forked from a server, so a script must guard its main code by ``if __name__ ==
    "__main__":``, as `multiprocessing` requires.
    """
    schedule, recoveries, outcomes = p.schedule, [], []
    for width in sorted(p.windows):
        case = p.read_case(width)
        plan = replay_query(case).first_plan
        for number, scheme in enumerate(SCHEMES):
            place = directory / f"{width}-{number}"
            stream = recover_workers if scheme in BY_WORKERS else recover_partially
            rows, results = stream(case, scheme, place, schedule)
            about: dict[str, Any] = {"scheme": scheme, "width": width}
            kills = rows[rows["rate"].notna() & (rows["window"] > 0)]
            recoveries.append(kills[~kills["emitted"].astype(bool)].assign(**about))
            calm = rows[rows["rate"].isna()]
            additions, column = 1, "estimate_s"
            if scheme in BY_PROCESS:  # a window's last checkpoint has its result, and is not added
                additions, column = len(plan.times) - 2, "commit_s"
            about |= {"added_ms": 1e3 * calm[column].mean() * additions, "additions": additions}
            outcomes.append(about | {"kills": len(schedule)} | score_results(case, results))
    log = case.write_log(directory / "log")  # the longest windows' case comes last
    begin = time.perf_counter()
    log.read(None, 0, log.steps)
    sample_s = (time.perf_counter() - begin) / case.truth.size / case.windows.width
    return Measurements(
        pd.concat(recoveries, ignore_index=True),
        pd.DataFrame(outcomes),
        sample_s=sample_s,
        workers=p.workers,
        checkpoints=len(plan.times) - 1,
    )


def score_results(case: Case, results: pd.DataFrame) -> dict[str, float]:
    """Count the results that are lost, doubled, wrong and estimated."""
    truth = case.truth[results["window"], results["sensor"]]
    off = np.abs(results["value"].to_numpy() - truth)
    estimated = results["estimated"].to_numpy(bool)
    distinct = len(results.drop_duplicates(["window", "sensor"]))
    within = off[estimated] <= case.requirement.epsilon
    return {
        "lost": case.truth.size - distinct,
        "doubled": len(results) - distinct,
        "wrong": int((off[~estimated] > 1e-9 * (1 + np.abs(truth[~estimated]))).sum()),
        "estimated": int(estimated.sum()),
        "within": float(within.mean()) if within.size else np.nan,
    }


def scheme_table(measured: Measurements) -> pd.DataFrame:
    """Return one row per scheme, in the longest windows: outcomes, samples and times.

    Outcomes count all kills. At the slowest rate, recovery_s is the median time of a recovery. Of
    it, reading_s is the wait for the samples, and fixed_ms the rest.
    """
    width, rate = measured.recoveries["width"].max(), measured.recoveries["rate"].min()
    rows = measured.recoveries
    slow = rows[(rows["width"] == width) & (rows["rate"] == rate)]
    medians = slow.groupby("scheme")[["again", "seconds"]].median()
    wait = medians["again"] / rate
    outcomes = measured.outcomes[measured.outcomes["width"] == width].set_index("scheme")
    table = outcomes[["lost", "doubled", "estimated", "within"]].join(medians["again"])
    table["fixed_ms"] = 1e3 * (medians["seconds"] - wait)
    table["reading_s"], table["recovery_s"] = wait, medians["seconds"]
    return table.join(outcomes["added_ms"])


def own_numbers(measured: Measurements, operation: Operation) -> pd.DataFrame:
    """Return the cost of each measured scheme in the user's operation, one row per scheme."""
    rows, schemes = measured.recoveries, []
    width = int(rows["width"].max())
    for name, costs in measured.costs.items():
        if name == NOTHING:
            continue
        exact = COMPARED.get(name, name)
        replayed = expected_again(rows, name, width) / expected_again(rows, exact, width)
        if name in BY_PROCESS:
            schemes.append(Scheme(name, costs, 1.0, replayed, measured.checkpoints))
        else:
            skips = name in (MODEL, GUARD)
            schemes.append(Scheme(name, costs, 1 / measured.workers, replayed, skips_input=skips))
    return monthly_costs(operation, schemes)
