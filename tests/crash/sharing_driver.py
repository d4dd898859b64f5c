"""A supervisor to be killed, as are its processes: late global merge with injected faults.

python -m tests.crash.sharing_driver DIRECTORY 'SETTINGS as JSON'
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

from aftlib.core.windows import Windows
from aftlib.shared_state import output, supervisor
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.job import Job
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.server import Server
from aftlib.shared_state.stores.sql import SqliteTable, SqlTable
from aftlib.shared_state.stores.tables import BufferedTable
from aftlib.shared_state.tuplelog import TupleLog
from aftlib.spark.faults import Fault

WINDOWS, DELAY = Windows(400, 200), 40


@dataclass(frozen=True)
class Settings:
    """One trial. Fields without a comment are those of `Job`."""

    place: str = "job"  # folder of the job
    own: str = "rocksdb"
    shared: str = "sqlite:"
    schema: str = "aft"
    checkpoint_s: float = 0.05
    patience_s: float = 600.0
    others_s: float = supervisor.OTHERS_S
    most_crashes: int = supervisor.MOST_CRASHES
    faults: list = field(default_factory=list)
    hold: int = 0  # reads after which each task kills itself, and is held when it is restarted
    # a store that breaks its contract ("rows first", "offsets first", "tokenless", "trusting"), or
    # a failure of task 0-1 whenever it has read a batch ("crashes always", "full disk")
    broken: str = ""


def split(table: type, at: Callable[[str], None], order: str) -> type:
    """A store that commits the offsets in their own transaction, just before or after the sums."""

    class Split(table):
        def merge(self, partials, progress, epoch=0, token=None):  # noqa: ANN001, ANN202
            nothing = Partials.empty(partials.values.shape[1])
            halves = [(partials, {}), (nothing, progress)]
            first, second = halves if order == "rows first" else halves[::-1]
            super().merge(*first, epoch)
            if len(partials):  # else nothing could be lost or doubled
                at("between")
            return super().merge(*second, epoch, token)

    return Split


class Tokenless(SqliteTable):
    """A store that does not record which epoch commit it has merged."""

    def merge(self, partials, progress, epoch=0, token=None):  # noqa: ANN001, ANN201
        of_server = token is not None and token[0].startswith("server-")
        return super().merge(partials, progress, epoch, None if of_server else token)


@dataclass(frozen=True)
class BreakableJob(Job):
    """A job whose stores may be broken ones."""

    broken: str = ""
    hold: int = 0

    def points(self, who: str) -> Callable[[str], None]:
        passes, reads = super().points(who), count(1)
        held = self.directory / f"held-{who}-{self.hold}"
        if held.exists():  # before it joins: its server's barriers do not wait for it
            threading.Event().wait()  # until the process ends with its supervisor

        def slowly(point: str) -> None:
            if point == "read":
                time.sleep(0.001)  # time for others to come between
                if next(reads) == self.hold:
                    held.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            if (who, point) == ("task-0-1", "read"):
                if self.broken == "crashes always":
                    os.kill(os.getpid(), signal.SIGKILL)
                if self.broken == "full disk":
                    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
            passes(point)

        return slowly

    def open_own(self, server: int):  # noqa: ANN201
        at = self.points(f"server-{server}")
        if self.broken.endswith("first"):
            # here, or all that import this module could start no process of theirs by a fork
            from aftlib.shared_state.stores.rocksdb import RocksTable

            stores = {"rocksdb": RocksTable, "sqlite": SqliteTable}
            table = split(stores[self.own], at, self.broken)
            return table(self.directory / f"server-{server}.{self.own}", self.function)
        table = super().open_own(server)
        if isinstance(table, BufferedTable):  # a point within its barrier
            merge = table.store.merge
            table.store.merge = lambda *batch: (merge(*batch), at("stored"))[0]
        return table

    def open_shared(self):  # noqa: ANN201
        if self.broken == "tokenless":
            return Tokenless(self.directory / "shared.sqlite", self.function)
        return super().open_shared()


def markers_in(directory: Path) -> Path:
    """Folder of a trial's marker files, one per injected fault."""
    return directory / "job" / "faults"


def job_in(directory: Path, settings: Settings) -> Job:
    """The job of a trial."""
    names = ("own", "shared", "schema", "checkpoint_s", "patience_s", "broken", "hold")
    options = {name: getattr(settings, name) for name in names}
    return BreakableJob(
        TupleLog.open(directory / "log"), Rules(WINDOWS, DELAY), directory / settings.place,
        batch=100, faults=tuple(settings.faults), **options,
    )  # fmt: skip


def trust_the_servers() -> None:
    """Let each server write its offsets into the global store, and compare nothing."""
    merge = SqlTable.merge

    def merge_anything(table, partials, progress, epoch=0, token=None):  # noqa: ANN001, ANN202
        bare = {p: replace(now, since=None) for p, now in progress.items()}
        return merge(table, partials, bare, epoch, token)

    def agree(server):  # noqa: ANN001, ANN202
        committed = server.shared.committed().get(server.name, 0)
        with server.lock:
            own = server.progress_after([0, *(e for e in server.complete if e <= committed)])
        server.shared.merge(Partials.empty(1), own)
        return committed, own

    def link_if_new(draft, path):  # noqa: ANN001, ANN202
        with suppress(FileExistsError):
            os.link(draft, path)

    SqlTable.merge, Server.compare_stores = merge_anything, agree
    output.Output.require_files = lambda output: None
    output.os = SimpleNamespace(link=link_if_new, getpid=os.getpid)


def run(directory: Path, settings: Settings) -> None:
    """Run the rest of the trial."""
    supervisor.OTHERS_S, supervisor.MOST_CRASHES = settings.others_s, settings.most_crashes
    supervisor.SILENT_S = 1.0
    if settings.broken == "trusting":
        trust_the_servers()
    supervisor.Supervisor(job_in(directory, settings)).run()


def main(place: str, text: str) -> None:
    """Run a trial whose settings are JSON."""
    fields = json.loads(text)
    settings = Settings(**fields | {"faults": [Fault(**fault) for fault in fields["faults"]]})
    run(Path(place).resolve(), settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
