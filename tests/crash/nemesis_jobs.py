"""The jobs that the nemesis strikes, one class a room: how to run one, and what was wrong with it.

python -m tests.crash.nemesis_jobs ROOM DIRECTORY 'SETTINGS as JSON'

is one life of a job: it goes on where the last one ended.
"""

from __future__ import annotations

import atexit
import json
import pickle
import random
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from aftlib.core.generators import draw
from aftlib.core.paths import atomic_file
from aftlib.core.sensorlog import SensorLog
from aftlib.exponential_histogram import ExponentialHistogram
from tests.postgres import OwnServer

ROOT = Path(__file__).parents[2]


class Files:
    """A store that is files in a job's folder: to be copied, taken back, deleted."""

    def __init__(self, place: Callable[[], Path], pattern: str) -> None:
        self._place, self._pattern = place, pattern

    def there(self) -> list[Path]:
        """The files and folders of the store."""
        return sorted(self._place().glob(self._pattern))

    def copy(self) -> dict[Path, bytes]:
        """What all its files hold."""
        found = [p for top in self.there() for p in ([top] if top.is_file() else top.rglob("*"))]
        return {path: path.read_bytes() for path in found if path.is_file()}

    def delete(self) -> None:
        """No file of it is left."""
        for path in self.there():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def restore(self, copy: dict[Path, bytes]) -> None:
        """Put a copy in its place."""
        self.delete()
        for path, content in copy.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def differs(self, copy: dict[Path, bytes]) -> bool:
        """Whether it holds something else than a copy."""
        return self.copy() != copy

    def lose_journal(self) -> None:
        """Delete the write-ahead log only."""
        for path in self.copy():
            if path.name.endswith(("-wal", "-shm", ".log")):
                path.unlink()


class Schema:
    """The same for a schema of a PostgreSQL; its copies are rows."""

    tables = ("epochs", "handed", "progress", "state", "identity")

    def __init__(self, job: SharedState) -> None:
        self._job = job

    def _connected(self) -> Any:
        import psycopg

        return psycopg.connect(self._job.server.url, autocommit=True)

    def copy(self) -> dict[str, list[tuple]]:
        """Rows of its tables; none when it is not there."""
        found: dict[str, list[tuple]] = {}
        with self._connected() as connection:
            there = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
            for (table,) in connection.execute(there, [self._job.schema]).fetchall():
                rows = connection.execute(f"TABLE {self._job.schema}.{table}".encode())
                found[table] = sorted(rows.fetchall())
        return found

    def differs(self, copy: dict[str, list[tuple]]) -> bool:
        """Whether it holds something else than a copy."""
        return self.copy() != copy

    def delete(self) -> None:
        """Nothing of it is left."""
        with self._connected() as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {self._job.schema} CASCADE".encode())

    lose_journal = delete

    def restore(self, copy: dict[str, list[tuple]]) -> None:
        """Put a copy in its place."""
        old, new = self._job.schema, f"new_{time.time_ns()}"
        if copy:
            replace(self._job.stage, schema=new).open_shared().close()  # makes the tables
        with self._connected() as connection, connection.transaction():
            for table, rows in copy.items():
                connection.execute(f"TRUNCATE {new}.{table}".encode())
                for row in rows:
                    marks = ", ".join(["%s"] * len(row))
                    connection.execute(f"INSERT INTO {new}.{table} VALUES ({marks})".encode(), row)
            connection.execute(f"DROP SCHEMA IF EXISTS {old} CASCADE".encode())
            if copy:
                connection.execute(f"ALTER SCHEMA {new} RENAME TO {old}".encode())

    def cut_off(self) -> None:
        """End all connections."""
        with self._connected() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                "pid != pg_backend_pid() AND backend_type = 'client backend'"
            )


