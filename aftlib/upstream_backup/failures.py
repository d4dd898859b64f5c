"""Which node fails when, and when the failure is detected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aftlib.core.checks import require_choice, require_number
from aftlib.upstream_backup.parameters import MS, NODES, OTHER, Parameters, Phases
from aftlib.upstream_backup.schemes import Scheme

_STREAM = 4


@dataclass(frozen=True)
class Failure:
    """The silent crash of a node, `at_ms` milliseconds after the stream began.

    Raises
    ------
    ValueError
        When the time is not positive and finite or the node is not one of the two.
    """

    at_ms: float
    node: str = "primary"

    def __post_init__(self) -> None:
        require_number("at_ms", self.at_ms, above=0)
        require_choice("node", self.node, NODES)

    @property
    def other(self) -> str:
        """The node that survives."""
        return OTHER[self.node]


@dataclass(frozen=True)
class Downtime:
    """A failure with the moments that follow from it, in nanoseconds."""

    failure: Failure
    crash: int
    detected: int  # the survivor's next heartbeat is due and the last one is still unanswered
    request: int  # the upstream node has the survivor's request
    back: int  # the node takes part again, empty


def downtimes(
    parameters: Parameters, scheme: Scheme, failures: Sequence[Failure]
) -> tuple[Downtime, ...]:
    """Compute when each failure is detected and repaired.

    ValueError if a failure comes before steady state, a node is killed while it is down, or both
    nodes would be down at once. ValueError for a second failure in a scheme in which a node that
    comes back would need the other's state.
    """
    outages: list[Downtime] = []
    every, phase = parameters.cycle("heartbeat")
    for failure in sorted(failures, key=lambda f: f.at_ms):
        if failure.at_ms < parameters.settling_ms:
            raise ValueError(
                f"failure at {failure.at_ms:g} ms comes before steady state; "
                f"let it happen at {parameters.settling_ms:g} ms or later"
            )
        crash = round(failure.at_ms * MS)
        if outages and crash < outages[-1].back + round(parameters.settling_ms * MS):
            before = outages[-1]
            same = failure.node == before.failure.node
            raise ValueError(
                f"failure of the {failure.node} at {failure.at_ms:g} ms "
                f"{'comes too soon after its last one' if same else 'leaves no node'}: the "
                f"{before.failure.node} is back at {before.back / MS:g} ms; let the next failure "
                f"be {parameters.settling_ms:g} ms later than that, or shorten repair_ms"
            )
        # the first heartbeat that the failed node does not answer
        unanswered = -(-(crash - parameters.hop_ns - phase) // every)
        detected = (max(unanswered, 0) + 1) * every + phase
        request = detected + parameters.hop_ns
        back = request + round(parameters.repair_ms * MS)
        outages.append(Downtime(failure, crash, detected, request, back))
    if len(outages) > 1 and (scheme.both or scheme.trimmed_by == "checkpoint"):
        raise ValueError(
            f"failures must hold one for {scheme.name}, got {len(outages)}: a node that comes back "
            "would first need the other's state; use upstream backup or the proposal"
        )
    return tuple(outages)


def drawn_phases(count: int, seed: int) -> list[Phases]:
    """Draw phases by a generator of their own, the same for every scheme, rate and interval.

    If all intervals were in step, a failure's moment would determine the number of tuples sent
    again: 200 failures of the default system would give only four different numbers.
    """
    return [Phases(*row) for row in np.random.default_rng([seed, _STREAM + 2]).random((count, 4))]


def failure_times(
    count: int, seed: int, steady_ms: float = 2000.0, spread_ms: float = 2000.0
) -> np.ndarray:
    """Draw failure times in ms. All schemes and rates have the same, so that trials are paired.

    They are whole µs, uniform in [steady_ms, steady_ms + spread_ms); the document has 30 s for
    both. They have a random generator of their own. A longer list begins with the same times as a
    shorter one.
    """
    drawn = np.random.default_rng([seed, _STREAM]).random(count)
    return np.round(steady_ms + spread_ms * drawn, 3)
