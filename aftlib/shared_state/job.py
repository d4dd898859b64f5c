"""A job of late global merge: its settings, its folder, and the journal of its processes."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from aftlib.core.checks import require_choice, require_number
from aftlib.core.paths import write_whole
from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import AGGREGATES, Aggregate
from aftlib.shared_state.liveness import LONGEST_S, patiently
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.stores import FILES, SHARED, claim, open_table, redact
from aftlib.shared_state.stores.tables import StateTable
from aftlib.shared_state.tuplelog import TupleLog
from aftlib.spark.checkpoint import read_claim
from aftlib.spark.faults import Fault, Injector

JOURNAL = "journal.jsonl"
T = TypeVar("T")


class Journal:
    """Journal of all processes of a job: one line of JSON per event, each written whole.

    A process opens it in the job's folder; `who` is its name.
    """

    def __init__(self, who: str) -> None:
        self.who = who
        self._file = os.open(JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def record(self, what: str, **more: object) -> None:
        """Append an event."""
        line = {"time": time.time(), "who": self.who, "what": what, **more}
        # begins with a line end, because a full disk may have cut off the end of the last line
        os.write(self._file, ("\n" + json.dumps(line)).encode())


@dataclass(frozen=True)
class Account:
    """Counts of the tasks' work, from the journal."""

    joined: dict[str, int]  # how often each task connected: at its start and after crashes
    read: dict[int, int]  # different tuples read of each partition
    tuples: int  # tuples read, repeated reads included
    seconds: float  # from the first task's start to the last task's end
    read_again: dict[str, int]  # tuples that a task read a second time; only tasks with any

    @classmethod
    def of(cls, directory: Path) -> Account:
        """Count a job's work from the journal in its folder, without lines that a full disk cut."""
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


TICK_S = 0.02
UNREACHABLE = ConnectionError, TimeoutError
"""Errors of a global store that does not answer or is locked by others; the job tries again."""
IDENTITY = "job.json"


