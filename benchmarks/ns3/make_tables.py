"""Make D4's reference tables on the network simulator ns-3.

`python -m benchmarks.ns3.make_tables` needs g++ and ns-3 3.37 or newer (Debian: libns3-dev), and
takes some minutes.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd

from aftlib.upstream_backup.experiments import STORED_RUNS, SWITCHES
from aftlib.upstream_backup.system import (
    MS,
    SCHEMES,
    Parameters,
    Phases,
    Scheme,
    Tcp,
    drawn_phases,
    failure_times,
)

SOURCE = Path(__file__).with_name("standby.cc")
LIBRARIES = ("point-to-point", "internet", "traffic-control", "bridge", "stats", "network", "core")
HEADERS = [Path(folder, "ns3/core-module.h") for folder in ("/usr/include", "/usr/local/include")]
INTERVALS = ("ack", "heartbeat", "switching", "checkpoint", "write")
RATES = (200, 500, 1000, 2000, 5000, 10_000, 15_000, 20_000)
FEW_RATES = (200, 1000, 5000, 20_000)
TRIALS, SEED = 10, 1
EACH = {name: (scheme, {}, {}) for name, scheme in SCHEMES.items()}
TABLES = {
    "traffic": ("scheme", EACH, FEW_RATES, 2),
    "switches": ("switch", SWITCHES, FEW_RATES, TRIALS),
    "recoveries": ("scheme", EACH, RATES, TRIALS),
}
"""Of each table the column that tells its cases apart, the cases, the rates, and the trials."""


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
    parameters: Parameters,
    scheme: Scheme,
    failures_ms: Sequence[float],
    phases: Sequence[Phases],
    options: dict[str, int],
) -> pd.DataFrame:
    """One run per failure of the primary: its measures, and bytes per second on all links."""
    trials = []
    for time, one in zip(failures_ms, phases, strict=True):
        system = replace(parameters, phases=one)
        begins = [system.cycle(f.name)[1] / MS for f in fields(Phases)]
        trials.append(":".join(f"{value:.6f}" for value in (time, *begins)))
    link, tcp = parameters.link, parameters.tcp
    given = {name: getattr(parameters, f"{name}_ms") for name in INTERVALS}
    given |= {
        "rate": parameters.rate, "processing": parameters.processing_us,
        "tuple": parameters.tuple_bytes, "message": parameters.message_bytes,
        "state": parameters.state_bytes, "bandwidth": link.bandwidth_mbps, "delay": link.delay_ms,
        "segment": parameters.tuples_per_segment * parameters.tuple_bytes,
        "initialWindow": tcp.initial_window or 1_000_000, "handshake": int(tcp.handshake),
        "nagle": options.get("nagle", 0), "delayedAcks": options.get("delayed_acks", 1),
        "scheme": re.sub(r"[ ()]+", "-", scheme.name).strip("-").lower(),
        "failed": "primary", "trials": ",".join(trials),
    }  # fmt: skip
    return pd.read_csv(
        io.StringIO(run([str(program), *(f"--{name}={value}" for name, value in given.items())]))
    )


def run(command: Sequence[str]) -> str:
    """Return what a program prints; RuntimeError with its message when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-2000:] or 'no message'}")
    return done.stdout


def make_table(name: str, program: Path, rates: Sequence[int], trials: int) -> pd.DataFrame:
    """Run a table's cases at every rate with the same failure times and phases."""
    by, cases, *_ = TABLES[name]
    times, phases, parts = failure_times(trials, SEED).tolist(), drawn_phases(trials, SEED), []
    for rate in rates:
        for case, (scheme, tcp, options) in cases.items():
            system = Parameters(rate=rate, tcp=replace(Tcp(), **tcp))
            rows = run_scenario(program, system, scheme, times, phases, options)
            rows.insert(0, "rate", rate)
            rows.insert(1, by, case)
            parts.append(rows.join(pd.DataFrame(map(vars, phases)).add_suffix("_phase")))
            print(f"{name}: {rate} tuples/s, {case}", file=sys.stderr)
    return pd.concat(parts, ignore_index=True)


def main() -> None:
    """Make all tables anew, where the library reads them."""
    if lacks := missing():
        sys.exit(lacks)
    with tempfile.TemporaryDirectory() as folder:
        program = compile_scenario(Path(folder))
        for name, (*_, rates, trials) in TABLES.items():
            table = make_table(name, program, rates, trials)
            head = "# python -m benchmarks.ns3.make_tables\n"
            (STORED_RUNS / f"{name}.csv").write_text(head + table.to_csv(index=False))


if __name__ == "__main__":
    main()
