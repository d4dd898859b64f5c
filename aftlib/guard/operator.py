"""The stateful processor by which Spark runs the guards; this module loads fast.

In every micro-batch Spark starts a process that only asks the processor for its variables. So the
guard, and with it numba and pandas, is imported where rows are processed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd

    from aftlib.guard.keyed import StoredGuard


class GuardProcessor(StatefulProcessor):
    """The guard of each group, with its state in three variables (`keyed.StoredGuard`).

    `content` is that of a promise.
    """

    def __init__(self, content: str) -> None:
        self.content = content

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variables."""
        self.head = handle.getValueState("head", "identity string, token binary, chunks int")
        self.log = handle.getListState("log", "start bigint, window binary")
        self.chunks = handle.getMapState("snapshot", "place int", "content binary")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Process a group's windows of a micro-batch."""
        return self.stored().process(key[0], list(rows))

    def stored(self) -> StoredGuard:
        """Return the guard in the variables of the current group."""
        from aftlib.guard.keyed import StoredGuard

        return StoredGuard(self.content, self.head, self.log, self.chunks)

    def close(self) -> None:
        """Do nothing, because nothing is open."""
