"""Child processes with a pipe to their parent, which the parent can kill by SIGKILL.

Children are forked from a server process that has loaded the modules named by `preload`, as a
standby process would have. So the time until a child works has no imports in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any, Self

_FORKS = get_context("forkserver")
_PRELOADED = list[str]()


def preload(module: str) -> None:
    """Let the server that forks the children load a module; call it before the first child starts.

    The server is the same for all packages, and loads the modules of all calls.
    """
    if module not in _PRELOADED:
        _PRELOADED.append(module)
    _FORKS.set_forkserver_preload(list(_PRELOADED))


class ChildProcess:
    """A handle of a child process that runs ``target(pipe, *arguments)``.

    As a context manager it stops the child at the end of the block.

    Parameters
    ----------
    target : callable
        Function of a module. Its first argument is the child's end of the pipe.
    *arguments
        Further arguments, which are pickled.

    Attributes
    ----------
    process : multiprocessing.process.BaseProcess
        The child, with its exit code.

    Examples
    --------
    >>> from multiprocessing.connection import Connection
    >>> with ChildProcess(Connection.send, "a message") as child:
    ...     child.receive()
    'a message'
    """

    def __init__(self, target: Callable[..., object], *arguments: object) -> None:
        self._pipe, end = _FORKS.Pipe()
        self.process = _FORKS.Process(target=target, args=(end, *arguments))
        self.process.start()
        end.close()  # so that the pipe closes when the child ends

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def send(self, message: object) -> None:
        """Send a message to the child; BrokenPipeError if it has ended."""
        self._pipe.send(message)

    def receive(self) -> Any:
        """Return the child's next message; EOFError if it has ended."""
        try:
            return self._pipe.recv()
        except ConnectionResetError as error:  # it ended before it had read all messages
            raise EOFError("the child process has ended") from error

    def kill(self) -> float:
        """Kill the child by SIGKILL; return the time by the monotonic clock."""
        now = time.monotonic()
        self.process.kill()
        return now

    def wait_for_end(self) -> int | None:
        """Wait until the child has ended; return its exit code, negative for a signal."""
        self.process.join()
        return self.process.exitcode

    def stop(self) -> None:
        """Kill the child if it still runs, and wait until it has ended."""
        self.process.kill()
        self.process.join()
        self._pipe.close()
