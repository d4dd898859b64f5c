"""Run benchmarks by name, all by default; results go to benchmarks/results/NAME.json.

A run of another size names its result itself, so that the stored one stays.
"""

from __future__ import annotations

import importlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.timing import machine

FOLDER = Path(__file__).parent
NAMES = sorted(
    path.stem for path in FOLDER.glob("*.py") if "\ndef run(" in path.read_text(encoding="utf-8")
)


def main(chosen: list[str]) -> None:
    """Run each benchmark's `run()` and write its result, with date and machine.

    The text behind a name, as in ``groups=10,10000``, is an argument of `run`.
    """
    arguments = {name: rest for name, *rest in (text.split("=", 1) for text in chosen or NAMES)}
    unknown = [name for name in arguments if name not in NAMES]
    if unknown:
        sys.exit(f"no benchmark {unknown[0]!r}; known are {', '.join(NAMES)}")
    for name, given in arguments.items():
        about = {"benchmark": name, "date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine()}
        result = about | importlib.import_module(f"benchmarks.{name}").run(*given)
        text = json.dumps(result, indent=1)
        (FOLDER / "results" / f"{result['benchmark']}.json").write_text(text + "\n")
        print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
