"""The parameters of notebook 03, and the streams that its experiments read (D3 section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from aftlib.core.windows import Windows
from aftlib.shared_state.paced import SLICES
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.scaling import GROWTH, SKEWED
from aftlib.shared_state.tuplelog import (
    ROWS_PER_RANGE,
    UNIFORM,
    TupleLog,
    TupleStream,
    write_tuples,
)
from aftlib.workbench.parameters import ParameterModel, parameter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 8
FEWEST = 10_000
"""Least tuples of a measured stream: fewer take too little time for Spark's clock."""
MOST_CHECKPOINTS = 100
FEW_SKEWS: Any = {"smoke": [0.0, 1.4, 2.0], "quick": [0.0, 1.4, 2.0]}
STORE_KEYS: Any = {"smoke": [10_000], "full": [10_000, 100_000, 1_000_000]}
PACED_TUPLES: Any = {"smoke": 10_000_000, "full": 100_000_000}
STREAM_TUPLES: Any = {"least": 2, "smoke": 1_000_000, "quick": 5_000_000, "full": 50_000_000}


class NotebookParameters(ParameterModel):
    """Parameters of notebook 03."""

    skews: list[int | float] = parameter(
        [0.0, 1.2, 1.4, 1.6, 1.8, 2.0], "Zipf's parameter; 0 is uniform", least=0, **FEW_SKEWS
    )
    tuples: int = parameter(
        1_000_000, "of each measured stream", least=FEWEST, smoke=200_000, full=10_000_000
    )
    keys: int = parameter(100_000, "that may occur", least=1)
    seed: int = parameter(1, "of all streams", least=0)
    tasks: list[int] = parameter([1, 2], "parallelism that is measured", least=1)
    repeats: int = parameter(
        3, "counted runs of each strategy, skew and parallelism", least=1, smoke=1, full=5
    )
    large_tuples: int = parameter(
        0, "of further streams, measured once with the most tasks; 0 for none", full=100_000_000
    )
    large_skews: list[int | float] = parameter(
        [], "skews of the further streams", full=[0.0, 1.4, 2.0]
    )
    paced_keys: list[int] = parameter(
        [1_000, 10_000], "that may occur, on emulated cores", least=1, full=[1_000, 10_000, 100_000]
    )
    paced_tasks: list[int] = parameter(
        [8, 24, 48], "parallelism on emulated cores", least=1, full=[8, 16, 24, 48]
    )
    paced_tuples: int = parameter(
        50_000_000, "on emulated cores; the document's are 10⁸", least=SLICES, **PACED_TUPLES
    )
    paced_turns: int = parameter(
        3, "repetitions of the runs on emulated cores", least=1, smoke=1, full=8
    )
    slowdown: float = parameter(3.0, "of an emulated core", least=1, full=6.0)
    failure_tuples: int = parameter(
        2_000_000, "of the stream in which a task is killed", least=1, smoke=400_000
    )
    every: int = parameter(
        200_000, "tuples of a task between two checkpoints", least=4, smoke=50_000
    )
    after: int = parameter(
        500_000, "tuples that the task has gone through when it is killed", least=1, smoke=120_000
    )
    shared_tuples: int = parameter(
        100_000, "of each of four partitions, when a server and a task are killed", least=1_000
    )
    store_keys: list[int] = parameter(
        [10_000, 100_000], "sizes of the tables of each store", least=1, **STORE_KEYS
    )
    store_rows: int = parameter(
        100_000, "rows merged into each table, in every turn", least=1, full=1_000_000
    )
    store_turns: int = parameter(4, "repetitions for all stores", least=1, smoke=2, full=5)
    stream_tuples: int = parameter(
        20_000_000, "of the stream that measures what checkpoints take away", **STREAM_TUPLES
    )
    stream_runs: int = parameter(1, "runs of this stream in each mode", least=1, full=3)

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse values with which a claim has nothing to compare, or no task crashes."""
        large, most, smallest = self.large_tuples, max(self.tasks), self.smallest_input
        fewest = self.failure_tuples / MOST_CHECKPOINTS
        rules = {
            f"skews must hold {UNIFORM:g} (uniform) to compare with": UNIFORM in self.skews,
            f"skews must hold one of {SKEWED} or more": max(self.skews) >= SKEWED,
            f"paced_tasks must hold {GROWTH} and more": set(GROWTH) < set(self.paced_tasks),
            f"paced_tasks must be divisors of {SLICES}": all(
                SLICES % tasks == 0 for tasks in self.paced_tasks
            ),
            "tasks must hold 2 or more, so that one can crash and one go on": most >= 2,
            f"large_tuples must be 0 for none or at least {FEWEST}": large == 0 or large >= FEWEST,
            "each of large_skews must be at least 0": min(self.large_skews, default=0) >= 0,
            f"every must be at least failure_tuples / {MOST_CHECKPOINTS} = {fewest:g}": (
                self.every >= fewest
            ),
            f"after must be at most {smallest}, which each of {most} tasks reads of "
            f"failure_tuples = {self.failure_tuples}": self.after <= smallest,
        }
        for rule, satisfied in rules.items():
            if not satisfied:
                name = rule.removeprefix("each of ").split()[0]
                raise ValueError(f"{rule}, got {getattr(self, name)}: change {name}")
        return self

    @property
    def smallest_input(self) -> int:
        """Tuples of the task that reads fewest of `failure_tuples`."""
        ranges = range(0, self.failure_tuples, ROWS_PER_RANGE)
        partitions = [0] * PARTITIONS
        for index, first in enumerate(ranges):  # as `write_tuples` deals them
            partitions[index % PARTITIONS] += min(ROWS_PER_RANGE, self.failure_tuples - first)
        tasks = min(max(self.tasks), PARTITIONS)
        return min(sum(partitions[task::tasks]) for task in range(tasks))

    def streams(self, tuples: int, skews: Sequence[float]) -> list[TupleStream]:
        """Return a stream of `tuples` tuples for each skew, of the notebook's keys and seed."""
        return [TupleStream(tuples, self.keys, skew, self.seed) for skew in skews]


@dataclass(frozen=True)
class Input:
    """A stream, its log, and the single window over which the document sums it."""

    stream: TupleStream
    log: TupleLog

    @property
    def rules(self) -> Rules:
        """One tumbling window over everything, as in the document."""
        return Rules(Windows(self.stream.ticks, self.stream.ticks))


def inputs(
    spark: SparkSession,
    directory: Path,
    streams: Sequence[TupleStream],
    partitions: int = PARTITIONS,
) -> list[Input]:
    """Draw a log of each stream on Spark; reuse logs that exist."""
    return [
        Input(s, write_tuples(spark, s, partitions, directory / f"tuples-{s.name}-p{partitions}"))
        for s in streams
    ]
