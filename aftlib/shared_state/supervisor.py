"""The supervisor: starts the processes of a job, and restarts those that crash."""

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
from typing import IO, cast

from aftlib.shared_state.job import TICK_S, Account, Job, Journal
from aftlib.shared_state.liveness import (
    LOG,
    SILENT_S,
    WAITS,
    end_with_parent,
    fail,
    held_lock,
    report_errors_to,
    start_thread,
)
from aftlib.shared_state.output import emit_windows
from aftlib.shared_state.server import serve
from aftlib.shared_state.task import load_kernels, work

OTHERS_S = 10.0
"""Longest wait, in seconds, for the processes of a crashed supervisor to end."""
MOST_CRASHES = 20
"""Most crashes of a process while the job makes no progress."""
ONE_HOST = (
    "servers and tasks of a job are processes of this machine, which talk through sockets and "
    "locks: no other machine of the cluster in AFT_MASTER works for them; across machines, use "
    "merge_log(…, 'late global') with a PostgresTable"
)


def run_job(job: Job) -> Account:
    """Run a job to its end in a process of its own; return the counts of its tasks.

    The log `aftlib.shared_state` names processes and stores for which the job waits. RuntimeError
    with the reason if the job ends with an error (`Supervisor.run`); ValueError if another job
    began in its folder. It warns if `AFT_MASTER` names a cluster, because a job runs on this
    machine only.
    """
    if not (os.environ.get("AFT_MASTER") or "local").startswith("local"):
        warnings.warn(ONE_HOST, stacklevel=2)
    job.claim_folder()
    command = [sys.executable, "-m", __name__]
    output, reported, over = b"", 0, False
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        stdin, stderr = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stderr)
        try:
            with suppress(BrokenPipeError), stdin as file:
                file.write(job.to_json().encode())
            while not over:  # not to the pipe's end: a stopped process may hold it open
                over = process.poll() is not None
                while wait([pipe := stderr.fileno()], TICK_S):
                    if not (read := os.read(pipe, 2**16)):
                        over = process.wait() is not None
                        break
                    output += read
                lines = output.decode(errors="replace").split("\n")
                for line in lines[reported:-1]:
                    if line.startswith(WAITS):
                        LOG.warning(line)
                reported = len(lines) - 1
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(
            f"the job in {str(job.directory)!r} ended with status {process.returncode}: "
            f"{output.decode(errors='replace')[-2000:]}"
        )
    return Account.of(job.directory)


class Supervisor:
    """Runs a job to its end; processes killed by a signal are restarted, an error ends the job.

    The supervisor stores nothing. Its processes end with it, and another supervisor for the same
    folder continues the job. Processes are forked, so it must run in a process without threads.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.processes: dict[str, BaseProcess] = {}
        self._at = job.points("supervisor")
        self._pipes: dict[str, int] = {}
        self._silent: dict[str, tuple[int, float]] = {}
        self._crashes: dict[str, tuple[tuple[int, int] | None, int]] = {}
        self._work: dict[str, Callable[[Journal], None]] = {"output": partial(emit_windows, job)}
        for server in range(job.servers):
            self._work[f"server-{server}"] = partial(serve, job, server)
            for number in range(job.tasks):
                self._work[f"task-{server}-{number}"] = partial(work, job, server, number)

    def run(self) -> None:
        """Run the job to its end.

        A RuntimeError names the process that ended with an error, gives no sign of life, or crashes
        again and again. TimeoutError if another supervisor runs the job, or processes of a crashed
        one still run. ValueError if another job began in its folder (`Job.claim_folder`).
        """
        self.job.claim_folder()
        os.chdir(self.job.directory)
        with held_lock(self.job.directory / "supervisor.lock", OTHERS_S):
            self._journal = Journal("supervisor")
            load_kernels()  # forked tasks and replacements inherit them
            try:
                for name in self._work:
                    self._start(name)
                looked = time.monotonic()
                while self.processes:
                    wait([p.sentinel for p in self.processes.values()], TICK_S)
                    # at most 1 s: this process may have been stopped, or the machine asleep
                    passed_s = min(time.monotonic() - looked, 1.0)
                    looked = time.monotonic()
                    for name, process in list(self.processes.items()):
                        if process.exitcode is not None:
                            self._restart(name, process)
                        else:
                            self._check_alive(name, process, passed_s)
            finally:
                for process in self.processes.values():
                    process.kill()

    def _start(self, name: str) -> None:
        read_end, write_end = os.pipe()
        fork = multiprocessing.get_context("fork")
        self.processes[name] = fork.Process(
            target=self._run_process, args=(name, os.getpid(), write_end)
        )
        sign_of(name).touch()
        self.processes[name].start()
        os.close(write_end)
        self._pipes[name] = read_end

    def _run_process(self, name: str, supervisor: int, error_pipe: int) -> None:
        try:
            report_errors_to(error_pipe)
            start_thread(end_with_parent, supervisor, sign_of(name))
            self._work[name](Journal(name))
        except BaseException:
            fail()

    def _restart(self, name: str, process: BaseProcess) -> None:
        """Restart a process that a signal ended, unless it keeps crashing without progress."""
        process.join()
        code = process.exitcode or 0
        del self.processes[name]
        with open(self._pipes.pop(name), "rb") as pipe:
            error = pipe.read().decode(errors="replace") if code > 0 else ""
        if code > 0:
            raise RuntimeError(f"{name} ended with an error: {error or 'it wrote none'}")
        if code == 0:
            return

        windows = len(list(self.job.output.glob("window-*.csv")))
        reached = sum(Account.of(self.job.directory).read.values()), windows
        before, crashes = self._crashes.get(name, (None, 0))
        self._crashes[name] = reached, crashes + 1 if reached == before else 1
        if self._crashes[name][1] > MOST_CRASHES:
            raise RuntimeError(
                f"{name} crashed {MOST_CRASHES + 1} times, the last time by signal {-code}, and "
                "the job made no progress in between: find out what kills it"
            )
        self._start(name)
        self._at("restarted")

    def _check_alive(self, name: str, process: BaseProcess, passed_s: float) -> None:
        """Log a process that gives no sign of life; RuntimeError after `patience_s` seconds."""
        if not self.job.directory.exists():
            raise RuntimeError(
                f"directory must stay while the job runs, got none at {str(self.job.directory)!r}"
                ": bring it back with all its files, or start again in another directory and schema"
            )
        sign = 0
        with suppress(FileNotFoundError):  # removed: a running process writes it again
            sign = sign_of(name).stat().st_mtime_ns
        before, was_silent_s = self._silent.get(name, (0, 0.0))
        silent_s = was_silent_s + passed_s if sign == before else 0.0
        self._silent[name] = sign, silent_s
        report = (
            f"{name} (process {process.pid}) has given no sign of life for {silent_s:.0f} s: "
            "is it stopped? continue or kill it, or run the job again"
        )
        if was_silent_s <= SILENT_S < silent_s:
            self._journal.record("waits for", name=name, pid=process.pid)
            LOG.warning("%s %s; the job ends after %g s", WAITS, report, self.job.patience_s)
        if silent_s > self.job.patience_s:
            raise RuntimeError(report)


def sign_of(name: str) -> Path:
    """File that a running process touches as a sign of life."""
    return Path(f"alive-{name}")


if __name__ == "__main__":
    Supervisor(Job.from_json(sys.stdin.read())).run()
