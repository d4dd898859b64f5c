"""The driver: starts the processes of a job, and those that die again."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

from aftlib.shared_state.servers import task
from aftlib.shared_state.servers.handover import HandOver
from aftlib.shared_state.servers.identity import keep_table_to, keep_to
from aftlib.shared_state.servers.job import Job
from aftlib.shared_state.servers.journal import Account, Journal
from aftlib.shared_state.servers.output import Output
from aftlib.shared_state.servers.processes import die_with, fail, only_one, start_thread
from aftlib.shared_state.servers.server import TOTAL, Server
from aftlib.shared_state.servers.wire import Door
from aftlib.shared_state.stores.tables import StateTable

TICK_S = 0.02
T = TypeVar("T")
Strike = Callable[[str, str], None]


def nobody_strikes(who: str, point: str) -> None:
    """Pass a point of a process at which a test may strike."""


class Driver:
    """Runs a job to its end, whatever of it dies by a signal; an error ends it.

    Nothing is kept in the driver: another one for the same folder goes on where it was killed, and
    its processes die with it. Processes are forked, so it must run in a process without threads.

    Parameters
    ----------
    job : Job
    strike : callable
        Called in each process with its name and each point that it passes.
    """

    def __init__(self, job: Job, strike: Strike = nobody_strikes) -> None:
        self.job = job
        self.processes: dict[str, BaseProcess] = {}
        self._strike = strike
        self._work: dict[str, Callable[..., None]] = {}
        for server in range(job.servers):
            self._work[f"server-{server}"] = lambda s=server, **how: _serve(job, s, **how)
            for number in range(job.tasks):
                self._work[f"task-{server}-{number}"] = lambda s=server, n=number, **how: task.work(
                    job, s, n, **how
                )
        if not job.keys_apart:
            self._work["output"] = lambda **how: _put_out(job, **how)

    def run(self, tick: Callable[[Driver], None] = lambda driver: None) -> None:
        """Run to the end; `tick` is called now and then.

        Raises
        ------
        RuntimeError
            When a process ended with an error.
        ValueError
            When another job began in its folder (`identity.keep_to`).
        """
        keep_to(self.job)
        os.chdir(self.job.directory)
        try:
            for name in self._work:
                self._start(name)
            while self.processes:
                wait([p.sentinel for p in self.processes.values()], TICK_S)
                self._restart_the_dead()
                tick(self)
        finally:
            for process in self.processes.values():
                process.kill()

    def _start(self, name: str) -> None:
        fork = multiprocessing.get_context("fork")
        self.processes[name] = fork.Process(target=self._live, args=(name, os.getpid()))
        self.processes[name].start()

    def _live(self, name: str, driver: int) -> None:
        try:
            start_thread(die_with, driver)
            self._work[name](journal=Journal(name), at=lambda point: self._strike(name, point))
        except BaseException:
            fail()

    def _restart_the_dead(self) -> None:
        for name, process in list(self.processes.items()):
            code = process.exitcode
            if code is None:
                continue
            process.join()
            del self.processes[name]
            if code > 0:
                raise RuntimeError(f"{name} ended with an error: {_said(process.pid)}")
            if code < 0:
                self._start(name)
                self._strike("driver", "restarted")


def run(job: Job) -> Account:
    """Run a job to its end in a process of its own; returns what its tasks did.

    Raises
    ------
    RuntimeError
        When a process of it ended with an error.
    ValueError
        When another job began in its folder.
    """
    keep_to(job)
    done = subprocess.run(
        [sys.executable, "-m", "aftlib.shared_state.servers"],
        input=pickle.dumps(job),
        stderr=subprocess.PIPE,
    )
    if done.returncode:
        raise RuntimeError(
            f"the job in {str(job.directory)!r} ended with status {done.returncode}: "
            f"{done.stderr.decode(errors='replace')[-2000:]}"
        )
    return Account.of(job.directory)


def _said(pid: int | None) -> str:
    path = Path(f"error-{pid}.txt")
    return path.read_text() if path.exists() else "it left no word"


def _serve(job: Job, number: int, journal: Journal, at: Callable[[str], None]) -> None:
    """A server process, until all is read and handed over."""
    with only_one(f"server-{number}.lock"), job.open_own(number) as own:
        server = _patiently(lambda: _server(job, number, own, at))
        journal.note("began", epoch=server.cycle.epoch, pending=len(server.complete))
        start_thread(HandOver(server).run)
        start_thread(Door(server).run)
        output = Output(job, own, job.partitions_of(number), TOTAL, part=f"server-{number}", at=at)
        while not server.finished:
            with server.changed:
                read_all = server.changed.wait_for(lambda: server.read_all, job.checkpoint_s)
                server.checkpoint()
                if job.keys_apart:
                    output.put_out()
                if read_all:
                    server.changed.wait(TICK_S)
        with server.lock:  # until the process is gone: its threads must not find closed stores
            if job.keys_apart:
                output.put_out()
            own.close()
            server.shared.close()
            Path(f"server-{number}.done").touch()
            os._exit(0)


def _put_out(job: Job, journal: Journal, at: Callable[[str], None]) -> None:
    """An output process, until everything is out."""
    with _patiently(job.open_shared) as table:
        output = Output(job, table, list(range(job.source.partitions)), at=at)
        done = False
        while not done:
            try:
                done = output.put_out()
            except ConnectionError:  # out of reach for a while
                journal.note("waits")
            time.sleep(TICK_S)


def _server(job: Job, number: int, own: StateTable, at: Callable[[str], None]) -> Server:
    """A server that has asked the global store where it stands."""
    shared = job.open_shared()
    try:
        keep_table_to(shared, job)
        return Server(job, number, own, shared, at)
    except BaseException:
        shared.close()
        raise


def _patiently(work: Callable[[], T], patience_s: float = 600.0) -> T:
    """What needs the global store, as soon as that is there."""
    begin = time.monotonic()
    while True:
        try:
            return work()
        except ConnectionError:
            if time.monotonic() - begin > patience_s:
                raise
            time.sleep(TICK_S)
