"""A nemesis of D3's jobs: seeded schedules of failures, and a check of how each job ends.

A job ends with the right results; or it stops with an error that names the cause, and ends with the
right results after a repair. Everything else fails: lost, doubled, hung, left behind, no cause.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from aftlib.spark.faults import Fault, Injector
from tests.crash import sharing_driver
from tests.crash.nemesis_stores import Disk, Files, Schema
from tests.crash.test_shared_state import partitions, replay, write
from tests.postgres import OwnServer

STORES = r"is an older copy|has been emptied|was replaced|must be an intact|restore .* from a copy"
MESSAGES = {
    "full_disk": r"No space left|File too large|disk is full|disk I/O error",
    "freeze": r"has given no sign of life",
    "rival": r"is held by process \d+",
} | dict.fromkeys(("older_copy", "deleted", "journal_lost", "replaced"), STORES)
"""Text in the error of each cause; the job must survive the other faults."""
GONE_S, BEGIN_S = 100.0, 500.0
# not a plain fork: threads of RocksDB, which this process may have used, would be missing in it
FORK: Any = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["tests.crash.sharing_driver"])


@dataclass(frozen=True)
class TimedFault(Fault):
    """A fault some time after the process was started or the last one was injected.

    Its step counts windows that were emitted.
    """

    after_s: float = 0.0
    whom: float = 0.0  # which of the job's processes, as a share of them


Schedule = list[tuple[list[TimedFault], TimedFault | None]]
"""Faults in each process group of a job, and the fault at its stores after it."""


@dataclass
class Outcome:
    """How a job ended: its injected faults, its stops, and what was wrong, if anything."""

    faults: Counter[str] = field(default_factory=Counter)
    stops: list[str] = field(default_factory=list)
    wrong: str = ""


class SharedJob:
    """A job of D3 in a folder of its own; it moves to a new place when it has to start again."""

    kinds: tuple[str, ...] = (
        *["kill"] * 6, *["pause"] * 4, "full_disk", "freeze", "rival", "replaced"
    )  # fmt: skip
    hung_s = 500.0
    work: Callable[..., None] = staticmethod(sharing_driver.run)
    server: ClassVar[OwnServer | None] = None

    def __init__(self, directory: Path, chance: random.Random, broken: str = "") -> None:
        self.directory, self.moves = directory, 0
        own = chance.choice(["rocksdb", "rocksdb", "sqlite", "memory"])
        self.base = sharing_driver.Settings(own=own, patience_s=8.0, others_s=3.0, broken=broken)
        self.on_postgres = chance.random() < 0.3 and not broken
        if self.on_postgres:
            if SharedJob.server is None:
                SharedJob.server = OwnServer()
                atexit.register(SharedJob.server.remove)
            self.kinds += ("disconnect", "disconnect", "database_down")
            self.base = replace(self.base, shared=self.server.url, schema=f"aft_{time.time_ns()}")
        write(directory)

    @property
    def place(self) -> Path:
        """Folder in which it works."""
        return self.directory / "disk" / f"{self.moves}"

    @property
    def settings(self) -> sharing_driver.Settings:
        """Settings of its next process group."""
        schema = f"{self.base.schema}_{self.moves}"
        return replace(self.base, place=str(self.place), schema=schema)

    @property
    def stores(self) -> dict[str, Any]:
        """Stores that can be rolled back."""
        sqlite = Files(lambda: self.place, "shared.sqlite*")
        stores: dict[str, Any] = {"shared": Schema(self) if self.on_postgres else sqlite}
        if self.base.own != "memory":
            for n in range(2):
                stores[f"own {n}"] = Files(lambda: self.place, f"server-{n}.{self.base.own}*")
        return stores

    @property
    def windows(self) -> list[Path]:
        """Files of the windows that were emitted."""
        return sorted((self.place / "output").glob("window-*.csv"))

    def wrong(self, whole: bool) -> str:
        """What is wrong with the output so far: "lost", "doubled", or nothing."""
        results: Counter = Counter()
        for line in (line for path in self.windows for line in path.read_text().splitlines()):
            window, key, value = map(int, line.split(","))
            if (window, key) in results:
                return f"doubled: {(window, key)} was emitted twice"
            results[window, key] = value
        return compare_results(results, _sums(), whole)


@cache
def _sums() -> Counter:
    return Counter(replay(partitions())[0])


def compare_results(results: Counter, expected: Counter, whole: bool) -> str:
    """What is wrong with results, of which more may come unless they are `whole`."""
    for name in results | expected if whole else results:
        ours, right = results.get(name), expected.get(name)
        if right is None:
            return f"doubled: {name} is not to come"
        if ours != right:
            more = ours is not None and ours > right
            return f"{'doubled' if more else 'lost'}: {name} is {ours} instead of {right}"
    return ""


def draw_schedule(job: SharedJob, chance: random.Random) -> Schedule:
    """Draw the faults of a job's process groups, which run one after another."""

    def fault(kinds: Iterable[str]) -> TimedFault:
        kind = chance.choice([*kinds])
        after_s, lasts_s = chance.uniform(0.0, 0.3), chance.choice([0.05, 0.3, 1.5])
        whom, windows = chance.random(), chance.choice([0, 0, 1, 4, 7])
        return TimedFault(kind, "", windows, lasts_s=lasts_s, after_s=after_s, whom=whom)

    schedule: Schedule = []
    for _ in range(chance.randint(1, 2)):
        faults = [fault(job.kinds) for _ in range(chance.randint(0, 2))]
        rollback, kinds = chance.random() < 0.6, ["older_copy", "deleted", "journal_lost"]
        schedule.append(([*faults, fault(["restart"])], fault(kinds) if rollback else None))
    return [*schedule, ([fault(job.kinds) for _ in range(chance.randint(1, 3))], None)]


