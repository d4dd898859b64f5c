"""Run benchmarks by name, all by default; results go to benchmarks/results/NAME.json.

Each run adds its ratios to results/history.jsonl, with date, commit and processor; one that has
become worse by more than `FELL` against the median of its last runs there is an error.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aftlib.reports.execute import commit, machine

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
    "groups",
    "partial",
    "read_limit",
    "recovery",
    "cluster",
)
RESULTS = Path(__file__).parent / "results"
FELL = 1.5
"""Factor by which a ratio may be worse than before: runs on a busy machine differ by a fifth."""
REMEMBERED = 5
"""Runs of the same processor that a ratio is held against, by their median."""
LESS_IS_BETTER = ("spark.ratio", "spark.rows", "spark.stream", "overhead")


def main(chosen: list[str]) -> None:
    """Run each benchmark's `run()`, write what it returns, and say which ratios fell."""
    unknown = [name for name in chosen if name not in NAMES]
    if unknown:
        sys.exit(f"no benchmark {unknown[0]!r}; known are {', '.join(NAMES)}")
    worse = []
    for name in chosen or NAMES:
        about = {"cores": os.cpu_count(), "python": platform.python_version()}
        found = {"benchmark": name, "machine": about}
        found |= importlib.import_module(f"benchmarks.{name}").run()
        text = json.dumps(found, indent=1)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{found['benchmark']}.json").write_text(text + "\n")
        print(text)
        worse += remembered(found["benchmark"], dict(ratios(found)), RESULTS / "history.jsonl")
    if worse:
        sys.exit("\n".join(["ratios that fell:", *worse]))


def ratios(found: Any, path: str = "", counts: bool = False) -> Iterator[tuple[str, float]]:
    """Every ratio among the results: what is called one, or is named as one thing / another."""
    if isinstance(found, dict | list):
        for name, value in found.items() if isinstance(found, dict) else enumerate(found):
            if (word := str(name)) == "wanted":  # says the others again
                continue
            named = counts or word.startswith(("ratio", "overhead")) or " / " in word
            yield from ratios(value, f"{path}.{word}".lstrip("."), named)
    elif counts and isinstance(found, int | float) and not isinstance(found, bool):
        yield path, float(found)


def remembered(benchmark: str, now: dict[str, float], history: Path) -> list[str]:
    """Add the ratios of a run to `history`; return what is said of those worse by over `FELL`."""
    kept = history.read_text(encoding="utf-8").splitlines() if history.exists() else []
    cpu = machine()["processor"]
    earlier = [
        line["ratios"]
        for line in map(json.loads, kept)
        if (line["benchmark"], line["cpu"]) == (benchmark, cpu)
    ]
    head = {"benchmark": benchmark, "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", "cpu": cpu}
    line = head | commit() | {"ratios": now}
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    said = []
    for name, value in now.items():
        before = [ratios[name] for ratios in earlier[-REMEMBERED:] if name in ratios]
        middle = statistics.median(before) if before else value
        less = any(word in name for word in LESS_IS_BETTER)
        if min(value, middle) > 0 and (value / middle if less else middle / value) > FELL:
            said.append(f"{benchmark}: {name} is {value:.4g}, was {middle:.4g}")
    return said


if __name__ == "__main__":
    main(sys.argv[1:])
