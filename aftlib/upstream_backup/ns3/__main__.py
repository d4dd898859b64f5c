"""Compile the scenario, run it, and store its tables: `make ns3` (some minutes)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from aftlib.upstream_backup.ns3 import tables
from aftlib.upstream_backup.ns3.scenario import Scenario, missing


def main() -> None:
    """Make both tables anew."""
    if lacks := missing():
        sys.exit(lacks)
    say = sys.stderr.write
    with tempfile.TemporaryDirectory(prefix="aft-") as name:
        scenario = Scenario.compiled(Path(name))
        for table in ("switches", "recoveries"):
            make = getattr(tables, f"make_{table}")
            found = make(scenario, told=lambda text: say(f"{text}\n"))
            say(f"{tables.write(table, found)}: {len(found)} rows\n")


if __name__ == "__main__":
    main()