def lead_group(sign: Path, stderr: Any, work: Callable[..., None], *arguments: Any) -> None:
    """Run a job in this new process, which leads a process group of its own."""
    os.setsid()
    os.dup2(stderr.fileno(), 2)
    with suppress(OSError):  # the job itself reports a full disk
        sign.touch()
    work(*arguments)


class ProcessGroup:
    """A supervisor and all processes that it started."""

    def __init__(self, job: SharedJob) -> None:
        job.place.mkdir(parents=True, exist_ok=True)
        sign, since = job.place / "began", time.time() - 0.01
        self._stderr, stderr = FORK.Pipe(duplex=False)
        arguments = sign, stderr, job.work, job.directory, job.settings
        self.process: Any = FORK.Process(target=lead_group, args=arguments)
        self.process.start()
        stderr.close()
        until = time.monotonic() + BEGIN_S
        while self.alive and time.monotonic() < until:
            if sign.exists() and sign.stat().st_mtime >= since:
                break
            time.sleep(0.01)

    @property
    def alive(self) -> bool:
        """Whether the supervisor is running."""
        return self.process.exitcode is None

    def members(self) -> list[int]:
        """Process ids of the group that still run; the supervisor's is first."""
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=True
        )
        rows = [line.split() for line in listing.stdout.splitlines()]
        ours = (int(p) for p, g, s in rows if int(g) == self.process.pid and s[0] != "Z")
        return sorted(ours, key=lambda pid: (pid != self.process.pid, pid))

    def signal(self, how: int) -> None:
        """Send a signal to the whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, how)

    def end(self, seconds: float) -> tuple[int | None, str]:
        """Exit status and error output; None if it does not end, or leaves a process behind."""
        self.process.join(seconds)
        code = self.process.exitcode
        self.signal(signal.SIGCONT)
        until = time.monotonic() + GONE_S
        while code is not None and self.members() and time.monotonic() < until:
            time.sleep(0.05)
        left = [] if code is None else self.members()
        self.signal(signal.SIGKILL)
        self.process.join()
        with open(self._stderr.fileno(), "rb", closefd=False) as pipe:
            output = pipe.read().decode(errors="replace")
        return (None, f"left behind: {left}") if left else (code, output)


class Nemesis:
    """Injects a job's faults as scheduled, repairs what an error asks for, and checks the end."""

    def __init__(
        self, number: int, directory: Path, broken: str = "", kind: type[SharedJob] = SharedJob
    ) -> None:
        self.chance, self.outcome = random.Random(f"shared_state {number}"), Outcome()
        self.disk = Disk(directory / "disk")
        self.job = kind(directory, self.chance, broken)
        self.copies: dict[str, list[Any]] = defaultdict(list)
        self.newest: dict[str, Any] = {}
        self.causes: set[str] = set()

    def run(self, schedule: Schedule | None = None) -> Outcome:
        """Run a schedule, by default a drawn one."""
        schedule = schedule or draw_schedule(self.job, self.chance)
        while schedule and not self.outcome.wrong:
            faults, between = schedule.pop(0)
            if self._run_group(faults) != 0:
                schedule = schedule or [([], None)]  # repaired or killed: it has to come to its end
            elif not schedule:
                break
            self.copy_stores()
            if between and not self.outcome.wrong:
                self.take_back(between)
            if len(self.outcome.stops) > 8:
                self.outcome.wrong = f"stopped again and again: {self.outcome.stops[-1]}"
        return self.outcome

    def copy_stores(self) -> None:
        """Copy the stores as they are now."""
        for name, store in self.job.stores.items():
            self.copies[name].append(store.copy())

    def close(self) -> None:
        """Remove the stores and the disk."""
        for store in self.job.stores.values():
            store.delete()
        self.disk.remove()

    def _run_group(self, faults: list[TimedFault]) -> int | None:
        """Run one process group of the job; return its exit status."""
        group, killed = ProcessGroup(self.job), False
        for fault in faults:
            time.sleep(fault.after_s)
            until = time.monotonic() + BEGIN_S
            while group.alive and len(self.job.windows) < fault.step and time.monotonic() < until:
                time.sleep(0.01)
            if not group.alive:
                break
            killed = self._inject(group, fault) or killed
        code, output = group.end(self.job.hung_s)
        self.disk.free()
        if code is None:
            self.outcome.wrong = output if output.startswith("left") else f"hung: {output[-1500:]}"
        else:
            self.outcome.wrong = self.outcome.wrong or self.job.wrong(code == 0)
        if not self.outcome.wrong and code != 0 and not (killed and code == -signal.SIGKILL):
            self._repair(code, output)
        self.causes -= {"full_disk", "freeze", "rival"}
        return code

    def _inject(self, group: ProcessGroup, fault: TimedFault) -> bool:
        """Inject a fault; return whether it ends the supervisor."""
        members = group.members()
        if not members and fault.kind != "restart":
            return False
        victim = members[int(fault.whom * len(members))] if members else group.process.pid
        self.count_fault(fault.kind)
        markers = self.disk.place.parent / "faults"
        with suppress(ProcessLookupError):
            StressInjector(markers, (fault,), self, group).inject(fault, victim)
        return fault.kind == "restart" or (fault.kind == "kill" and victim == group.process.pid)

    def count_fault(self, kind: str) -> None:
        """Count a fault, which may be the cause of the next stop."""
        self.outcome.faults[kind] += 1
        self.causes.add(kind)

    def judge_rival(self, code: int | None, output: str) -> None:
        """Judge the end of a second supervisor, which must be refused.

        Or the first one has just ended, and its fault stops the second one, too.
        """
        if code is None:
            self.outcome.wrong = f"hung beside another: {output[-1500:]}"
        elif code and not self._named(output, self.causes | {"rival"}):
            self.outcome.wrong = f"stopped without reason beside another: {output[-1500:]}"

    def _named(self, output: str, causes: set[str]) -> list[str]:
        """Causes that an error output names."""
        return [kind for kind in MESSAGES if kind in causes and re.search(MESSAGES[kind], output)]

    def take_back(self, fault: TimedFault) -> None:
        """Take a store back to an older copy, or away, wholly or in part."""
        names = sorted(self.job.stores)
        name = names[int(fault.whom * len(names))]
        store, (*older, newest) = self.job.stores[name], self.copies[name]
        has_none = fault.kind == "journal_lost" and isinstance(store, Schema)
        kind = "deleted" if has_none else fault.kind
        match kind:
            case "older_copy":
                store.restore(older[int(fault.after_s * 100) % len(older)] if older else newest)
            case "deleted":
                store.delete()
            case "journal_lost":
                store.lose_journal()
        if store.copy() != newest:
            self.count_fault(kind)
            self.newest[name] = newest

    def _repair(self, code: int, output: str) -> None:
        """Do what an error asks for, if it names one of the causes that there are."""
        named = self._named(output, self.causes | {"freeze"})  # a busy machine stalls, too
        if not named:
            self.outcome.wrong = f"stopped without reason ({code}): {output[-3000:]}"
            return
        self.outcome.stops.append(f"{named[0]}: {output.strip().splitlines()[-1][:300]}")
        if MESSAGES[named[0]] != STORES:
            return
        if self.newest:
            for name, newest in self.newest.items():
                self.job.stores[name].restore(newest)
        else:  # that was not enough: a process had continued with the older one
            self.job.moves += 1
            self.copies.clear()
            self.causes.clear()
        self.newest = {}


