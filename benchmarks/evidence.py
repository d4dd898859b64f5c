"""Stored results as tables of the packages that judge by them or show them.

python -m benchmarks.evidence
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from aftlib.documents.shared_state.experiments import STORED
from aftlib.sensor_plans.experiments import STORED_PEERS

RESULTS = Path(__file__).parent / "results"
KINDS = (("spark", 2), ("flink", 2), ("flink_one_task", 1))


def read_result(name: str) -> dict[str, Any]:
    """Return a benchmark's stored result."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def tabulate_engines(stored: dict[str, Any]) -> pd.DataFrame:
    """Return the medians of ``merging.json``; a system that was left out has no rows."""
    rows = []
    for kind, tasks in KINDS:
        engines = stored[f"{kind}_million_tuples_a_second"]
        if isinstance(engines, str):  # why it was left out
            continue
        for engine, by_skew in engines.items():
            for skew, (middle, *_) in by_skew.items():
                speed = round(1e6 * middle)
                rows.append((engine, tasks, float(skew), stored["tuples"], stored["runs"], speed))
    columns = ["engine", "tasks", "skew", "tuples", "runs", "throughput"]
    return pd.DataFrame(rows, columns=columns).assign(**read_origin(stored))


def tabulate_kills(stored: dict[str, Any]) -> pd.DataFrame:
    """Return D3's rows of ``kills.json``."""
    columns = ["killed", "point", "kills", "wrong", "disturbed"]
    return pd.DataFrame(stored["kills"])[columns].assign(**read_origin(stored))


def tabulate_peers(stored: dict[str, Any]) -> pd.DataFrame:
    """Return what each rule of ``guard_peers.json`` certified, and the share of this wrong."""
    columns = ["data", "epsilon", "rule", "certified", "wrong"]
    rows = pd.DataFrame([*stored["real"], *stored["hard"]])[columns].round(4)
    return rows.assign(commit=stored["machine"]["commit"], date=stored["date"])


def read_origin(stored: dict[str, Any]) -> dict[str, str]:
    """Return date and processor of a result."""
    return {"date": stored["date"], "processor": stored["machine"]["processor"]}


if __name__ == "__main__":
    STORED.mkdir(exist_ok=True)
    tabulate_engines(read_result("merging")).to_csv(STORED / "engines.csv", index=False)
    tabulate_kills(read_result("kills")).to_csv(STORED / "kills.csv", index=False)
    STORED_PEERS.parent.mkdir(exist_ok=True)
    tabulate_peers(read_result("guard_peers")).to_csv(STORED_PEERS, index=False)
