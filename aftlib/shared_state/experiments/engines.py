"""Other engines beside the strategies, as the merging benchmark stored them."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from aftlib.core.paths import project_root

_ENGINES = (
    ("Spark, ", "two tasks", "spark"),
    ("", "two tasks", "flink"),
    ("", "one core", "one_core"),
)
"""What comes before an engine's name, on what it ran, and where it is stored."""


def _stored() -> list[dict[str, Any]]:
    """Results of the merging benchmark that lie in the project."""
    folder = project_root() / "benchmarks" / "results"
    return [json.loads(path.read_text()) for path in sorted(folder.glob("merging*.json"))]


def other_engines() -> pd.DataFrame:
    """Throughput of the strategies and of other engines, as `benchmarks merging` stored it.

    Returns
    -------
    DataFrame
        tuples, on (two tasks, or one core), engine, skew, throughput: tuples a second, the median;
        runs: of the strategies. Empty where nothing is stored.
    """
    rows = []
    for stored in _stored():
        for name, on, kind in _ENGINES:
            found = stored[f"{kind}_million_tuples_a_second"]
            if isinstance(found, str):  # why there is none
                continue
            at = {"tuples": stored["tuples"], "runs": stored["runs"], "on": on}
            rows += [
                at | {"engine": name + engine, "skew": float(skew), "throughput": 1e6 * middle}
                for engine, by_skew in found.items()
                for skew, (middle, *_) in by_skew.items()
            ]
    return pd.DataFrame(rows, columns=["tuples", "runs", "on", "engine", "skew", "throughput"])


def memory_stored() -> pd.DataFrame:
    """Most resident gigabytes of late local merge on Spark, as `benchmarks merging` stored them.

    Returns
    -------
    DataFrame
        tuples, gigabytes: the larger of two runs of the same size. Empty where nothing is stored.
    """
    found: dict[int, float] = {}
    for stored in _stored():
        for tuples, size in stored["memory_gb_at_most_by_tuples"].items():
            number = int(tuples.replace(",", ""))
            found[number] = max(size, found.get(number, 0.0))
    return pd.DataFrame(sorted(found.items()), columns=["tuples", "gigabytes"])