@dataclass(frozen=True)
class StressInjector(Injector):
    """Faults at a process of a job, at its supervisor, its disk, its stores or its database."""

    own: ClassVar[frozenset[str]] = frozenset()  # all come from outside
    nemesis: Nemesis = None  # type: ignore[assignment]
    group: ProcessGroup = None  # type: ignore[assignment]

    def restart(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Kill the supervisor."""
        os.kill(self.group.process.pid, signal.SIGKILL)

    def pause(self, fault: Fault, pid: int) -> None:
        """Stop a process for a while."""
        super().pause(fault, pid)
        time.sleep(fault.lasts_s)
        os.kill(pid, signal.SIGCONT)

    def freeze(self, fault: Fault, pid: int) -> None:
        """Stop a process until its job has ended."""
        super().pause(fault, pid)
        if pid != self.group.process.pid:
            self.group.process.join(500)
        self.group.signal(signal.SIGCONT)

    def full_disk(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Fill the disk for a while."""
        self.nemesis.disk.fill(self.group.members())
        self.group.process.join(2 * fault.lasts_s)
        self.nemesis.disk.free(self.group.members())

    def rival(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Start a second supervisor while the first one is stopped."""
        super().pause(fault, self.group.process.pid)
        self.nemesis.judge_rival(*ProcessGroup(self.nemesis.job).end(self.nemesis.job.hung_s))
        self.group.signal(signal.SIGCONT)

    def disconnect(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Cut the connections to the shared store."""
        self.nemesis.job.stores["shared"].cut_off()

    def replaced(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Take the shared store back, or away, while processes have it open."""
        store, older = self.nemesis.job.stores["shared"], self.nemesis.copies["shared"]
        if older and fault.whom < 0.5:
            store.restore(older[int(fault.after_s * 100) % len(older)])
        else:
            store.delete()
        self.nemesis.newest = {}  # nobody has the newest

    def database_down(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Stop the database for a while."""
        self.nemesis.job.server.stop()
        time.sleep(fault.lasts_s)
        self.nemesis.job.server.start()
