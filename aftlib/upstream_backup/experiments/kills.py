"""Real processes that are killed, beside the simulation of the same system."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pandas as pd

from aftlib.upstream_backup.failures import Failure, drawn_phases
from aftlib.upstream_backup.node_process import ACK_S, HEARTBEAT_S
from aftlib.upstream_backup.parameters import MS, Link, Parameters, Tcp
from aftlib.upstream_backup.processes import BATCH, PAUSE_S, TURN, NodeKill, deliver
from aftlib.upstream_backup.recursion import simulate
from aftlib.upstream_backup.schemes import PROPOSED, UPSTREAM

LOOPBACK = Link(bandwidth_mbps=10_000, delay_ms=0.05)
"""A guess: nothing that is compared hangs on it."""
PHASES = 25


def real_kills(kills: int, seed: int, heartbeat_s: float = HEARTBEAT_S) -> pd.DataFrame:
    """Kill the primary of a real system as often, and simulate the same.

    Each kill strikes a system of its own, at a random moment of its stream. The simulation is given
    the rate that was reached, the real intervals, and the time that a tuple takes to be decoded and
    encoded here; it takes the mean over failures at other moments.

    `kills` for upstream backup and as many for the proposal; `seed` is of the moments. Rows:
    scheme, kill, rate: tuples a second, lost: results that never came, twice: results that came
    more than once, requests: deaths noticed (more than one: a node was too slow to answer); of the
    primary's, unnoticed_ms: until the request, resent, recovery_ms: until the last of those has its
    result downstream; and the same three as simulated (…_simulated).
    """
    ids = list(range(100_000))
    began = time.perf_counter()
    json.loads(json.dumps(json.loads(json.dumps(ids))))  # on its way a tuple passes two sockets
    work_us = 1e6 * (time.perf_counter() - began) / len(ids)

    chance, beat, rows = np.random.default_rng([seed, 5]), round(heartbeat_s / PAUSE_S) * BATCH, []
    tuples = 5 * beat  # the last kill is noticed two beats later, and the stream still goes on
    for scheme in (UPSTREAM, PROPOSED):
        for kill in range(kills):
            after = int(chance.integers(beat, 2 * beat))
            found = deliver(scheme, tuples, [NodeKill(after)], heartbeat_s=heartbeat_s)
            noticed = next(r for r in found.requests if r.unnoticed_ms is not None)
            batch_ms = 1000 * BATCH / found.rate
            system = Parameters(
                rate=found.rate, ack_ms=1000 * ACK_S, heartbeat_ms=1000 * heartbeat_s,
                switching_ms=TURN * batch_ms, write_ms=batch_ms, processing_us=work_us,
                link=LOOPBACK, tcp=Tcp(handshake=False, initial_window=None),
            )  # fmt: skip
            moments = system.settling_ms + system.heartbeat_ms * (3 + np.arange(PHASES) / PHASES)
            same = [
                simulate(replace(system, phases=one), scheme, [Failure(at)]).recoveries[0]
                for at, one in zip(moments, drawn_phases(PHASES, seed), strict=True)
            ]
            unnoticed = [(one.downtime.request - one.downtime.crash) / MS for one in same]
            rows.append({
                "scheme": scheme.name, "kill": kill + 1, "rate": found.rate,
                "lost": tuples - len(set(found.released)), "twice": found.duplicates,
                "requests": len(found.requests),
                "unnoticed_ms": noticed.unnoticed_ms, "unnoticed_ms_simulated": np.mean(unnoticed),
                "resent": len(noticed.resent),
                "resent_simulated": np.mean([len(one.resent) for one in same]),
                "recovery_ms": noticed.recovery_ms,
                "recovery_ms_simulated": np.mean([one.recovery_ms for one in same]),
            })  # fmt: skip
    return pd.DataFrame(rows)
