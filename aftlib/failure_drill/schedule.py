"""The schedule of a drill: which process is struck, when, and how; the same for every scheme."""

from __future__ import annotations

from dataclasses import dataclass
from signal import SIGKILL, SIGSTOP, Signals

import numpy as np

FORMS = ("single", "repeated", "simultaneous", "stall")
"""A worker dies; it dies again in the next micro-batch; two die at once; one is stopped for a while
and lives on."""


@dataclass(frozen=True)
class Strike:
    """A signal to the process that has a worker's sensors, when it has come to a step."""

    step: int
    worker: int
    form: str  # one of `FORMS`
    number: int  # of the event; the strikes of one have the same

    @property
    def kills(self) -> bool:
        """Whether it is SIGKILL; else SIGSTOP, and SIGCONT later."""
        return self.form != "stall"

    @property
    def signal(self) -> Signals:
        """What is sent."""
        return SIGKILL if self.kills else SIGSTOP


def drawn(
    strikes: int, workers: int, begin: int, steps: int, every: int, seed: int
) -> tuple[Strike, ...]:
    """A seeded schedule over the micro-batches of `every` steps in [begin, steps).

    The forms take turns, workers and moments are random, and an undisturbed micro-batch follows
    each event. At least so many strikes are drawn: the last event is whole. ValueError when the
    stream is too short for them, or has one worker only.
    """
    if workers < 2:
        raise ValueError(
            f"workers must be at least 2 for one to die and one to live, got {workers}"
        )
    rng, found = np.random.default_rng(seed), list[Strike]()
    batch, number = -(-begin // every), 0
    while len(found) < strikes:
        form = FORMS[number % len(FORMS)]
        needs = 2 if form == "repeated" else 1
        if (batch + needs + 1) * every > steps:
            raise ValueError(
                f"strikes must fit between step {begin} and {steps}, got {strikes}: give more "
                "steps, fewer strikes or smaller micro-batches"
            )
        struck = rng.permutation(workers)[: 2 if form == "simultaneous" else 1]
        for later in range(needs):
            # not at the very edges: something is lost, and something comes after it
            step = (batch + later) * every + int(rng.integers(every // 4, 3 * every // 4))
            found += [Strike(step, int(worker), form, number) for worker in struck]
        batch, number = batch + needs + 1, number + 1
    return tuple(found)
