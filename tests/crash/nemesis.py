"""A nemesis: seeded schedules of failures for the jobs of every package, and a judge of their ends.

    python -m tests.crash.nemesis FIRST STOP      runs the jobs of these numbers, notes and counts
    python -m tests.crash.nemesis                 only counts

A job is right at once; or it stops, says why, and is right when it was mended and started again.
Everything else is a failure: lost, doubled, wrong, hung, left behind, stopped without reason.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aftlib.spark.faults import Fault, Injector
from tests.crash import nemesis_lives
from tests.crash.nemesis_jobs import JOBS, ROOT, Job
from tests.crash.nemesis_stores import Disk, Schema

PACKAGES = [*["shared_state"] * 17, *["checkpoint_planning"] * 6, *["upstream_backup"] * 4]
PACKAGES += ["exponential_histogram"] * 3
JOBS_WITHOUT_SPARK, JOBS_ON_SPARK = 300, 8
STORES = r"is an older copy|has been emptied|was replaced|must be an intact|restore .* from a copy"
SAYS = {
    "full_disk": r"No space left|File too large|disk is full|disk I/O error",
    "freeze": r"has given no sign of life",
    "rival": r"is held by process \d+",
    "older_copy": STORES,
    "deleted": STORES,
    "journal_lost": STORES,
    "replaced": STORES,
}
"""What an error must say of its cause; the other faults are to be borne."""
GONE_S, BEGIN_S = 100.0, 500.0


def package_of(number: int) -> str:
    """Package of a job of the series."""
    return (
        "approximately_once" if number >= JOBS_WITHOUT_SPARK else PACKAGES[number % len(PACKAGES)]
    )


@dataclass(frozen=True)
class TimedFault(Fault):
    """A fault some time after the process was started or the last one was injected.

    Its step counts results, in a job that reports how many there are.
    """

    after_s: float = 0.0
    whom: float = 0.0  # which of the job's processes, as a share of them


@dataclass
class Outcome:
    """What became of a job: its injected faults, its stops, and what was wrong, if anything."""

    number: int
    package: str
    faults: dict[str, int] = field(default_factory=dict)
    stops: list[str] = field(default_factory=list)
    wrong: str = ""
    seconds: float = 0.0


def schedule(job: Job, chance: random.Random) -> list[tuple[list[TimedFault], TimedFault | None]]:
    """Lives of a job: the faults in each, and what happens to its stores after it."""

    def fault(kinds: Iterable[str]) -> TimedFault:
        kind = chance.choice([*kinds])
        after_s, lasts_s = chance.uniform(0.0, 0.3), chance.choice([0.05, 0.3, 1.5])
        whom, results = chance.random(), chance.choice([0, 0, 1, 4, 7])
        return TimedFault(kind, "", results, lasts_s=lasts_s, after_s=after_s, whom=whom)

    lives: list[tuple[list[TimedFault], TimedFault | None]] = []
    for _ in range(chance.randint(1, 2)):
        faults = [fault(job.while_alive) for _ in range(chance.randint(0, 2))]
        taken = bool(job.stores) and chance.random() < 0.6
        lives.append(([*faults, fault(["restart"])], fault(job.between) if taken else None))
    return [*lives, ([fault(job.while_alive) for _ in range(chance.randint(1, 3))], None)]


class Forked:
    """A process like `Popen`'s that has imported already what this one has."""

    def __init__(self, command: list[str]) -> None:
        ear, mouth = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                os.setsid()
                os.chdir(ROOT)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                for descriptor in (1, 2):
                    os.dup2(mouth, descriptor)
                os.close(ear)
                nemesis_lives.main(*command[-3:])
                code = 0
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(code)
        os.close(mouth)
        self.stderr = open(ear, "rb")  # noqa: SIM115

    def poll(self) -> int | None:
        """Exit status; None while it lives."""
        if self.returncode is None:
            gone, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if gone else None
        return self.returncode

    def wait(self, timeout: float = 500.0) -> int:
        """Exit status, within some seconds."""
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("life", timeout)
            time.sleep(0.01)
        return self.poll() or 0


