"""The jobs that the nemesis disturbs, one class per package: their settings and their errors."""

from __future__ import annotations

import atexit
import json
import random
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from aftlib.core.generators import draw
from aftlib.core.sensorlog import SensorLog
from aftlib.exponential_histogram import ExponentialHistogram
from aftlib.spark.faults import Fault, schedule_to_json
from tests.crash.nemesis_stores import Files, Schema
from tests.postgres import OwnServer

ROOT, LIVES = Path(__file__).parents[2], "tests.crash.nemesis_lives"


class Job(ABC):
    """A job of a package in a folder of its own.

    `place` is where it works; it moves when the job has to begin anew.
    """

    package = ""
    while_alive: tuple[str, ...] = ("kill", "pause", "full_disk")
    """Faults that strike while it lives."""
    between: tuple[str, ...] = ("older_copy", "deleted", "journal_lost")
    """Faults that strike what it has kept while it is down."""
    hung_s = 500.0
    forks = True
    """Whether a life may begin with what this process has imported, which makes it short."""

    def __init__(self, directory: Path, chance: random.Random, broken: str = "") -> None:
        self.directory, self.chance, self.broken = directory, chance, broken
        self.began_anew = 0
        self.prepare()

    @property
    def place(self) -> Path:
        """Where it works."""
        return self.directory / "disk" / f"{self.began_anew}"

    def command(self) -> list[str]:
        """What runs a life of it."""
        self.place.mkdir(parents=True, exist_ok=True)
        said = json.dumps(self.settings | {"place": str(self.place), "broken": self.broken})
        return [sys.executable, "-m", LIVES, self.package, str(self.directory), said]

    @abstractmethod
    def prepare(self) -> None:
        """Choose its settings, and write what it reads."""

    def victims(self, members: list[int]) -> list[int]:
        """Who of its processes may be struck; the driver is the first."""
        return members

    @property
    def settings(self) -> dict[str, Any]:
        """What its lives are told."""
        return {}

    @property
    def stores(self) -> dict[str, Any]:
        """What can be taken back."""
        return {}

    @property
    def results(self) -> int:
        """How many results are out; where that is not easily told, as many as anybody asks for."""
        return 1000

    def struck(self) -> list[str]:
        """Faults that fell by its own doing, when it has come to its end."""
        return []

    @abstractmethod
    def wrong(self, whole: bool) -> str:
        """What is wrong with what was put out so far: "lost", "doubled", "wrong", or nothing."""


def compared(found: Counter, expected: Counter, whole: bool) -> str:
    """What is wrong with results that came `found[name]`, each a list of values."""
    for name in found | expected if whole else found:
        ours, right = found.get(name), expected.get(name)
        if ours != right:
            if right is None:
                return f"doubled: {name} is not to come"
            more = ours is not None and ours > right
            return f"{'doubled' if more else 'lost'}: {name} is {ours} instead of {right}"
    return ""


class SharedState(Job):
    """D3: servers, tasks and an output task under their supervisor."""

    package = "shared_state"
    while_alive = (*["kill"] * 6, *["pause"] * 4, "full_disk", "freeze", "rival", "replaced")
    server: OwnServer | None = None
    batch = 100
    faults: ClassVar[dict[str, Any]] = {}
    """Settings of a life's own faults (`sharing_driver.Settings`)."""

    def prepare(self) -> None:
        chance = self.chance
        self.own = chance.choice(["rocksdb", "rocksdb", "sqlite", "memory"])
        self.on_postgres = chance.random() < 0.3 and not self.broken
        if self.on_postgres:
            if SharedState.server is None:
                SharedState.server = OwnServer()
                atexit.register(SharedState.server.remove)
            self.while_alive += ("disconnect", "disconnect", "database_down")
            self.name = f"aft_{time.time_ns()}"
        from tests.crash import test_shared_state

        test_shared_state.write(self.directory)

    @property
    def schema(self) -> str:
        """Schema in the PostgreSQL."""
        return f"{self.name}_{self.began_anew}"

    @property
    def settings(self) -> dict[str, Any]:
        from tests.crash.sharing_driver import Settings

        told = Settings(own=self.own, patience_s=8.0)
        if self.on_postgres:
            told = replace(told, shared=self.server.url, schema=self.schema)
        return asdict(told) | {"batch": self.batch} | self.faults

    @property
    def stage(self) -> Any:
        """What its processes know."""
        return stage_of(self.directory, self.place, self.settings)

    @property
    def stores(self) -> dict[str, Any]:
        sqlite = Files(lambda: self.place, "shared.sqlite*")
        found: dict[str, Any] = {"shared": Schema(self) if self.on_postgres else sqlite}
        if self.own != "memory":
            for server in range(2):
                found[f"own {server}"] = Files(lambda: self.place, f"server-{server}.{self.own}*")
        return found

    @property
    def results(self) -> int:
        return len(list((self.place / "output").glob("window-*.csv")))

    def wrong(self, whole: bool) -> str:
        found: Counter = Counter()
        for path in sorted((self.place / "output").glob("window-*.csv")):
            for line in path.read_text().splitlines():
                window, key, value = map(int, line.split(","))
                if (window, key) in found:
                    return f"doubled: {(window, key)} was put out twice"
                found[window, key] = value
        return compared(found, _sums(), whole)


@cache
def _sums() -> Counter:
    from tests.crash import test_shared_state

    return Counter(test_shared_state.replay(test_shared_state.partitions())[0])


def stage_of(directory: Path, place: Path, told: dict[str, Any]) -> Any:
    """The stage of a job, in the folder that it works in."""
    from tests.crash import sharing_driver

    told = dict(told)
    batch = told.pop("batch")
    told["faults"] = [Fault(**fields) for fields in told.get("faults", [])]
    stage = sharing_driver.job_in(directory, sharing_driver.Settings(**told))
    return replace(stage, directory=place, batch=batch)


