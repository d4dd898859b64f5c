"""Run the scenario and store its tables where the library reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from aftlib.core.paths import write_whole
from aftlib.upstream_backup.experiments.recoveries import STORED_RUNS, SWITCHES, Cases
from aftlib.upstream_backup.failures import drawn_phases, failure_times
from aftlib.upstream_backup.parameters import Parameters, Tcp
from aftlib.upstream_backup.schemes import SCHEMES
from benchmarks.ns3.scenario import Scenario

RATES = (200, 500, 1000, 2000, 5000, 10_000, 15_000, 20_000)
SWITCH_RATES = (200, 1000, 5000, 20_000)
TRIALS, SEED = 10, 1
COMMAND = "make ns3"
EACH: Cases = {name: (one, {}, {}) for name, one in SCHEMES.items()}
TABLES: dict[str, tuple[str, Cases, Sequence[int], int]] = {
    "traffic": ("scheme", EACH, SWITCH_RATES, 2),
    "switches": ("switch", SWITCHES, SWITCH_RATES, TRIALS),
    "recoveries": ("scheme", EACH, RATES, TRIALS),
}
"""Of each table the column that tells its cases apart, the cases, the rates, and the trials."""


def run_cases(
    name: str,
    scenario: Scenario,
    rates: Sequence[int] | None = None,
    trials: int | None = None,
    report: Callable[[str], object] = str,
) -> pd.DataFrame:
    """Run a table's cases at every rate with the same failure times and phases.

    `rates` and `trials` are the table's own unless given; `report` is called with the name of each
    finished part.
    """
    by, cases, usual, count = TABLES[name]
    count, parts = trials or count, []
    times, phases = failure_times(count, SEED).tolist(), drawn_phases(count, SEED)
    for rate in rates or usual:
        for case, (scheme, tcp, options) in cases.items():
            parameters = Parameters(rate=rate, tcp=replace(Tcp(), **tcp))  # type: ignore[arg-type]
            found = scenario.run(parameters, scheme, times, phases, **options)  # type: ignore[arg-type]
            found.insert(0, "rate", rate)
            found.insert(1, by, case)
            drawn = pd.DataFrame(map(vars, phases)).add_suffix("_phase")
            parts.append(found.join(drawn))
            report(f"{rate} tuples/s, {case}")
    return pd.concat(parts, ignore_index=True)


def write(name: str, table: pd.DataFrame) -> Path:
    """Store a table with the command that made it in its first line."""
    return write_whole(STORED_RUNS / f"{name}.csv", f"# {COMMAND}\n" + table.to_csv(index=False))