class Life:
    """A driver and all that it started, a process group of its own."""

    def __init__(self, job: Job) -> None:
        self._before = time.time()
        # RocksDB's threads do not come along into a fork, which then waits for them for ever
        forks = job.forks and "rocksdict" not in sys.modules
        self.process: Any = forks and Forked(job.command())
        if not forks:
            self.process = subprocess.Popen(
                job.command(), cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True
            )
        self._said: list[bytes] = []
        self._ear = threading.Thread(target=self._listen, daemon=True)
        self._ear.start()
        self.frozen = False
        sign, until = job.place / "began", time.monotonic() + BEGIN_S
        while self.alive and time.monotonic() < until:
            if sign.exists() and sign.stat().st_mtime >= self._before - 0.01:
                break
            time.sleep(0.01)

    def _listen(self) -> None:
        for line in self.process.stderr or ():
            self._said.append(line)

    @property
    def alive(self) -> bool:
        """Whether the driver is."""
        return self.process.poll() is None

    def members(self) -> list[int]:
        """Process ids of the group, without those that are dead already; the driver is first."""
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=True
        )
        rows = [line.split() for line in listing.stdout.splitlines()]
        ours = (int(p) for p, g, s in rows if int(g) == self.process.pid and s[0] != "Z")
        return sorted(ours, key=lambda pid: (pid != self.process.pid, pid))

    def signal(self, pid: int, how: int) -> None:
        """Send a signal to a member, if it is still there."""
        with suppress(ProcessLookupError):
            os.kill(pid, how)

    def thaw(self) -> None:
        """Let everybody go on."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGCONT)
        self.frozen = False

    def end(self, seconds: float) -> tuple[int | None, str]:
        """Exit status and what was said; None when it came to no end, or left somebody behind."""
        try:
            code: int | None = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        self.thaw()
        until = time.monotonic() + GONE_S
        while code is not None and self.members() and time.monotonic() < until:
            time.sleep(0.05)
        left = [] if code is None else self.members()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._ear.join(GONE_S)
        said = b"".join(self._said).decode(errors="replace")
        return (None, f"left behind: {left}") if left else (code, said)


class Nemesis:
    """Strikes a job as scheduled, mends what it had to, and judges what came of it."""

    def __init__(self, number: int, directory: Path, package: str = "", broken: str = "") -> None:
        self.package = package or package_of(number)
        self.chance = random.Random(f"{self.package} {number}")
        self.outcome = Outcome(number, self.package)
        self.disk = Disk(directory / "disk")
        self.job = JOBS[self.package](directory, self.chance, broken)
        self.copies: dict[str, list[Any]] = defaultdict(list)
        self.taken: dict[str, Any] = {}
        self.causes: set[str] = set()

    def run(self, lives: list[tuple[list[TimedFault], TimedFault | None]] | None = None) -> Outcome:
        """The whole of a schedule, or of these lives."""
        began, lives = time.monotonic(), lives or schedule(self.job, self.chance)
        while lives and not self.outcome.wrong:
            faults, between = lives.pop(0)
            if self._live(faults) != 0:
                lives = lives or [([], None)]  # mended or killed: it has to come to its end
            elif not lives:
                break
            for name, store in self.job.stores.items():
                self.copies[name].append(store.copy())
            if between and not self.outcome.wrong:
                self._take_back(between)
            if len(self.outcome.stops) > 8:
                self.outcome.wrong = f"stopped again and again: {self.outcome.stops[-1]}"
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def close(self) -> None:
        """Let go of all of it."""
        for store in self.job.stores.values():
            store.delete()
        self.disk.remove()

    def _live(self, faults: list[TimedFault]) -> int | None:
        """One life of the job; its exit status."""
        life, killed = Life(self.job), False
        for fault in faults:
            time.sleep(fault.after_s)
            until = time.monotonic() + BEGIN_S
            while life.alive and self.job.results < fault.step and time.monotonic() < until:
                time.sleep(0.01)
            if not life.alive:
                break
            killed = self._inject(life, fault) or killed
        code, said = life.end(self.job.hung_s)
        self.disk.free()
        for kind in self.job.struck() if code == 0 else ():
            self._note(kind)
        whole = code == 0
        if code is None:
            self.outcome.wrong = said if said.startswith("left") else f"hung: {said[-1500:]}"
        else:
            self.outcome.wrong = self.outcome.wrong or self.job.wrong(whole)
        if not self.outcome.wrong and not whole and not (killed and code == -signal.SIGKILL):
            self._mend(code, said)
        self.causes -= {"full_disk", "freeze", "rival"}
        return code

    def _inject(self, life: Life, fault: TimedFault) -> bool:
        """Inject a fault; True when it ends the driver."""
        members = self.job.victims(life.members())
        if not members and fault.kind != "restart":
            return False
        victim = members[int(fault.whom * len(members))] if members else life.process.pid
        self._note(fault.kind)
        markers = self.disk.place.parent / "faults"
        with suppress(ProcessLookupError):
            StressInjector(markers, (fault,), self, life).inject(fault, victim)
        return fault.kind == "restart" or (fault.kind == "kill" and victim == life.process.pid)

    def _note(self, kind: str) -> None:
        self.outcome.faults[kind] = self.outcome.faults.get(kind, 0) + 1
        self.causes.add(kind)

    def _judge_rival(self, code: int | None, said: str) -> None:
        if code is None:
            self.outcome.wrong = f"hung beside another: {said[-1500:]}"
        elif code and not any(
            # it is refused; or the first had just ended, and what had struck that stops it too
            re.search(SAYS[cause], said)
            for cause in self.causes | {"rival"}
            if cause in SAYS
        ):
            self.outcome.wrong = f"stopped without reason beside another: {said[-1500:]}"

    def _take_back(self, fault: TimedFault) -> None:
        """What is kept goes back to an older copy, or away, wholly or in part."""
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
        if store.differs(newest):
            self._note(kind)
            self.taken[name] = newest

    def _mend(self, code: int | None, said: str) -> None:
        """Do what an error asks for, if it names one of the causes that there are."""
        # a machine that is too busy stops processes, too
        causes = self.causes | {"freeze"}
        named = [k for k in SAYS if k in causes and re.search(SAYS[k], said)]
        if not named:
            self.outcome.wrong = f"stopped without reason ({code}): {said[-3000:]}"
            return
        self.outcome.stops.append(f"{named[0]}: {said.strip().splitlines()[-1][:300]}")
        if SAYS[named[0]] != STORES:
            return
        stores = self.job.stores
        if self.taken:
            for name, newest in self.taken.items():
                stores[name].restore(newest)
        else:  # that was not enough: somebody had gone on with the older one
            self.job.began_anew += 1
            self.copies.clear()
            self.causes.clear()
        self.taken = {}


@dataclass(frozen=True)
class StressInjector(Injector):
    """Faults at a process of a job, at its driver, its disk, its stores or its database."""

    nemesis: Nemesis = None  # type: ignore[assignment]
    life: Life = None  # type: ignore[assignment]

    def restart(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Kill the driver; on Spark with its JVM, as their machine would."""
        ends = os.killpg if self.nemesis.package == "approximately_once" else os.kill
        ends(self.life.process.pid, signal.SIGKILL)

    def pause(self, fault: Fault, pid: int) -> None:
        """Stop a process for a while."""
        super().pause(fault, pid)
        time.sleep(fault.lasts_s)
        os.kill(pid, signal.SIGCONT)

    def freeze(self, fault: Fault, pid: int) -> None:
        """Stop a process until its job has ended."""
        super().pause(fault, pid)
        if pid != self.life.process.pid:
            with suppress(subprocess.TimeoutExpired):
                self.life.process.wait(500)
        self.life.thaw()

    def full_disk(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Fill the disk for a while."""
        self.nemesis.disk.fill(self.life.members())
        with suppress(subprocess.TimeoutExpired):
            self.life.process.wait(2 * fault.lasts_s)
        self.nemesis.disk.free(self.life.members())

    def rival(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Start a second driver while the first one is stopped."""
        super().pause(fault, self.life.process.pid)
        rival = Life(self.nemesis.job)
        self.nemesis._judge_rival(*rival.end(self.nemesis.job.hung_s))
        self.life.thaw()

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
        self.nemesis.taken = {}  # nobody has the newest

    def database_down(self, fault: Fault, pid: int) -> None:  # noqa: ARG002
        """Stop the database for a while."""
        self.nemesis.job.server.stop()
        time.sleep(fault.lasts_s)
        self.nemesis.job.server.start()


def suffer(number: int, directory: Path, **more: str) -> Outcome:
    """Run one job of the series."""
    nemesis = Nemesis(number, directory, **more)
    try:
        return nemesis.run()
    finally:
        nemesis.close()


def table(outcomes: list[Outcome]) -> str:
    """Jobs, faults by kind and ends, by package and in all."""
    ends = ("right at once", "stopped with reason, then right")
    lines = []
    for package in [*sorted({o.package for o in outcomes}), ""]:
        ours = [o for o in outcomes if package in ("", o.package)]
        faults = sum((Counter(o.faults) for o in ours), Counter())
        wrong = Counter(o.wrong.split(":")[0].split(" (")[0] for o in ours if o.wrong)
        kinds = ", ".join(f"{n} {kind}" for kind, n in faults.most_common())
        sound = Counter(ends[bool(o.stops)] for o in ours if not o.wrong)
        counts = {**{e: sound[e] for e in ends}, "lost": 0, "doubled": 0, "hung": 0, **wrong}
        said = ", ".join(f"{n} {end}" for end, n in counts.items())
        lines.append(
            f"{package or 'all'}: {len(ours)} jobs, {sum(faults.values())} faults ({kinds})"
        )
        lines.append(f"    {said}")
    return "\n".join(lines)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for a job."""
    path = Path(tempfile.mkdtemp(prefix="nemesis-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def main(*numbers: str) -> None:
    """Run some jobs, note their outcomes, and count all that are noted."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # not without cleaning up
    notes = ROOT / "data" / "nemesis.jsonl"
    notes.parent.mkdir(exist_ok=True)
    for number in range(*map(int, numbers or ("0",))):
        with folder() as directory, notes.open("a") as file:
            outcome = suffer(number, directory)
            file.write(json.dumps(asdict(outcome)) + "\n")
            print(number, outcome.package, dict(outcome.faults), outcome.stops, outcome.wrong)
    found = [Outcome(**json.loads(line)) for line in notes.read_text().splitlines()]
    print(table([*{outcome.number: outcome for outcome in found}.values()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
