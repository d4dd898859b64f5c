"""A driver to be killed: streams bits into histograms until all are there.

python tests/crash/histogram_driver.py DIRECTORY {sound,outside} [WAIT_S]

With WAIT_S every micro-batch waits so long inside the operator, before and after the state is
handed to Spark, so that a kill from outside can hit either.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from aftlib.exponential_histogram.operator import HistogramQuery, packed, unpacked
from aftlib.exponential_histogram.pipeline import run
from aftlib.exponential_histogram.source import BitEvents

STOP = 4000 if os.environ.get("AFT_TRIALS") == "full" else 3000
EVENTS = BitEvents(share=0.4, burst=None, seed=11, keys=3, stop=STOP, every=1000, tasks=2)
QUERY = HistogramQuery(1200, 0.05)


@dataclass(frozen=True)
class Slow(HistogramQuery):
    """Waits around each save, so that a kill can hit either side of it."""

    wait_s: float = 0.0

    def save(self, group, state, states):  # noqa: ANN001
        time.sleep(self.wait_s)
        super().save(group, state, states)
        time.sleep(self.wait_s)


@dataclass(frozen=True)
class Outside(Slow):
    """A broken control: the state lies in a file of its own, not in what Spark commits."""

    directory: str = ""

    def path(self, group):  # noqa: ANN001
        return Path(self.directory) / f"group-{group[0]}"

    def restore(self, group, state):  # noqa: ANN001
        states = unpacked(self.path(group).read_bytes()) if self.path(group).exists() else {}
        return {key: each._replace(at=None) for key, each in states.items()}  # or it is refused

    def save(self, group, state, states):  # noqa: ANN001
        self.path(group).write_bytes(packed(states))
        time.sleep(self.wait_s)


def main(place: str, kind: str, wait_s: str = "0") -> None:
    """Stream what is left, and write all answers to a file."""
    from aftlib.spark.session import session

    directory, parameters = Path(place), (QUERY.window, QUERY.epsilon)
    query = Slow(*parameters, wait_s=float(wait_s))
    if kind == "outside":
        query = Outside(*parameters, wait_s=float(wait_s), directory=place)
    spark = session("crash")
    answers = run(spark, EVENTS.stream(spark), query, directory, partitions=2)
    answers.toPandas().to_parquet(directory / "answers.parquet")


if __name__ == "__main__":
    main(*sys.argv[1:])