class PartialReplay(Job):
    """D2: a driver without Spark."""

    package = "checkpoint_planning"
    while_alive = (*Job.while_alive, "rival")

    def prepare(self) -> None:
        from tests.crash import replay_driver

        self.log = replay_driver.write_log(self.directory)

    @property
    def stores(self) -> dict[str, Any]:
        names = {"state": "state.sqlite*", "prepared": "prepared"}
        return {name: Files(lambda: self.place, at) for name, at in names.items()}

    def wrong(self, whole: bool) -> str:
        if not whole:
            return ""
        from aftlib.checkpoint_planning.state import CheckpointStore
        from tests.crash import test_partial_replay

        query = test_partial_replay.driver.QUERY
        store = CheckpointStore(self.place / "state.sqlite", query.fingerprint)
        try:
            test_partial_replay.check(store, self.log)
        except AssertionError as error:
            windows = {(r.start, r.key) for r in store.results()}
            kind = "lost" if len(windows) < query.model.size * 3 else "wrong"
            return f"{kind}: {str(error)[:300]}"
        finally:
            store._connection.close()  # a life forked from this process must not inherit it
        return ""


class Standby(Job):
    """D4: primary and secondary, between an upstream and a downstream that nobody replaces.

    The nodes are struck one at a time, which is what the schemes are for.
    """

    package = "upstream_backup"
    while_alive = ("pause",)
    tuples = 3000

    def prepare(self) -> None:
        chance, count = self.chance, self.chance.randint(1, 4)
        at = sorted(chance.sample(range(200, self.tuples - 200, 100), count))
        kinds = ["pause" if chance.random() < 0.4 else "kill" for _ in at]
        self.schedule = [
            Fault(kind, chance.choice(["primary", "secondary"]), step)
            for step, kind in zip(at, kinds, strict=True)
        ]
        self.scheme = chance.choice(["upstream", "proposed"])

    @property
    def settings(self) -> dict[str, Any]:
        schedule = schedule_to_json(self.schedule)
        return {"schedule": schedule, "scheme": self.scheme}

    def victims(self, members: list[int]) -> list[int]:
        return members[:1]

    def struck(self) -> list[str]:
        return [fault.kind for fault in self.schedule]

    def wrong(self, whole: bool) -> str:
        path = self.place / "released.json"
        if not whole or not path.exists():
            return "lost: nothing came" if whole else ""
        found = json.loads(path.read_text())
        if found["faults"] != len(self.schedule):
            return f"wrong: {found['faults']} of {len(self.schedule)} faults were injected"
        return compared(Counter(found["released"]), Counter(range(self.tuples)), whole)


class Histogram(Job):
    """D5: a histogram whose state is one file, and answers that are a file a batch."""

    package = "exponential_histogram"
    window, epsilon, batch, batches = 1200, 0.05, 500, 40

    def prepare(self) -> None:
        self.bits = bits_of(self.batch * self.batches)

    @property
    def stores(self) -> dict[str, Any]:
        return {"state": Files(lambda: self.place, "state*")}

    @property
    def results(self) -> int:
        return len(list(self.place.glob("answers-*.npy")))

    def wrong(self, whole: bool) -> str:
        expected = ExponentialHistogram(self.window, self.epsilon).estimates(self.bits)
        due = {n: a.tolist() for n, a in enumerate(np.split(expected, self.batches))}
        found = {int(p.stem[8:]): np.load(p).tolist() for p in self.place.glob("answers-*.npy")}
        return compared(found, due, whole)


def bits_of(count: int) -> np.ndarray:
    """The stream of all histograms."""
    return np.random.default_rng(5).random(count) < 0.4


class ApproximatelyOnce(Job):
    """D1: a driver on Spark, whose workers die and are stopped."""

    package = "approximately_once"
    hung_s, forks = 500.0, False
    while_alive = ("kill", "kill", "pause")

    def prepare(self) -> None:
        from tests.crash import test_approximately_once as d1

        steps = draw(d1.MODEL, d1.STEPS, 4)
        self.log = SensorLog.write(self.directory / "log", steps, d1.MODEL.names)

    @property
    def stores(self) -> dict[str, Any]:
        return {"sink": Files(lambda: self.place, "sink.sqlite*")}

    def victims(self, members: list[int]) -> list[int]:
        """Python workers of its tasks."""
        listing = subprocess.run(
            ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="],
            capture_output=True,
            text=True,
            check=True,
        )
        rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
        parent = {int(pid): int(ppid) for pid, ppid, *_ in rows}
        daemons = {int(pid) for pid, _, *a in rows if a and "daemon pyspark.worker" in a[0]}
        ours = {d for d in daemons if parent[d] in members}
        return sorted(pid for pid in daemons if parent[pid] in ours)

    def wrong(self, whole: bool) -> str:
        if not whole:
            return ""
        from aftlib.approximately_once.sink import WindowSink
        from tests.crash import test_approximately_once as d1

        sink = WindowSink(self.place / "sink.sqlite")
        windows = sink.windows()
        try:
            d1.check(SimpleNamespace(windows=windows, outages=sink.outages()), self.log)
        except AssertionError as error:
            due = len(d1.WINDOWS.ending_in(0, d1.STEPS)) * d1.MODEL.size
            kind = "lost" if len(windows) < due else "wrong"
            return f"{kind}: {len(windows)} of {due} rows; {str(error)[:300]}"
        return ""


JOBS = {
    job.package: job for job in (SharedState, PartialReplay, Standby, Histogram, ApproximatelyOnce)
}