class Job(ABC):
    """A job of a room in a folder of its own.

    `place` is where it works; it moves when the job has to begin anew.
    """

    room = ""
    while_alive: tuple[str, ...] = ("kill", "pause", "full disk")
    """Faults that strike while it lives."""
    between: tuple[str, ...] = ("older copy", "deleted", "journal lost")
    """Faults that strike what it has kept while it is down."""
    hung_s = 90.0

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
        return [sys.executable, "-m", __name__, self.room, str(self.directory), said]

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
        """How many results are out, where that is easily told."""
        return 0

    def struck(self) -> dict[str, int]:
        """Faults that fell by its own doing, when it has come to its end."""
        return {}

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

    room = "shared_state"
    while_alive = (*["kill"] * 6, *["pause"] * 4, "full disk", "freeze", "rival", "replaced")
    server: OwnServer | None = None

    def prepare(self) -> None:
        chance = self.chance
        self.own = chance.choice(["rocksdb", "rocksdb", "sqlite", "memory"])
        self.on_postgres = chance.random() < 0.3 and not self.broken
        if self.on_postgres:
            if SharedState.server is None:
                SharedState.server = OwnServer()
                atexit.register(SharedState.server.remove)
            self.while_alive += ("cut off", "cut off", "database down")
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

        told = Settings(own=self.own, patience_s=4.0)
        if self.on_postgres:
            told = replace(told, shared=self.server.url, schema=self.schema)
        return asdict(told)

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

    settings = sharing_driver.Settings(**{k: v for k, v in told.items() if k != "place"})
    stage = sharing_driver.stage_in(directory, settings)
    return replace(stage, directory=place)


def live_shared_state(directory: Path, place: Path, told: dict[str, Any]) -> None:
    from aftlib.shared_state.aggregates import Partials
    from aftlib.shared_state.servers import supervisor
    from aftlib.shared_state.servers.server import Server
    from aftlib.shared_state.stores.sql import SqlTable

    if told["broken"] == "trusting":  # each server tells the global store where it stands
        merge = SqlTable.merge

        def merged(table, partials, progress, epoch=0, token=None):  # noqa: ANN001, ANN202
            bare = {p: replace(now, since=None) for p, now in progress.items()}
            return merge(table, partials, bare, epoch, token)

        def agreed(server):  # noqa: ANN001, ANN202
            handed = server.shared.handed().get(server.name, 0)
            with server.lock:
                known = server.reached([0, *(e for e in server.complete if e <= handed)])
            server.shared.merge(Partials.empty(1), known)
            return handed, known

        SqlTable.merge, Server.agreed = merged, agreed
    stage = stage_of(directory, place, told)
    supervisor.OTHERS_S = 3.0  # many rivals wait so long
    begin(place)
    supervisor.Supervisor(stage).run()


class PartialReplay(Job):
    """D2: a driver without Spark."""

    room = "checkpoint_planning"

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
        return ""


def live_checkpoint_planning(directory: Path, place: Path, told: dict[str, Any]) -> None:
    from aftlib.checkpoint_planning.pipeline import replay_in_process
    from tests.crash.replay_driver import QUERY

    log = SensorLog.open(directory / "log")
    begin(place)
    replay_in_process(QUERY, log, place, lambda point, batch: time.sleep(0.02))


class Standby(Job):
    """D4: primary and secondary, between an upstream and a downstream that nobody replaces.

    The nodes are struck one at a time, which is what the schemes are for.
    """

    room = "upstream_backup"
    while_alive = ("pause",)
    tuples = 3000

    def prepare(self) -> None:
        chance, count = self.chance, self.chance.randint(1, 4)
        at = sorted(chance.sample(range(200, self.tuples - 200, 100), count))
        kinds = [chance.random() < 0.4 for _ in at]
        self.kills = [
            (a, chance.choice(["primary", "secondary"]), k) for a, k in zip(at, kinds, strict=True)
        ]
        self.scheme, self.ordered = chance.choice(["upstream", "proposed"]), chance.random() < 0.5

    @property
    def settings(self) -> dict[str, Any]:
        return {"kills": self.kills, "scheme": self.scheme, "ordered": self.ordered}

    def victims(self, members: list[int]) -> list[int]:
        return members[:1]

    def struck(self) -> dict[str, int]:
        stalled = sum(stalls for _, _, stalls in self.kills)
        return {"kill": len(self.kills) - stalled, "pause": stalled}

    def wrong(self, whole: bool) -> str:
        path = self.place / "released.json"
        if not whole or not path.exists():
            return "lost: nothing came" if whole else ""
        found = json.loads(path.read_text())
        if self.ordered and found["released"] != sorted(found["released"]):
            return "wrong: out of order"
        if found["kills"] != len(self.kills):
            return f"wrong: {found['kills']} of {len(self.kills)} strikes fell"
        return compared(Counter(found["released"]), Counter(range(self.tuples)), whole)


