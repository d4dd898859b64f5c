"""Lines reached by the quick tests must not become fewer: one floor per package (floors.json).

    make coverage                    measure, and hold against the floors
    make coverage FLOORS=--raise     write the measured shares as the new floors

A package's figures and claims have floors of their own, because they are pure functions.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FLOORS = Path(__file__).with_name("floors.json")
APART = ("figures", "claims")


def shares(measured: Mapping[str, Any]) -> dict[str, int]:
    """Per cent of lines reached, by package, from coverage.py's JSON; rounded down."""
    lines, reached = Counter[str](), Counter[str]()
    for name, report in measured["files"].items():
        package, module = Path(name).parts[1], Path(name).stem
        group = f"{package}/{module}" if module in APART else package
        lines[group] += report["summary"]["num_statements"]
        reached[group] += report["summary"]["covered_lines"]
    return {group: 100 * reached[group] // lines[group] for group in sorted(lines) if lines[group]}


def list_drops(percents: Mapping[str, int], floors: Mapping[str, int]) -> list[str]:
    """Return a message for each package below its floor."""
    return [
        f"{package}: {percents.get(package, 0)} % of the lines, its floor is {floor} %"
        for package, floor in floors.items()
        if percents.get(package, 0) < floor
    ]


def main(path: str, *options: str) -> None:
    """Print the shares, and end with an error below a floor."""
    percents = shares(json.loads(Path(path).read_text()))
    if "--raise" in options:
        FLOORS.write_text(json.dumps(percents, indent=1) + "\n")
    floors = json.loads(FLOORS.read_text())
    for package, share in percents.items():
        print(f"{share:4} %  (floor {floors.get(package, 0)} %)  {package}")
    if below := list_drops(percents, floors):
        sys.exit("\n".join(["coverage fell:", *below]))


if __name__ == "__main__":
    main(*sys.argv[1:])
