"""Make D4's reference tables on the network simulator ns-3.

`python -m benchmarks.ns3.make_tables` makes all tables, and with names of tables only those. It
needs g++ and ns-3 3.37 or newer (Debian: libns3-dev), and takes some minutes.

In the tables `traffic` and `recoveries` TCP acknowledges each segment at once, as in the simulation
with which they are compared. The table `switches` has all of `ACKNOWLEDGEMENTS`.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import pandas as pd

from aftlib.documents.upstream_backup.stored_runs import (
    ACKNOWLEDGEMENTS,
    AT_ONCE,
    STORED_RUNS,
    STORED_SEED,
    SWITCHES,
)
from aftlib.documents.upstream_backup.system import (
    MS,
    SCHEMES,
    Phases,
    Scheme,
    System,
    drawn_phases,
    failure_times,
)

SOURCE = Path(__file__).with_name("standby.cc")
LIBRARIES = ("point-to-point", "internet", "traffic-control", "bridge", "stats", "network", "core")
HEADERS = [Path(folder, "ns3/core-module.h") for folder in ("/usr/include", "/usr/local/include")]
RATES = (200, 500, 1000, 2000, 5000, 10_000, 15_000, 20_000)
FEW_RATES = (200, 1000, 5000, 20_000)
TRIALS = 10
TABLES = {"traffic": (FEW_RATES, 2), "recoveries": (RATES, TRIALS)}
"""Of each table with all schemes: the rates, and the trials at each."""
SWITCH_RATES = {25: 100, 50: 100, 100: 100, 200: 100, 500: 100, 1000: 100, 5000: 10, 20_000: 10}
"""Trials at each rate of the table `switches`: many where D4-4 is judged."""


def missing() -> str | None:
    """What is missing to run ns-3 here; None if nothing."""
    if shutil.which("g++") is None:
        return "no g++ on the PATH: install a C++ compiler"
    if not any(header.exists() for header in HEADERS):
        return "no ns-3 headers: install ns-3 3.37 or newer (Debian, Ubuntu: package libns3-dev)"
    return None


def compile_scenario(folder: Path) -> Path:
    """Compile the scenario into a folder and return the program."""
    program = folder / "standby"
    libraries = [f"-lns3-{name}" for name in LIBRARIES]
    run(["g++", "-std=c++17", "-O2", "-o", str(program), str(SOURCE), *libraries])
    return program


def run_scenario(
    program: Path,
    system: System,
    scheme: Scheme,
    failures_ms: Sequence[float],
    phases: Sequence[Phases],
    nagle: str = "off",
    acknowledgements: str = AT_ONCE,
) -> pd.DataFrame:
    """One run per failure of the primary: its measures, and bytes per second on all links.

    `nagle`: connections with Nagle's algorithm, "off", "recovery" or "stream".
    `acknowledgements`: a key of `ACKNOWLEDGEMENTS`.
    """
    trials = []
    for time, one in zip(failures_ms, phases, strict=True):
        drawn = replace(system, phases=one)
        begins = [drawn.cycle(f.name)[1] / MS for f in fields(Phases)]
        trials.append(":".join(f"{value:.6f}" for value in (time, *begins)))
    count, first_at_once = ACKNOWLEDGEMENTS[acknowledgements]
    given = {
        "scheme": re.sub(r"[ ()]+", "-", scheme.name).strip("-").lower(),
        "failed": "primary",
        "trials": ",".join(trials),
        "rate": system.rate,
        "ack": system.ack_ms,
        "heartbeat": system.heartbeat_ms,
        "switching": system.switching_ms,
        "checkpoint": system.checkpoint_ms,
        "write": system.write_ms,
        "processing": system.processing_us,
        "tuple": system.tuple_bytes,
        "message": system.message_bytes,
        "state": system.state_bytes,
        "bandwidth": system.link.bandwidth_mbps,
        "delay": system.link.delay_ms,
        "segment": system.tuples_per_segment * system.tuple_bytes,
        "initialWindow": system.tcp.initial_window or 1_000_000,
        "handshake": int(system.tcp.handshake),
        "nagle": nagle,
        "delayedAcks": count,
        "firstAtOnce": int(first_at_once),
    }
    return pd.read_csv(
        io.StringIO(run([str(program), *(f"--{name}={value}" for name, value in given.items())]))
    )


def run(command: Sequence[str]) -> str:
    """Return what a program prints; RuntimeError with its message when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-2000:] or 'no message'}")
    return done.stdout


def make_table(program: Path, rates: Sequence[int], trials: int) -> pd.DataFrame:
    """Run all schemes at every rate with the same failure times and phases."""
    times = failure_times(trials, STORED_SEED).tolist()
    phases = drawn_phases(trials, STORED_SEED)
    parts = []
    for rate in rates:
        for name, scheme in SCHEMES.items():
            rows = run_scenario(program, System(rate=rate), scheme, times, phases)
            rows.insert(0, "rate", rate)
            rows.insert(1, "scheme", name)
            parts.append(rows.join(pd.DataFrame(map(vars, phases)).add_suffix("_phase")))
            print(f"{rate} tuples/s, {name}", file=sys.stderr)
    return pd.concat(parts, ignore_index=True)


def make_switches(program: Path, trials: Mapping[int, int]) -> pd.DataFrame:
    """Run every switch of TCP at each rate of `trials`, with each kind of acknowledgement.

    One row per failure, whose time and phases are those of `failure_times` and `drawn_phases` at
    position `trial`. One column per switch: the recovery time in ms.
    """
    parts = []
    for kind, (rate, count) in product(ACKNOWLEDGEMENTS, trials.items()):
        times = failure_times(count, STORED_SEED).tolist()
        phases = drawn_phases(count, STORED_SEED)
        table = pd.DataFrame({"acknowledgements": kind, "rate": rate, "trial": range(count)})
        for name, switch in SWITCHES.items():
            system = System(rate=rate, tcp=switch.tcp)
            runs = run_scenario(program, system, switch.scheme, times, phases, switch.nagle, kind)
            table[name] = runs["recovery_ms"].round(3)
        parts.append(table)
        print(f"switches: {kind}, {rate} tuples/s", file=sys.stderr)
    return pd.concat(parts, ignore_index=True)


def main(names: Sequence[str]) -> None:
    """Make the named tables anew, where the library reads them; all of them without a name."""
    known = [*TABLES, "switches"]
    if unknown := sorted(set(names) - set(known)):
        sys.exit(f"name must be {', '.join(known)}, got {unknown[0]!r}: leave it out for all")
    if lacks := missing():
        sys.exit(lacks)
    with tempfile.TemporaryDirectory() as folder:
        program = compile_scenario(Path(folder))
        for name in names or known:
            if name in TABLES:
                table = make_table(program, *TABLES[name])
            else:
                table = make_switches(program, SWITCH_RATES)
            head = "# python -m benchmarks.ns3.make_tables\n"
            (STORED_RUNS / f"{name}.csv").write_text(head + table.to_csv(index=False))


if __name__ == "__main__":
    main(sys.argv[1:])
