"""Child processes: messages, SIGKILL, and no child after its block."""

import multiprocessing
import os
import signal

import pytest

from aftlib.core import processes
from aftlib.core.processes import ChildProcess


def answer(pipe, *words):
    """Send the words, then each message back, until SIGKILL."""
    pipe.send(words)
    while True:
        pipe.send(pipe.recv())


def end(pipe, status):
    os._exit(status)


def test_a_child_answers_until_its_block_ends():
    with ChildProcess(answer, "one", "two") as child:
        assert child.receive() == ("one", "two")
        child.send(3)
        assert child.receive() == 3
    assert child.process.exitcode == -signal.SIGKILL
    assert not multiprocessing.active_children()


def test_a_killed_child_closes_the_pipe():
    with ChildProcess(answer) as child:
        child.receive()
        child.kill()
        assert child.wait_for_end() == -signal.SIGKILL
        with pytest.raises(EOFError):
            child.receive()
        with pytest.raises(BrokenPipeError):
            child.send("too late")


def test_an_error_in_the_block_stops_the_child():
    with pytest.raises(RuntimeError, match="injected"), ChildProcess(answer) as child:
        raise RuntimeError("injected")
    assert not child.process.is_alive()


def test_the_exit_code_of_a_child_that_ends_by_itself():
    with ChildProcess(end, 7) as child:
        assert child.wait_for_end() == 7


def test_each_package_adds_its_modules_to_the_server(monkeypatch):
    given = []
    monkeypatch.setattr(processes, "_PRELOADED", [])
    monkeypatch.setattr(processes._FORKS, "set_forkserver_preload", given.append)
    for module in ("a", "b", "a"):
        processes.preload(module)
    assert given[-1] == ["a", "b"]
