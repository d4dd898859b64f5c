"""The supervisor: starts the processes of a stage, and those that die again."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

from aftlib.shared_state.servers.handover import hand_over_always
from aftlib.shared_state.servers.journal import Account, Journal
from aftlib.shared_state.servers.lifetime import die_with, fail, only_one, start_thread
from aftlib.shared_state.servers.output import Output
from aftlib.shared_state.servers.server import Server
from aftlib.shared_state.servers.stage import Stage
from aftlib.shared_state.servers.task import work
from aftlib.shared_state.servers.wire import Door
from aftlib.shared_state.stores.tables import StateTable

TICK_S = 0.02
PATIENCE_S = 600.0
"""Seconds for which the global store may be out of reach when a process starts."""
T = TypeVar("T")


def run_stage(stage: Stage) -> Account:
    """Run a stage to its end in a process of its own; returns what its tasks did.

    Raises
    ------
    RuntimeError
        When a process of it ended with an error.
    ValueError
        When another stage began in its folder.
    """
    stage.keep_folder()
    done = subprocess.run(
        [sys.executable, "-m", "aftlib.shared_state.servers"],
        input=pickle.dumps(stage),
        stderr=subprocess.PIPE,
    )
    if done.returncode:
        raise RuntimeError(
            f"the stage in {str(stage.directory)!r} ended with status {done.returncode}: "
            f"{done.stderr.decode(errors='replace')[-2000:]}"
        )
    return Account.of(stage.directory)


class Supervisor:
    """Runs a stage to its end, whatever of it dies by a signal; an error ends it.

    Nothing is kept in the supervisor: another one for the same folder goes on where it was killed,
    and its processes die with it. Processes are forked, so it must run in a process without
    threads.

    Parameters
    ----------
    stage : Stage
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.processes: dict[str, BaseProcess] = {}
        self._work: dict[str, Callable[[Journal], None]] = {"output": partial(put_out, stage)}
        for server in range(stage.servers):
            self._work[f"server-{server}"] = partial(serve, stage, server)
            for number in range(stage.tasks):
                self._work[f"task-{server}-{number}"] = partial(work, stage, server, number)

    def run(self, tick: Callable[[Supervisor], None] = lambda supervisor: None) -> None:
        """Run to the end; `tick` is called now and then.

        Raises
        ------
        RuntimeError
            When a process ended with an error.
        ValueError
            When another stage began in its folder (`Stage.keep_folder`).
        """
        self.stage.keep_folder()
        os.chdir(self.stage.directory)
        at = self.stage.points("supervisor")
        try:
            for name in self._work:
                self._start(name)
            while self.processes:
                wait([p.sentinel for p in self.processes.values()], TICK_S)
                for name, process in list(self.processes.items()):
                    if process.exitcode is None:
                        continue
                    process.join()
                    del self.processes[name]
                    if process.exitcode > 0:
                        said = Path(f"error-{process.pid}.txt")
                        word = said.read_text() if said.exists() else "it left no word"
                        raise RuntimeError(f"{name} ended with an error: {word}")
                    if process.exitcode < 0:
                        self._start(name)
                        at("restarted")
                tick(self)
        finally:
            for process in self.processes.values():
                process.kill()

    def _start(self, name: str) -> None:
        fork = multiprocessing.get_context("fork")
        self.processes[name] = fork.Process(target=self._live, args=(name, os.getpid()))
        self.processes[name].start()

    def _live(self, name: str, supervisor: int) -> None:
        try:
            start_thread(die_with, supervisor)
            self._work[name](Journal(name))
        except BaseException:
            fail()


def serve(stage: Stage, number: int, journal: Journal) -> None:
    """Be a server process, until all is read and handed over."""
    with only_one(f"server-{number}.lock"), stage.open_own(number) as own:
        server = patiently(lambda: server_of(stage, number, own))
        journal.note("began", epoch=server.cycle.epoch, pending=len(server.complete))
        start_thread(hand_over_always, server)
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


def shared_of(stage: Stage) -> StateTable:
    """The global store, once it is known to be this stage's."""
    shared = stage.open_shared()
    try:
        stage.keep_table(shared)
    except BaseException:
        shared.close()
        raise
    return shared


def server_of(stage: Stage, number: int, own: StateTable) -> Server:
    """A server that has asked the global store where it stands."""
    shared = shared_of(stage)
    try:
        return Server(stage, number, own, shared)
    except BaseException:
        shared.close()
        raise


def put_out(stage: Stage, journal: Journal) -> None:
    """Be the output process, until everything is out.

    Raises
    ------
    ValueError
        When the servers have handed over everything, and the global store does not have it.
    """
    with patiently(lambda: shared_of(stage)) as table:
        output = Output(stage, table)
        servers = [Path(f"server-{number}.done") for number in range(stage.servers)]
        done = False
        while not done:
            over = all(server.exists() for server in servers)
            try:
                done = output.put_out()
            except ConnectionError:  # out of reach for a while
                journal.note("waits")
                over = False
            if over and not done:
                raise ValueError(
                    "the global store must have what all servers have handed over, got one that "
                    "does not: it was replaced or is an older copy; begin anew in another "
                    "directory and schema"
                )
            time.sleep(TICK_S)


def patiently(asks: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """What needs the global store, as soon as that is there."""
    begin = time.monotonic()
    while True:
        try:
            return asks()
        except ConnectionError:
            if time.monotonic() - begin > patience_s:
                raise
            time.sleep(TICK_S)
