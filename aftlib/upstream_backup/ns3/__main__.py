"""Compile the scenario, run it, and store its tables: `make ns3` (some minutes)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from aftlib.upstream_backup.ns3 import reference
from aftlib.upstream_backup.ns3.scenario import Scenario, missing


def main() -> None:
    """Make all tables anew."""
    if lacks := missing():
        sys.exit(lacks)
    with tempfile.TemporaryDirectory(prefix="aft-") as folder:
        scenario = Scenario.compiled(Path(folder))
        for name in reference.TABLES:
            found = reference.made(name, scenario, told=lambda text: sys.stderr.write(f"{text}\n"))
            sys.stderr.write(f"{reference.write(name, found)}: {len(found)} rows\n")


if __name__ == "__main__":
    main()
