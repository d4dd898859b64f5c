"""Stored runs that D3's claims read: Flink's jobs, and long series of kills.

``python -m benchmarks merging`` and ``kills`` make them; `benchmarks.evidence` writes them into
this package, so that an installed package has them, too.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent / "stored"


def stored_engines() -> pd.DataFrame:
    """Return throughput of stored runs of Flink's jobs and of the strategies (D3's prototype).

    Columns engine, tasks, skew, tuples, runs, throughput (median, tuples per second), date and
    processor of the run.
    """
    return pd.read_csv(FOLDER / "engines.csv")


def stored_kills() -> pd.DataFrame:
    """Return stored kills of tasks and servers.

    Columns killed, point, kills: their number, wrong and disturbed: how many of them, date and
    processor of the run.
    """
    return pd.read_csv(FOLDER / "kills.csv")
