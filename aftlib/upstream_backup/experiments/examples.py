"""D4 figs 3 and 4: which tuples are sent again, in a stream slow enough to follow by eye."""

from __future__ import annotations

import pandas as pd

from aftlib.upstream_backup.events import trace
from aftlib.upstream_backup.failures import Failure, outages
from aftlib.upstream_backup.parameters import MS, Parameters
from aftlib.upstream_backup.run import Trace
from aftlib.upstream_backup.schemes import PROPOSED, UPSTREAM, scheme_named

EXAMPLE = Parameters(
    rate=1000 / 15, ack_ms=70, heartbeat_ms=20, switching_ms=45, checkpoint_ms=70, write_ms=15
)
"""Our choice, for the figures give no times: a tuple every 15 ms, numbered from 0, three a turn."""

FAILURE_MS, UNTIL_MS = 182.0, 330.0


def example(scheme: str, failure_ms: float = FAILURE_MS) -> Trace:
    """The primary's failure with every message; figs 3 and 4 with the default failure time."""
    chosen = scheme_named(scheme)
    known = outages(EXAMPLE, chosen, [Failure(failure_ms)])
    return trace(EXAMPLE, chosen, known, round(UNTIL_MS * MS))


def example_table() -> pd.DataFrame:
    """What figs 3 and 4 show: scheme, queue at the request, tuples sent again, recovery time."""
    rows = []
    for scheme in (UPSTREAM, PROPOSED):
        found = example(scheme.name).run.recoveries[0]
        rows.append(
            {
                "scheme": scheme.name,
                "sent again": ", ".join(map(str, found.resent)),
                "tuples": len(found.resent),
                "recovery_ms": found.recovery_ms,
            }
        )
    return pd.DataFrame(rows)
