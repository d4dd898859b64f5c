"""The stateful processor by which Spark runs the guards; this module loads fast.

In every micro-batch Spark starts a process that only asks the processor for its variable. So the
guard, and with it pandas and scipy, is imported where rows are processed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd

    from aftlib.streaming.groups import StoredGuards


class GuardProcessor(StatefulProcessor):
    """Runs the guards of a task's buckets, one call per bucket.

    The state of a bucket is the records of `groups.StoredGuards`.

    A bucket has many groups, because a call per group takes longer than the guards do. `content` is
    that of the query: `Promise.content`, with the name of the groups' column as `group` if there is
    one. `key` is the type of a group's key in Spark's SQL. `learned` is the promise's.
    """

    def __init__(self, content: str, key: str, learned: str | None = None) -> None:
        self.content = content
        self.key = key
        self.learned = learned

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Let the process that only asks for the variable print no more: it prints each step."""
        vars(self).update(state)
        if "transform_with_state_driver_worker" in sys.argv[0]:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variable.

        There is only one, because Spark prepares each of them in each task of each micro-batch,
        which takes longer than the guards of a bucket do.
        """
        value = f"token binary, content binary, keys array<{self.key}>"
        self.records = handle.getMapState("records", "name string", value)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Process a bucket's windows of a micro-batch."""
        return self.guards().process(list(rows))

    def guards(self) -> StoredGuards:
        """Return the guards that Spark's state holds for the current bucket of groups."""
        from aftlib.streaming.groups import StoredGuards

        return StoredGuards(self.content, self.learned, self.records)
