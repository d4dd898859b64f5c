"""Reference tables that ns-3 made, kept beside its scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd

from aftlib.core.paths import write_whole
from aftlib.upstream_backup.failures import drawn_phases, failure_times
from aftlib.upstream_backup.ns3.scenario import Scenario
from aftlib.upstream_backup.parameters import Parameters, Phases, Tcp
from aftlib.upstream_backup.schemes import PROPOSED, SCHEMES, UPSTREAM, Scheme

RATES = (200, 500, 1000, 2000, 5000, 10_000, 15_000, 20_000)
SWITCH_RATES = (200, 1000, 5000, 20_000)
TRIALS, SEED = 10, 1
COMMAND = "make ns3"
PLACE = Path(__file__).parent
Cases = dict[str, tuple[Scheme, dict[str, object], dict[str, int]]]
SWITCHES: Cases = {
    "as it is": (UPSTREAM, {}, {}),
    "no handshake": (UPSTREAM, {"handshake": False}, {}),
    "no initial window": (UPSTREAM, {"initial_window": None}, {}),
    "initial window 1": (UPSTREAM, {"initial_window": 1}, {}),
    "Nagle on": (UPSTREAM, {}, {"nagle": 1}),
    "delayed ACKs": (UPSTREAM, {}, {"delayed_acks": 2}),
    "window 1, delayed ACKs": (UPSTREAM, {"initial_window": 1}, {"delayed_acks": 2}),
    "neither": (UPSTREAM, {"handshake": False, "initial_window": None}, {}),
    "proposed": (PROPOSED, {}, {}),
    "proposed, Nagle on": (PROPOSED, {}, {"nagle": 1}),
}
"""What is changed about TCP, one at a time: scheme, fields of `Tcp`, options of the scenario."""

EACH: Cases = {name: (one, {}, {}) for name, one in SCHEMES.items()}
TABLES: dict[str, tuple[str, Cases, Sequence[int], int]] = {
    "traffic": ("scheme", EACH, SWITCH_RATES, 2),
    "switches": ("switch", SWITCHES, SWITCH_RATES, TRIALS),
    "recoveries": ("scheme", EACH, RATES, TRIALS),
}
"""Of each table the column that tells its cases apart, the cases, the rates, and the trials."""


def made(
    name: str,
    scenario: Scenario,
    rates: Sequence[int] | None = None,
    trials: int | None = None,
    told: Callable[[str], object] = str,
) -> pd.DataFrame:
    """Run a table's cases at every rate with the same failure times and phases.

    `rates` and `trials` are the table's own unless given; `told` is told of each part that is done.
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
            told(f"{rate} tuples/s, {case}")
    return pd.concat(parts, ignore_index=True)


def write(name: str, table: pd.DataFrame) -> Path:
    """Store a table with the command that made it in its first line."""
    return write_whole(PLACE / f"{name}.csv", f"# {COMMAND}\n" + table.to_csv(index=False))


def read(name: str) -> pd.DataFrame:
    """A stored table: rate, scheme or switch, what `Scenario.run` returns, and the phases."""
    return pd.read_csv(PLACE / f"{name}.csv", comment="#")


def systems(table: pd.DataFrame) -> list[Parameters]:
    """The system of each row of a stored table."""
    drawn = table[[f"{one.name}_phase" for one in fields(Phases)]].to_numpy().tolist()
    rows = zip(table["rate"].tolist(), drawn, strict=True)
    return [Parameters(rate=rate, phases=Phases(*phases)) for rate, phases in rows]
