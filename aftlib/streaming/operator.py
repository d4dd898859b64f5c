"""The stateful processor by which Spark runs the guards; this module loads fast.

In every micro-batch Spark starts a process that only asks the processor for its variables. So the
guard, and with it pandas and scipy, is imported where rows are processed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd

    from aftlib.streaming.groups import StoredGuards


class Variables(NamedTuple):
    """The variables of Spark's state of a bucket; `StoredGuards` says what each has."""

    origin: Any
    bucket: Any
    groups: Any
    log: Any
    chunks: Any


class GuardProcessor(StatefulProcessor):
    """The guards of a bucket of groups, whose state `groups.StoredGuards` has in `Variables`.

    A bucket has many groups, because a call per group takes longer than the guards do. `content` is
    that of the query: `Promise.content`, with the name of the groups' column as `group` if there is
    one. `key` is the type of a group's key in Spark's SQL. `learned` is the promise's.
    """

    def __init__(self, content: str, key: str, learned: str | None = None) -> None:
        self.content = content
        self.key = key
        self.learned = learned

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Let the process that only asks for the variables print no more: it prints each step."""
        vars(self).update(state)
        if "transform_with_state_driver_worker" in sys.argv[0]:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variables."""
        bucket = "format int, promise binary, token binary, parts int, snapshots int"
        self.variables = Variables(
            origin=handle.getValueState("origin", "content string, learned string"),
            bucket=handle.getValueState("bucket", bucket),
            groups=handle.getValueState("groups", f"keys array<{self.key}>"),
            log=handle.getMapState("log", "part int", "token binary, windows binary"),
            chunks=handle.getMapState("chunks", "group int, part int", "content binary"),
        )

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Process a bucket's windows of a micro-batch."""
        return self.guards().process(list(rows))

    def guards(self) -> StoredGuards:
        """Return the guards that Spark's state variables hold for the current bucket of groups."""
        from aftlib.streaming.groups import StoredGuards

        return StoredGuards(self.content, self.learned, self.variables)
