"""What happened in a run, and whom a death has disturbed (D3 fig. 1)."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

JOURNAL = "journal.jsonl"


class Journal:
    """One line of JSON for each thing that happened, written whole by all processes of a run.

    Parameters
    ----------
    who : str
        The process; its working directory must be the job's folder.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._file = os.open(JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, **more: object) -> None:
        """Write a line."""
        line = {"time": time.time(), "who": self._who, "what": what, **more}
        os.write(self._file, (json.dumps(line) + "\n").encode())


@dataclass(frozen=True)
class Account:
    """What tasks did, by the journal.

    Attributes
    ----------
    joined : dict of task to int
        How often each began, at first or again.
    offsets : dict of partition to int
        How far each partition was read.
    units : int
        Units of offset (tuples, or bytes of a text log) that were read in all.
    seconds : float
        From the first task's beginning to the last one's end.
    read_again : dict of task to int
        Units that a task read although they had been read before; tasks without are left out.
    """

    joined: dict[str, int]
    offsets: dict[int, int]
    units: int
    seconds: float
    read_again: dict[str, int]

    @classmethod
    def of(cls, directory: Path) -> Account:
        """The account of a job's folder."""
        lines = [json.loads(line) for line in (directory / JOURNAL).read_text().splitlines()]
        joined = Counter(line["who"] for line in lines if line["what"] == "joined")
        times = [line["time"] for line in lines if line["who"] in joined]
        offsets: dict[int, int] = {}
        again: Counter[str] = Counter()
        total = 0
        for line in (line for line in lines if line["what"] == "read"):
            before = offsets.get(line["partition"], 0)
            repeated = min(before, line["offset"]) - line["since"]
            again[line["who"]] += max(0, repeated)
            offsets[line["partition"]] = max(before, line["offset"])
            total += line["offset"] - line["since"]
        read_again = {who: n for who, n in again.items() if n}
        return cls(dict(joined), offsets, total, max(times) - min(times), read_again)
