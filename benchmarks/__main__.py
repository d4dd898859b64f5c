"""Run benchmarks by name, all by default; results go to benchmarks/results/NAME.json.

Each run adds its ratios to results/history.jsonl, with date, commit and processor. A ratio that is
worse by more than `FELL` than the median of its last runs there is an error.
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
    "standby",
    "histogram",
    "groups",
    "read_limit",
    "recovery",
)
RESULTS = Path(__file__).parent / "results"
FELL = 1.5
"""Factor by which a ratio may be worse than before: runs on a busy machine differ by a fifth."""
REMEMBERED = 5
"""Runs of the same processor whose median a ratio is compared with."""
LESS_IS_BETTER = ("spark.ratio", "spark.rows", "spark.stream", "overhead")


def main(chosen: list[str]) -> None:
    """Run each benchmark's `run()`, write its result, and report the ratios that fell."""
    unknown = [name for name in chosen if name not in NAMES]
    if unknown:
        sys.exit(f"no benchmark {unknown[0]!r}; known are {', '.join(NAMES)}")
    worse = []
    for name in chosen or NAMES:
        about = {"cores": os.cpu_count(), "python": platform.python_version()}
        result = {"benchmark": name, "machine": about}
        result |= importlib.import_module(f"benchmarks.{name}").run()
        text = json.dumps(result, indent=1)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{result['benchmark']}.json").write_text(text + "\n")
        print(text)
        worse += add_ratios(result["benchmark"], dict(ratios(result)), RESULTS / "history.jsonl")
    if worse:
        sys.exit("\n".join(["ratios that fell:", *worse]))


def ratios(results: Any, path: str = "", counts: bool = False) -> Iterator[tuple[str, float]]:
    """Yield every ratio among the results: values named ratio or overhead, or ``a / b``."""
    if isinstance(results, dict | list):
        for name, value in results.items() if isinstance(results, dict) else enumerate(results):
            if (word := str(name)) == "wanted":  # repeats the others
                continue
            named = counts or word.startswith(("ratio", "overhead")) or " / " in word
            yield from ratios(value, f"{path}.{word}".lstrip("."), named)
    elif counts and isinstance(results, int | float) and not isinstance(results, bool):
        yield path, float(results)


def add_ratios(benchmark: str, now: dict[str, float], history: Path) -> list[str]:
    """Add the ratios of a run to `history`; return a line for each worse by over `FELL`."""
    lines = history.read_text(encoding="utf-8").splitlines() if history.exists() else []
    cpu = machine()["processor"]
    earlier = [
        line["ratios"]
        for line in map(json.loads, lines)
        if (line["benchmark"], line["cpu"]) == (benchmark, cpu)
    ]
    head = {"benchmark": benchmark, "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", "cpu": cpu}
    line = head | commit() | {"ratios": now}
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    alarms = []
    for name, value in now.items():
        before = [ratios[name] for ratios in earlier[-REMEMBERED:] if name in ratios]
        middle = statistics.median(before) if before else value
        less = any(word in name for word in LESS_IS_BETTER)
        if min(value, middle) > 0 and (value / middle if less else middle / value) > FELL:
            alarms.append(f"{benchmark}: {name} is {value:.4g}, was {middle:.4g}")
    return alarms


if __name__ == "__main__":
    main(sys.argv[1:])
