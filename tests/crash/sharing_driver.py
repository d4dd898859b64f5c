"""A driver to be killed, whose processes are: late global merge, with strikes where it is told.

python tests/crash/sharing_driver.py DIRECTORY 'SETTINGS as JSON'
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from aftlib.shared_state.servers.driver import Driver
from aftlib.shared_state.servers.job import Job
from aftlib.shared_state.servers.source import ArraySource

from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.stores.buffered import BufferedTable
from aftlib.shared_state.stores.rocksdb import RocksTable
from aftlib.shared_state.stores.sqlite import SqliteTable

WINDOWS, DELAY = Windows(400, 200), 40


@dataclass(frozen=True)
class Settings:
    """One trial.

    Attributes
    ----------
    own, shared, schema, keys_apart, checkpoint_s
        As `Job` has them.
    strikes : list of (who, point, number)
        Where a process kills itself, at its so-manieth passing, once in the trial.
    random_kills, seed : int
        Processes killed at moments of nobody's choosing.
    broken : {"", "rows first", "offsets first", "tokenless"}
        A store that breaks its contract.
    """

    own: str = "rocksdb"
    shared: str = "sqlite:"
    schema: str = "aft"
    keys_apart: bool = False
    checkpoint_s: float = 0.05
    strikes: list = field(default_factory=list)
    random_kills: int = 0
    seed: int = 0
    broken: str = ""


def kill(pid: int, note: str) -> None:
    """SIGKILL, noted before."""
    descriptor = os.open("kills", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{note}\n".encode())
    os.kill(pid, signal.SIGKILL)


class Striking:
    """Kills the process that passes a chosen point; each strike falls once in a trial."""

    def __init__(self, strikes: list) -> None:
        self._left = [(i, who, point, number) for i, (who, point, number) in enumerate(strikes)]
        self._passed: dict[tuple[str, str], int] = {}

    def __call__(self, who: str, point: str) -> None:
        if point == "read":
            time.sleep(0.001)  # time for others to come between
        passed = self._passed[who, point] = self._passed.get((who, point), 0) + 1
        for i, *chosen, number in self._left:
            if chosen == [who, point] and passed >= number and first_time(i):
                kill(os.getpid(), f"{who} {point}")


def first_time(strike: int) -> bool:
    """Whether the strike has not fallen yet."""
    try:
        os.close(os.open(f"strike-{strike}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def fallen(kind: str = "") -> int:
    """How many of a kind have been killed in this trial."""
    lines = Path("kills").read_text().splitlines() if Path("kills").exists() else []
    return sum(kind in line for line in lines)


class RandomKills:
    """Kills one of the driver's processes every now and then."""

    def __init__(self, settings: Settings) -> None:
        self._chance, self._most = (
            random.Random(f"{settings.seed} {fallen()}"),
            settings.random_kills,
        )
        self._next = time.monotonic() + self._chance.expovariate(1 / 0.1)

    def __call__(self, driver: Driver) -> None:
        if time.monotonic() < self._next or not driver.processes:
            return
        if fallen("random") >= self._most:
            return
        who = self._chance.choice(sorted(driver.processes))
        kill(driver.processes[who].pid, f"{who} random")
        self._next = time.monotonic() + self._chance.expovariate(1 / 0.1)


def split(table: type, at: Striking, order: str) -> type:
    """A store that notes the offsets in a transaction of their own, a moment before or after."""

    class Split(table):
        def merge(self, partials, progress, epoch=0, token=None):  # noqa: ANN001, ANN202
            nothing = Partials.empty(partials.values.shape[1])
            halves = [(partials, {}), (nothing, progress)]
            first, second = halves if order == "rows first" else halves[::-1]
            super().merge(*first, epoch)
            at("server", "between")
            return super().merge(*second, epoch, token)

    return Split


class Tokenless(SqliteTable):
    """A store that does not know which hand-over it has merged."""

    def merge(self, partials, progress, epoch=0, token=None):  # noqa: ANN001, ANN201
        of_server = token is not None and token[0].startswith("server-")
        return super().merge(partials, progress, epoch, None if of_server else token)


@dataclass(frozen=True)
class BreakableJob(Job):
    """A job whose stores may be broken ones."""

    broken: str = ""
    at: Striking | None = None

    def open_own(self, server: int):  # noqa: ANN201
        if not self.broken.endswith("first"):
            table = super().open_own(server)
            if isinstance(table, BufferedTable) and self.at is not None:
                self._strike_before_flush(table, f"server-{server}")
            return table
        stores = {"rocksdb": RocksTable, "sqlite": SqliteTable}
        table = split(stores[self.own], self.at, self.broken)
        return table(self.directory / f"server-{server}.{self.own}", self.function, "merge")

    def _strike_before_flush(self, table: BufferedTable, name: str) -> None:
        """A point between what the buffer writes into its store and the flush of that."""
        flush = table.store.barrier

        def struck() -> None:
            self.at(name, "stored")
            flush()

        table.store.barrier = struck

    def open_shared(self):  # noqa: ANN201
        if self.broken == "tokenless":
            return Tokenless(self.directory / "shared.sqlite", self.function)
        return super().open_shared()


def job_in(directory: Path, settings: Settings, at: Striking | None = None) -> Job:
    """The job of a trial."""
    return BreakableJob(
        ArraySource(directory / "log", WINDOWS.pane, DELAY),
        directory / "job",
        WINDOWS,
        own=settings.own,
        shared=settings.shared,
        schema=settings.schema,
        keys_apart=settings.keys_apart,
        batch=100,
        checkpoint_s=settings.checkpoint_s,
        broken=settings.broken,
        at=at,
    )


def main(place: str, said: str) -> None:
    """Run what is left of the trial."""
    settings = Settings(**json.loads(said))
    striking = Striking(settings.strikes)
    job = job_in(Path(place), settings, striking)
    job.directory.mkdir(exist_ok=True)
    os.chdir(job.directory)
    Driver(job, striking).run(RandomKills(settings))


if __name__ == "__main__":
    main(*sys.argv[1:])
