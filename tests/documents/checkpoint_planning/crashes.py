"""A small query, and operators that crash at given points without processes.

The real kills are in tests/crash.
"""

from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.documents.checkpoint_planning.operator import ReplayQuery, bare_read, open_operator
from aftlib.documents.checkpoint_planning.plan import RecoveryTime

MODEL = block_model(8, 2, 4.0, 3.0, mean=5.0)
WINDOW = 60
QUERY = ReplayQuery(MODEL, WINDOW, Requirement(0.3, 0.05), RecoveryTime(1.0, 0.01), 1.5)


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
    while operator.last_checkpoint().position < log.steps:
        try:
            operator.process(batch, read)
            batch += 1
        except Crashed:
            operator = open_operator(query, log, directory, at)
    return operator.store