@dataclass(frozen=True)
class Job:
    """A log → windows → an aggregate by key → the next log (D3 fig. 3).

    Partition p belongs to server p mod servers. A fault's target is a process, such as ``task-0-1``
    or ``server-0``. Its point is an action, such as ``read`` or ``merged``. The fault is injected
    when the process has finished `step` such actions. ValueError for a number out of range or an
    unknown name.
    """

    log: TupleLog
    rules: Rules
    directory: Path  # holds the servers' own stores, the output, malformed lines, the journal
    aggregate: str = "sum"  # a name of `AGGREGATES`
    servers: int = 2
    tasks: int = 2  # of each server
    own: str = "rocksdb"  # kind of a server's own store, one of `FILES`
    # address of the global store, of a kind in `SHARED`; it may hold a password
    shared: str = field(default="sqlite:", repr=False)
    schema: str = "aft"  # of a global store in PostgreSQL
    batch: int = 10_000  # tuples that a task aggregates before it merges
    checkpoint_s: float = 1.0  # seconds between barriers
    commit_s: float = 0.0  # least seconds between epoch commits; 0: after every barrier
    patience_s: float = 600.0  # longest wait for the global store, or for a sign of life
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        # absolute paths, because the job's processes work in its folder
        object.__setattr__(self, "directory", Path(self.directory).resolve())
        object.__setattr__(self, "log", replace(self.log, path=Path(self.log.path).resolve()))
        for name in ("servers", "tasks", "batch"):
            require_number(name, getattr(self, name), least=1, whole=True)
        require_number("checkpoint_s", self.checkpoint_s, above=0)
        require_number("commit_s", self.commit_s, least=0)
        require_number("patience_s", self.patience_s, above=0, most=LONGEST_S)
        require_choice("aggregate", self.aggregate, AGGREGATES)
        require_choice("own", self.own, FILES)
        if self._kind not in SHARED:
            raise ValueError(
                f"shared must be an address of {', '.join(SHARED)}, which several processes can "
                f"open, got {redact(self.shared)!r}"
            )
        redact(self.shared)  # refuses an address that cannot be read

    def to_json(self) -> str:
        """All parameters as text; do not store it, because `shared` may hold a password."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Restore the job that `to_json` wrote."""
        fields = json.loads(text)
        log, rules, faults = (fields.pop(name) for name in ("log", "rules", "faults"))
        return cls(
            TupleLog(**log | {"path": Path(log["path"])}),
            Rules(**rules | {"windows": Windows(**rules["windows"])}),
            faults=tuple(Fault(**fault) for fault in faults),
            **fields,
        )

    @property
    def _kind(self) -> str:
        """Kind of the global store."""
        return self.shared.partition(":")[0]

    @property
    def windows(self) -> Windows:
        """Width and slide of the windows; their `query` is not used."""
        return self.rules.windows

    @property
    def function(self) -> Aggregate:
        """The merge function."""
        return AGGREGATES[self.aggregate]

    @property
    def output(self) -> Path:
        """Folder of the next log: one file per window."""
        return self.directory / "output"

    @property
    def rejects(self) -> Path:
        """Folder of malformed lines."""
        return self.directory / "rejects"

    def partitions_of(self, server: int, task: int | None = None) -> list[int]:
        """Partitions of a server, or of one of its tasks."""
        all_of_it = range(server, self.log.partitions, self.servers)
        return list(all_of_it if task is None else all_of_it[task :: self.tasks])

    def open_own(self, server: int) -> StateTable:
        """Open a server's own store, which flushes only at barriers."""
        place = self.directory / f"server-{server}.{self.own}"
        others = {"timeout_s": self.patience_s} if self.own in SHARED else {}
        return open_table(f"{self.own}:{place}", self.function, "barrier", **others)

    @property
    def place(self) -> str:
        """Address of the global store without its password."""
        if self._kind in FILES:
            name = self.shared.partition(":")[2] or f"shared.{self._kind}"
            return f"{self._kind}:{(self.directory / name).resolve()}"
        return f"{redact(self.shared)} schema={self.schema}"

    def open_shared(self) -> StateTable:
        """Open the global store."""
        if self._kind in FILES:
            return open_table(self.place, self.function, timeout_s=self.patience_s)
        return open_table(self.shared, self.function, schema=self.schema, timeout_s=self.patience_s)

    @property
    def injector(self) -> Injector:
        """Injector of the job's faults."""
        return Injector(self.directory / "faults", self.faults)

    def points(self, who: str) -> Callable[[str], None]:
        """Return a function that injects due faults; a process calls it after each action."""
        injector, passed = self.injector, Counter[str]()

        def passes(point: str) -> None:
            passed[point] += 1
            injector.reach(who, passed[point], point)

        return passes

    @property
    def identity(self) -> dict[str, Any]:
        """Parameters on which the state of a job depends, as JSON values."""
        return {
            "folder": str(self.directory),
            "log": self.log.identity,
            "delay": self.rules.delay,
            "width": self.windows.width,
            "slide": self.windows.slide,
            "aggregate": self.aggregate,
            "own": self.own,
            "shared": self.place,
            "servers": self.servers,
        }

    def claim_folder(self) -> str:
        """Write the job's identity into its folder; return an id that no other folder's job has.

        If another job began in the folder, a ValueError lists the parameters of `identity` that
        differ.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        path, now = self.directory / IDENTITY, self.identity
        if not path.exists():
            write_whole(path, json.dumps(now | {"id": uuid.uuid4().hex}, default=str))
        before = read_claim(path, "job")
        differ = [name for name in now if before.get(name) != now[name]]
        if differ:
            differences = "; ".join(f"{n} was {before.get(n)!r}, is {now[n]!r}" for n in differ)
            raise ValueError(
                f"job in {str(self.directory)!r} was started with other parameters "
                f"({differences}): its state belongs to those; continue with them, or choose a new "
                "directory and schema"
            )
        return before["id"]

    def open_claimed(self, start: Callable[[StateTable], T]) -> T:
        """Open the global store, claim it for this job (`claim_table`), and return `start(store)`.

        An unreachable store is tried again for `patience_s` seconds.
        """

        def attempt() -> T:
            shared = self.open_shared()
            try:
                self.claim_table(shared)
                return start(shared)
            except BaseException:
                shared.close()
                raise

        return patiently(attempt, self.patience_s, UNREACHABLE, TICK_S)

    def claim_table(self, shared: StateTable) -> None:
        """Claim the global store for this job (`claim`); ValueError for the store of another job.

        A store that this job claimed before must still hold the claim, or it is refused too.
        """
        marker = self.directory / "claimed"
        claim(shared, f"job {self.claim_folder()}", renewal=marker.exists())
        marker.touch()
