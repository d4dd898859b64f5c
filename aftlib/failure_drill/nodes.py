"""D4's ways to stand by under the schedule: two as real processes, all four simulated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from aftlib.failure_drill.drill import Drill
from aftlib.upstream_backup.closed_form import traffic
from aftlib.upstream_backup.failures import Failure, drawn_phases
from aftlib.upstream_backup.parameters import NODES, Parameters
from aftlib.upstream_backup.processes import NodeKill, deliver
from aftlib.upstream_backup.recursion import simulate
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
    arrived_twice: int  # results of which downstream got a copy, and dropped it
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
        found.duplicates,
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
    phases, again, unnoticed, rework = drawn_phases(len(kills), seed), 0, [], []
    twice = lost = 0
    for strike, phase in zip(kills, phases, strict=True):
        at = STEADY_MS + 2000.0 * strike.step / drill.log.steps
        found = simulate(replace(parameters, phases=phase), scheme, [Failure(at)])
        one = found.recoveries[0]
        again += len(one.resent)
        twice += one.duplicates
        lost += int((found.copies == 0).sum())
        unnoticed.append((one.downtime.detected - one.downtime.crash) / 1e6)
        rework.append(one.caught_up_ms)
    share = traffic(parameters, scheme).relative
    count = round(len(kills) * (STEADY_MS + 2000.0) * RATE / 1000)
    parts = np.array(unnoticed), np.array(rework)
    return Stood(lost, 0, twice, count, again, *parts, len(kills), float(share))