def live_upstream_backup(directory: Path, place: Path, told: dict[str, Any]) -> None:
    from aftlib.upstream_backup.processes import NodeKill, deliver
    from aftlib.upstream_backup.schemes import PROPOSED, UPSTREAM

    scheme = {"upstream": UPSTREAM, "proposed": PROPOSED}[told["scheme"]]
    kills = [NodeKill(*kill) for kill in told["kills"]]
    begin(place)
    found = deliver(scheme, Standby.tuples, kills, ordered=told["ordered"], patience_s=20)
    with atomic_file(place / "released.json") as scratch:
        scratch.write_text(json.dumps({"released": found.released, "kills": found.kills}))


class Histogram(Job):
    """D5: a histogram whose state is one file, and answers that are a file a batch."""

    room = "exponential_histogram"
    window, epsilon, batch, batches = 1200, 0.05, 500, 40

    def prepare(self) -> None:
        self.bits = bits_of(self.batch * self.batches)

    @property
    def stores(self) -> dict[str, Any]:
        return {"state": Files(lambda: self.place, "state*")}

    def wrong(self, whole: bool) -> str:
        expected = ExponentialHistogram(self.window, self.epsilon).estimates(self.bits)
        due = {n: a.tolist() for n, a in enumerate(np.split(expected, self.batches))}
        found = {int(p.stem[8:]): np.load(p).tolist() for p in self.place.glob("answers-*.npy")}
        return compared(found, due, whole)


def bits_of(count: int) -> np.ndarray:
    """The stream of all histograms."""
    return np.random.default_rng(5).random(count) < 0.4


def live_exponential_histogram(directory: Path, place: Path, told: dict[str, Any]) -> None:
    job, state = Histogram, place / "state"
    bits = bits_of(job.batch * job.batches)
    histogram = ExponentialHistogram(job.window, job.epsilon)
    begin(place)
    if state.exists():
        histogram = ExponentialHistogram.from_bytes(state.read_bytes())
    for number in range((histogram.now or 0) // job.batch, job.batches):
        found = histogram.estimates(bits[number * job.batch : (number + 1) * job.batch])
        with atomic_file(place / f"answers-{number}.npy") as scratch:
            np.save(scratch, found)
        time.sleep(0.01)
        with atomic_file(state) as scratch:
            scratch.write_bytes(histogram.to_bytes())
        time.sleep(0.01)


class ApproximatelyOnce(Job):
    """D1: a driver on Spark, whose workers die and are stopped."""

    room = "approximately_once"
    hung_s = 200.0
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
            ["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
        )
        rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
        parent = {int(pid): int(ppid) for pid, ppid, *_ in rows}
        daemons = {int(pid) for pid, _, *a in rows if a and "daemon pyspark.worker" in a[0]}
        ours = {d for d in daemons if parent[d] in members}
        return sorted(pid for pid in daemons if parent[pid] in ours)

    def wrong(self, whole: bool) -> str:
        if not whole:
            return ""
        from tests.crash import test_approximately_once as d1

        done = pickle.loads((self.place / "done.pickle").read_bytes())
        try:
            d1.check(SimpleNamespace(**done), self.log)
        except AssertionError as error:
            due = len(d1.WINDOWS.ending_in(0, d1.STEPS)) * d1.MODEL.size
            kind = "lost" if len(done["windows"]) < due else "wrong"
            return f"{kind}: {len(done['windows'])} of {due} rows; {str(error)[:300]}"
        return ""


def live_approximately_once(directory: Path, place: Path, told: dict[str, Any]) -> None:
    from pyspark import cloudpickle

    from aftlib.approximately_once import pipeline
    from aftlib.spark.session import session
    from tests.crash import test_approximately_once as d1

    cloudpickle.register_pickle_by_value(d1)
    pipeline.Worker = d1.Slow
    query = d1.query(SensorLog.open(directory / "log"))
    spark = session("nemesis")
    begin(place)
    done = pipeline.recover_stream(spark, query, place)
    with atomic_file(place / "done.pickle") as scratch:
        scratch.write_bytes(pickle.dumps({"windows": done.windows, "outages": done.outages}))
    spark.stop()


def begin(place: Path) -> None:
    """Say that all is imported, and the work begins."""
    with suppress(OSError):  # of a full disk the job itself must tell
        (place / "began").touch()


JOBS = {
    job.room: job for job in (SharedState, PartialReplay, Standby, Histogram, ApproximatelyOnce)
}


def main(room: str, directory: str, said: str) -> None:
    """Live once."""
    told = json.loads(said)
    place = Path(told.pop("place"))
    globals()[f"live_{room}"](Path(directory), place, told)


if __name__ == "__main__":
    main(*sys.argv[1:])
