"""Run benchmarks by name, all by default; results go to benchmarks/results/NAME.json."""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from pathlib import Path

NAMES = (
    "assignment",
    "pipeline",
    "checkpoints",
    "large",
    "merging",
    "stores",
    "standby",
    "histogram",
    "guard",
    "partial",
    "cluster",
)
RESULTS = Path(__file__).parent / "results"


def main(chosen: list[str]) -> None:
    """Run each benchmark's `run()` and write what it returns."""
    unknown = [name for name in chosen if name not in NAMES]
    if unknown:
        sys.exit(f"no benchmark {unknown[0]!r}; known are {', '.join(NAMES)}")
    for name in chosen or NAMES:
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        found = {"benchmark": name, "machine": machine}
        found |= importlib.import_module(f"benchmarks.{name}").run()
        text = json.dumps(found, indent=1)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{found['benchmark']}.json").write_text(text + "\n")
        print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
