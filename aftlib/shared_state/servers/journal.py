"""What happened in a stage, and whom a death has disturbed (D3 fig. 1)."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

JOURNAL = "journal.jsonl"


class Journal:
    """One line of JSON for each thing that happened, written whole by all processes of a stage.

    Each works in the stage's folder, and `who` says which process it is.
    """

    def __init__(self, who: str) -> None:
        self.who = who
        self._file = os.open(JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, **more: object) -> None:
        """Write a line."""
        line = {"time": time.time(), "who": self.who, "what": what, **more}
        # the end of the line before comes first: on a full disk that may be missing
        os.write(self._file, ("\n" + json.dumps(line)).encode())


@dataclass(frozen=True)
class Account:
    """What tasks did, by the journal."""

    joined: dict[str, int]  # how often each task began, at first or again
    read: dict[int, int]  # tuples of each partition that were read, once or more
    tuples: int  # all of them, each as often as it was read
    seconds: float  # from the first task's beginning to the last one's end
    read_again: dict[str, int]  # tuples that a task read though they had been, where there are any

    @classmethod
    def of(cls, directory: Path) -> Account:
        """The account of a stage's folder; a line that a full disk has cut short is left out."""
        lines = []
        for line in (directory / JOURNAL).read_text(errors="replace").splitlines():
            with suppress(ValueError):
                lines.append(json.loads(line))

        joined = Counter(line["who"] for line in lines if line["what"] == "joined")
        times = [line["time"] for line in lines if line["who"] in joined] or [0.0]
        read: dict[int, int] = {}
        again: Counter[str] = Counter()
        total = 0
        for line in (line for line in lines if line["what"] == "read"):
            before, since, upto = read.get(line["partition"], 0), line["since"], line["upto"]
            again[line["who"]] += max(0, min(before, upto) - since)
            read[line["partition"]] = max(before, upto)
            total += upto - since
        return cls(dict(joined), read, total, max(times) - min(times), dict(+again))
