"""Compile the scenario, run it, and store its tables: `make ns3` (some minutes)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.ns3 import generator
from benchmarks.ns3.scenario import Scenario, missing


def main() -> None:
    """Make all tables anew."""
    if lacks := missing():
        sys.exit(lacks)
    with tempfile.TemporaryDirectory(prefix="aft-") as folder:
        scenario = Scenario.compiled(Path(folder))
        for name in generator.TABLES:
            found = generator.run_cases(
                name, scenario, report=lambda text: sys.stderr.write(f"{text}\n")
            )
            sys.stderr.write(f"{generator.write(name, found)}: {len(found)} rows\n")


if __name__ == "__main__":
    main()
