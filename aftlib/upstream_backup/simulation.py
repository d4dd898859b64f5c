"""One interface to both engines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from aftlib.upstream_backup import events, vectorised
from aftlib.upstream_backup.failures import Failure, Outage, outages
from aftlib.upstream_backup.parameters import MS, Parameters
from aftlib.upstream_backup.run import Run
from aftlib.upstream_backup.schemes import Scheme, scheme_named

Engine = Callable[[Parameters, Scheme, Sequence[Outage], int], Run]
ENGINES: dict[str, Engine] = {"vectorised": vectorised.run, "events": events.run}
AFTER_MS = 200.0
"""How long the stream goes on after the last request, unless told."""


def simulate(
    parameters: Parameters,
    scheme: Scheme | str,
    failures: Sequence[Failure],
    until_ms: float | None = None,
    engine: str = "vectorised",
) -> Run:
    """Send a stream through a standby system whose nodes fail.

    Parameters
    ----------
    parameters : Parameters
    scheme : Scheme or its name
    failures : sequence of Failure
    until_ms : float, optional
        When the stream ends; by default 200 ms after the last request.
    engine : {"vectorised", "events"}
        Lindley's recursion, or the event simulation that is its readable reference: the results
        are equal.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        As `outages`; when the engine is unknown, or the stream would end never, or before the last
        request.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine {engine!r} is not one of {', '.join(ENGINES)}")
    chosen = scheme_named(scheme) if isinstance(scheme, str) else scheme
    known = outages(parameters, chosen, failures)
    last = max([outage.request for outage in known], default=0)
    end = (last + round(AFTER_MS * MS)) / MS if until_ms is None else until_ms
    until = round(end * MS) if math.isfinite(end) else 0
    if until <= last:
        raise ValueError(
            f"until_ms must be finite and lie after the last request at {last / MS:g} ms, got "
            f"{until_ms!r}; let the stream go on"
        )
    return ENGINES[engine](parameters, chosen, known, until)
