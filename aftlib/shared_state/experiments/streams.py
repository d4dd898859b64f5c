"""What D3's experiments run on: checked parameters, and logs with more or less skew (section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aftlib.core.checks import require_number, require_numbers
from aftlib.core.windows import Windows
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.scaling import GROWTH, SKEWED
from aftlib.shared_state.tuplelog import (
    ROWS_PER_RANGE,
    UNIFORM,
    TupleLog,
    TupleStream,
    write_tuples,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 8
FEWEST = 10_000
"""Tuples below which nothing takes a time that Spark's clock shows."""
MOST_CHECKPOINTS = 100
LEAST = {
    "tuples": FEWEST,
    "keys": 1,
    "seed": 0,
    "repeats": 1,
    "large_tuples": 0,
    "modelled_tuples": 1,
    "locality_tuples": 1,
    "failure_tuples": 1,
    "every": 4,
    "after": 1,
    "shared_tuples": 1_000,
    "store_rows": 1,
    "stream_tuples": 2,
    "stream_runs": 1,
}
"""The least that each parameter of the report may be; all of them are whole numbers."""
LEAST_OF_EACH = {
    "skews": 0,
    "large_skews": 0,
    "tasks": 1,
    "modelled_tasks": 1,
    "locality_keys": 1,
    "store_keys": 1,
}
"""The same for its lists: whole numbers, but for skews."""


@dataclass(frozen=True)
class Input:
    """A stream, its log, and the one big window that the document sums it by."""

    stream: TupleStream
    log: TupleLog

    @property
    def rules(self) -> Rules:
        """One tumbling window over everything, as in the document."""
        return Rules(Windows(self.stream.ticks, self.stream.ticks))


def inputs(
    spark: SparkSession,
    directory: Path,
    *,
    skews: Sequence[float],
    tuples: int,
    keys: int,
    seed: int,
    partitions: int = PARTITIONS,
) -> list[Input]:
    """A log for each skew, drawn on Spark; kept by its parameters and used again when there."""
    streams = [TupleStream(tuples, keys, skew, seed) for skew in skews]
    return [
        Input(s, write_tuples(spark, s, partitions, directory / f"tuples-{s.name}-p{partitions}"))
        for s in streams
    ]


def check_parameters(**given: Any) -> None:
    """Refuse, before anything is measured, parameters of the report that do not work to its end.

    A ValueError has the parameter, its value, and the way out; a TypeError says that one is
    missing, or is none of the notebook's.
    """
    if set(given) != {*LEAST, *LEAST_OF_EACH}:
        raise TypeError(f"check_parameters takes {[*LEAST, *LEAST_OF_EACH]}, got {[*given]}")
    for name, least in LEAST_OF_EACH.items():
        if name != "large_skews" or given[name] not in ([], ()):
            require_numbers(name, given[name], least=least, whole=not name.endswith("skews"))
    for name, least in LEAST.items():
        require_number(name, given[name], least=least, whole=True)

    skews, tasks, modelled_tasks = (given[n] for n in ("skews", "tasks", "modelled_tasks"))
    if UNIFORM not in skews:
        raise ValueError(
            f"skews must hold {UNIFORM:g} (uniform), which all others are compared with, "
            f"got {list(skews)}: add {UNIFORM:g}"
        )
    if max(skews) < SKEWED:
        raise ValueError(
            f"skews must hold one of {SKEWED} or more, got {list(skews)}: add {SKEWED}, for which "
            "D3 says that a shuffle does not grow"
        )
    if missing := sorted(set(GROWTH) - set(modelled_tasks)):
        raise ValueError(
            f"modelled_tasks must hold {GROWTH[0]} and {GROWTH[1]}, between which growth is "
            f"judged, got {list(modelled_tasks)}: add {missing}"
        )
    if max(tasks) < 2:
        raise ValueError(
            f"tasks must hold 2 or more, for one to die and one to live, got {list(tasks)}: add 2"
        )
    if 0 < given["large_tuples"] < FEWEST:
        raise ValueError(
            f"large_tuples must be 0 for none or at least {FEWEST}, got {given['large_tuples']}"
        )
    number, parts, most = given["failure_tuples"], [0] * PARTITIONS, min(max(tasks), PARTITIONS)
    if given["every"] * MOST_CHECKPOINTS < number:
        raise ValueError(
            f"every must be at least failure_tuples / {MOST_CHECKPOINTS} = "
            f"{number / MOST_CHECKPOINTS:g}, got {given['every']}: more checkpoints take too long"
        )
    for index, first in enumerate(range(0, number, ROWS_PER_RANGE)):  # as `write_tuples` deals them
        parts[index % PARTITIONS] += min(ROWS_PER_RANGE, number - first)
    least = min(sum(parts[task::most]) for task in range(most))
    if given["after"] > least:
        raise ValueError(
            f"after must be at most {least}, which each of {most} tasks goes through of "
            f"failure_tuples = {number}, got {given['after']}: lower it, or take more tuples"
        )
