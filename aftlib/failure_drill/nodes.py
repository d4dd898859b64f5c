"""D4's ways to stand by under the schedule: two as real processes, all four simulated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from aftlib.failure_drill.drill import Drill
from aftlib.upstream_backup.closed_form import traffic
from aftlib.upstream_backup.failures import Failure, drawn_phases
from aftlib.upstream_backup.parameters import MS, NODES, Parameters
from aftlib.upstream_backup.processes import NodeKill, deliver
from aftlib.upstream_backup.recursion import Recovery, simulate
from aftlib.upstream_backup.schemes import ACTIVE, PASSIVE, PROPOSED, UPSTREAM, Scheme

STANDBY = (PASSIVE, ACTIVE, UPSTREAM, PROPOSED)
REAL = (UPSTREAM, PROPOSED)
RATE, STEADY_MS = 1000.0, 2000.0
"""Tuples a second of the simulated stream, and when it is in its steady state."""


@dataclass(frozen=True)
class Stood:
    """What a pair of nodes did: counts of windows and tuples, and the parts of each recovery."""

    lost: int  # windows with a tuple that was never handed on
    doubled: int  # windows with a tuple handed on twice
    tuples: int
    again: int
    unnoticed_ms: np.ndarray
    rework_ms: np.ndarray
    fallen: int
    sent_share: float  # traffic beyond that of the plain stream, in it; NaN where not known


def stand_by(drill: Drill, scheme: Scheme) -> Stood:
    """Send a tuple a step through real processes, and strike them: workers are the two in turn."""
    kills = [
        NodeKill(s.step, NODES[s.worker % 2], stalled=not s.kills)
        for s in {s.step: s for s in drill.strikes}.values()
    ]
    found = deliver(scheme, drill.log.steps, kills)
    times, width = Counter(found.released), drill.windows.width
    handed = np.array([times[i] for i in range(drill.log.steps)])
    windows = handed[: len(handed) // width * width].reshape(-1, width)
    noticed = [r for r in found.requests if r.unnoticed_ms is not None]
    return Stood(
        int((windows == 0).any(axis=1).sum()),
        int((windows > 1).any(axis=1).sum()),
        drill.log.steps,
        sum(len(r.resent) for r in found.requests),
        np.array([r.unnoticed_ms for r in noticed], float),
        np.array([r.recovery_ms for r in noticed]),
        found.kills,
        float("nan"),
    )


def simulated(drill: Drill, scheme: Scheme, seed: int) -> Stood:
    """Let the primary fail once for each kill of the schedule, each in a stream of its own."""
    kills, parameters = drill.kills, Parameters(rate=RATE)
    recoveries, lost = list[Recovery](), 0
    for strike, phase in zip(kills, drawn_phases(len(kills), seed), strict=True):
        at = STEADY_MS + 2000.0 * strike.step / drill.log.steps
        found = simulate(replace(parameters, phases=phase), scheme, [Failure(at)])
        recoveries += found.recoveries
        lost += int((found.copies == 0).sum())
    downtimes = [one.downtime for one in recoveries]
    return Stood(
        lost,
        0,
        round(len(kills) * (STEADY_MS + 2000.0) * RATE / 1000),
        sum(len(one.resent) for one in recoveries),
        np.array([(down.detected - down.crash) / MS for down in downtimes]),
        np.array([one.caught_up_ms for one in recoveries]),
        len(kills),
        float(traffic(parameters, scheme).relative),
    )
