"""The supervisor: starts the processes of a stage, and those that die again."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, TypeVar, cast

from aftlib.shared_state.intake import load_loops
from aftlib.shared_state.job import Account, Journal, Stage
from aftlib.shared_state.liveness import (
    LOG,
    SILENT_S,
    WAITS,
    fail,
    live_with,
    only_one,
    patiently,
    speak_through,
    start_thread,
)
from aftlib.shared_state.output import Output
from aftlib.shared_state.server import Server
from aftlib.shared_state.stores.tables import StateTable
from aftlib.shared_state.task import Door, work

TICK_S = 0.02
OTHERS_S = 10.0
"""Seconds that a dead supervisor's processes take to end."""
MOST_DEATHS = 20
"""Deaths of a process without anything getting further in between."""
ONE_HOST = (
    "servers and tasks of a stage are processes of this machine, which talk through sockets and "
    "locks: no other machine of the cluster in AFT_MASTER works for them; across machines, use "
    "merge_log(…, 'late global') with a PostgresTable"
)
AWAY = ConnectionError, TimeoutError
"""Errors of a global store that does not answer, or that others hold: it is waited for."""
T = TypeVar("T")


def run_stage(stage: Stage) -> Account:
    """Run a stage to its end in a process of its own; returns what its tasks did.

    Who or what is waited for, for more than some seconds, goes to the log `aftlib.shared_state`. A
    RuntimeError says what ended it otherwise (`Supervisor.run`), a ValueError that another stage
    began in its folder, a warning that `AFT_MASTER` names a cluster: a stage runs on this machine.
    """
    if not (os.environ.get("AFT_MASTER") or "local").startswith("local"):
        warnings.warn(ONE_HOST, stacklevel=2)
    stage.keep_folder()
    command, said, told, over = [sys.executable, "-m", __name__], b"", 0, False
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        stdin, stderr = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stderr)
        try:
            with suppress(BrokenPipeError), stdin as given:
                given.write(stage.to_json().encode())
            while not over:  # not to the pipe's end: a stopped process may hold it open
                over = process.poll() is not None
                while wait([mouth := stderr.fileno()], TICK_S):
                    if not (read := os.read(mouth, 2**16)):
                        over = process.wait() is not None
                        break
                    said += read
                lines = said.decode(errors="replace").split("\n")
                for line in lines[told:-1]:
                    if line.startswith(WAITS):
                        LOG.warning(line)
                told = len(lines) - 1
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(
            f"the stage in {str(stage.directory)!r} ended with status {process.returncode}: "
            f"{said.decode(errors='replace')[-2000:]}"
        )
    return Account.of(stage.directory)


