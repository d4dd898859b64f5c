"""Operators that crash at given points, without processes; the real kills are in tests/crash."""

from aftlib.documents.checkpoint_planning.operator import bare_read, open_operator


class Crashed(Exception):
    """Stands for a SIGKILL."""


def crashing(points):
    """Return a function that raises `Crashed` once at each (point, batch)."""
    left = list(points)

    def at(point, batch):
        if (point, batch) in left:
            left.remove((point, batch))
            raise Crashed

    return at


def stream(query, log, directory, points=()):
    """Process the whole log; after each crash a new operator continues in the same directory."""
    at = crashing(points)
    read = bare_read(log)
    batch = 0
    directory.mkdir(exist_ok=True)
    operator = open_operator(query, log, directory, at)
    while operator.checkpoint.position < log.steps:
        try:
            operator.process(batch, read)
            batch += 1
        except Crashed:
            operator = open_operator(query, log, directory, at)
    return operator.store