class Supervisor:
    """Runs a stage to its end, whatever of it dies by a signal; an error ends it.

    Nothing is kept in the supervisor: another one for the same folder goes on where it was killed,
    and its processes die with it. Processes are forked, so it must run in a process without
    threads.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.processes: dict[str, BaseProcess] = {}
        self._at = stage.points("supervisor")
        self._ears: dict[str, int] = {}
        self._silent: dict[str, tuple[int, float]] = {}
        self._deaths: dict[str, tuple[tuple[int, int] | None, int]] = {}
        self._work: dict[str, Callable[[Journal], None]] = {"output": partial(emit_windows, stage)}
        for server in range(stage.servers):
            self._work[f"server-{server}"] = partial(serve, stage, server)
            for number in range(stage.tasks):
                self._work[f"task-{server}-{number}"] = partial(work, stage, server, number)

    def run(self, tick: Callable[[Supervisor], None] = lambda supervisor: None) -> None:
        """Run to the end; `tick` is called now and then.

        A RuntimeError says which process ended with an error, gives no sign of life, or dies again
        and again; a TimeoutError that another supervisor runs the stage, or processes of a dead one
        are left; a ValueError that another stage began in its folder (`Stage.keep_folder`).
        """
        self.stage.keep_folder()
        os.chdir(self.stage.directory)
        with only_one(self.stage.directory / "supervisor.lock", OTHERS_S):
            self._journal = Journal("supervisor")
            load_loops()  # which every task, and who comes in a dead one's place, has by its fork
            try:
                for name in self._work:
                    self._start(name)
                looked = time.monotonic()
                while self.processes:
                    wait([p.sentinel for p in self.processes.values()], TICK_S)
                    # no more, for this process may have been stopped, or the machine asleep
                    passed_s = min(time.monotonic() - looked, 1.0)
                    looked = time.monotonic()
                    for name, process in list(self.processes.items()):
                        if process.exitcode is not None:
                            self._bury(name, process)
                        else:
                            self._look_after(name, process, passed_s)
                    tick(self)
            finally:
                for process in self.processes.values():
                    process.kill()

    def _start(self, name: str) -> None:
        ear, mouth = os.pipe()
        fork = multiprocessing.get_context("fork")
        self.processes[name] = fork.Process(target=self._live, args=(name, os.getpid(), mouth))
        sign_of(name).touch()
        self.processes[name].start()
        os.close(mouth)
        self._ears[name] = ear

    def _live(self, name: str, supervisor: int, mouth: int) -> None:
        try:
            speak_through(mouth)
            start_thread(live_with, supervisor, sign_of(name))
            self._work[name](Journal(name))
        except BaseException:
            fail()

    def _bury(self, name: str, process: BaseProcess) -> None:
        """Start a process again that has died by a signal, unless that leads nowhere."""
        process.join()
        code = process.exitcode or 0
        del self.processes[name]
        with open(self._ears.pop(name), "rb") as ear:
            said = ear.read().decode(errors="replace") if code > 0 else ""
        if code > 0:
            raise RuntimeError(f"{name} ended with an error: {said or 'it left no word'}")
        if code == 0:
            return

        windows = len(list(self.stage.output.glob("window-*.csv")))
        reached = sum(Account.of(self.stage.directory).read.values()), windows
        before, deaths = self._deaths.get(name, (None, 0))
        self._deaths[name] = reached, deaths + 1 if reached == before else 1
        if self._deaths[name][1] > MOST_DEATHS:
            raise RuntimeError(
                f"{name} died {MOST_DEATHS + 1} times, the last time by signal {-code}, and the "
                "stage got nowhere in between: find out what kills it"
            )
        self._start(name)
        self._at("restarted")

    def _look_after(self, name: str, process: BaseProcess, passed_s: float) -> None:
        """Say who is waited for when a process gives no sign of life; at last wait no longer."""
        if not self.stage.directory.exists():
            raise RuntimeError(
                f"directory must stay while the job runs, got none at {str(self.stage.directory)!r}"
                ": bring it back with all its files, or begin anew in another directory and schema"
            )
        sign = 0
        with suppress(FileNotFoundError):  # removed: a process that lives makes it again
            sign = sign_of(name).stat().st_mtime_ns
        before, was_silent_s = self._silent.get(name, (0, 0.0))
        silent_s = was_silent_s + passed_s if sign == before else 0.0
        self._silent[name] = sign, silent_s
        said = (
            f"{name} (process {process.pid}) has given no sign of life for {silent_s:.0f} s: "
            "is it stopped? continue or kill it, or run the stage again"
        )
        if was_silent_s <= SILENT_S < silent_s:
            self._journal.note("waits for", name=name, pid=process.pid)
            LOG.warning("%s %s; the stage ends after %g s", WAITS, said, self.stage.patience_s)
        if silent_s > self.stage.patience_s:
            raise RuntimeError(said)


def sign_of(name: str) -> Path:
    """File that a living process touches."""
    return Path(f"alive-{name}")


def serve(stage: Stage, number: int, journal: Journal) -> None:
    """Be a server process, until all is read and handed over."""
    with only_one(f"server-{number}.lock", stage.patience_s), stage.open_own(number) as own:
        server = opened(stage, partial(Server, stage, number, own))
        journal.note("began", epoch=server.cycle.epoch, pending=len(server.complete))
        start_thread(server.hand_over_always)
        start_thread(Door(server).run)
        while not server.finished:
            with server.changed:
                read_all = server.changed.wait_for(lambda: server.read_all, stage.checkpoint_s)
                server.checkpoint()
                if read_all:
                    server.changed.wait(TICK_S)
        with server.lock:  # until the process is gone: its threads must not find closed stores
            own.close()
            server.shared.close()
            Path(f"server-{number}.done").touch()
            os._exit(0)


def emit_windows(stage: Stage, journal: Journal) -> None:
    """Be the output process, until every window is emitted."""
    output = opened(stage, partial(Output, stage))
    with output.table:
        servers = [Path(f"server-{number}.done") for number in range(stage.servers)]
        done = False
        while not done:
            over = all(server.exists() for server in servers)
            done = patiently(output.emit, stage.patience_s, AWAY, TICK_S)
            if over and not done:
                raise ValueError(
                    "the global store must have what all servers have handed over, got one that "
                    "does not: it was replaced or is an older copy; begin anew in another "
                    "directory and schema"
                )
            time.sleep(TICK_S)
        output.require_files()
        output.require_no_others()


def opened(stage: Stage, begin: Callable[[StateTable], T]) -> T:
    """What begins with the global store, once that is there and known to be this stage's."""

    def asks() -> T:
        shared = stage.open_shared()
        try:
            stage.keep_table(shared)
            return begin(shared)
        except BaseException:
            shared.close()
            raise

    return patiently(asks, stage.patience_s, AWAY, TICK_S)


if __name__ == "__main__":
    Supervisor(Stage.from_json(sys.stdin.read())).run()
