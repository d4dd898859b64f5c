"""The guards of a bucket of groups, and their state in two parts.

A guard is a function of the windows that it received. So the stored state is a snapshot of each
guard, which is written rarely, and the log of the bucket's windows since then. A restart loads the
snapshots and processes the log again, which gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from aftlib.guard.estimator import Recovered
from aftlib.guard.guard import VERSION
from aftlib.guard.guards import Guards
from aftlib.guard.learned import change_rules
from aftlib.streaming.promise import Promise
from aftlib.streaming.rows import Arranged, Rounds

LEAST_LOG = 64
"""Least windows between two snapshots of a bucket; a third of the number of sensors if more."""
SPREAD = 16
"""From then on, snapshots are written after a micro-batch with the chance 1 / 16, and surely after
twice as many windows."""
DAMAGED = "the checkpoint is damaged; restore it from a copy, or start again in another one"


class KeyedGuards:
    """The guards of a bucket's groups, which follow the starts of their windows.

    A group's place is its index in `states`, which has the start of the group's next window, its
    number of windows since its snapshot (`logged`), and its guard. `token` identifies the state of
    all, because it is a hash of the promise and of all windows so far. So `states` and the token
    are the whole state, besides the objects of a user's predictor.
    """

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.token = hash_of(f"{VERSION} {promise.content}".encode())
        window = ("window", float, (len(promise.sensors),))
        self._entry = np.dtype([("place", np.int64), ("start", np.int64), window])
        guard = ("guard", promise.guards(0).rows.dtype)
        self.hold(np.zeros(0, [("next", np.int64), ("logged", np.int64), guard]))

    def hold(self, states: np.ndarray, predictors: Sequence[Any] = (), memory: Any = None) -> None:
        """Go on with the states of all groups, and their predictors.

        The states may lie in shared memory (`cache.Memory`), which is free once nobody refers to
        it.
        """
        self.memory = memory
        self.states = states
        self.guards = Guards(self.promise.rules, states["guard"], predictors)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, with those that predictors count as their `nbytes`."""
        own = sum(getattr(predictor, "nbytes", 0) for predictor in self.guards.predictors)
        return int(self.states.nbytes) + own

    def process(self, windows: Arranged) -> tuple[Rounds, bytes]:
        """Process windows of groups; their `key` is the place of a window's group.

        A place after the last one is a new group's. Of a gap without any window, only the first H
        windows are rounds. Returns the rounds in the order of places and time, and the windows for
        the log.
        """
        order = np.argsort(windows.key, kind="stable")
        entries = np.zeros(order.size, self._entry)
        entries["place"] = windows.key[order]
        entries["start"] = windows.start[order]
        entries["window"] = windows.value[order]
        rounds, given = self._advance(entries)
        rounds.windows.samples[given] = windows.samples[order]
        rounds.windows.variance[given] = windows.variance[order]
        log = entries.tobytes()
        self.token = hash_of(self.token + log)
        return rounds, log

    @property
    def audit(self) -> np.ndarray:
        """Guarantees with known outcome, the wrong ones, and the bound on these, shape (3, G, n).

        These are shadow predictions of windows that came, as if they had been lost. All three are
        summed over the horizons. An account without an outcome has no slack yet.
        """
        number, wrong, slack = self.guards.outcomes
        allowed = self.promise.delta * number + slack * (number > 0)
        return np.stack([number, wrong, allowed]).sum(2)

    @property
    def is_due(self) -> bool:
        """Whether to write snapshots; buckets that began together do not write them together."""
        logged = self.states["logged"].max(initial=0)
        least = max(LEAST_LOG, len(self.promise.sensors) // 3)
        by_chance = self.token[0] % SPREAD == 0
        return bool(logged >= least and (by_chance or logged >= 2 * least))

    def snapshot(self, place: int) -> bytes:
        """Return the whole state of the group at a place, and begin its log anew."""
        self.states["logged"][place] = 0
        predictors: Sequence[Any] = self.guards.predictors[place : place + 1]
        state: bytes = self.states[place].tobytes()
        return state + b"".join(predictor.to_bytes() for predictor in predictors)

    def restore(self, snapshots: Sequence[bytes], written_at: bytes) -> None:
        """Continue from all groups' snapshots, which were written at the token `written_at`.

        Without snapshots this is a new bucket, with which its log begins. ValueError when one is
        too short.
        """
        size = self.states.dtype.itemsize
        if short := [len(snapshot) for snapshot in snapshots if len(snapshot) < size]:
            raise ValueError(
                f"a group's snapshot must have at least {size} bytes, got {short[0]}: {DAMAGED}"
            )
        states = bytearray().join(snapshot[:size] for snapshot in snapshots)  # writable
        predictors = self.promise.predictors(len(snapshots))
        for place, predictor in enumerate(predictors):
            predictors[place] = predictor.from_bytes(snapshots[place][size:])
        self.hold(np.frombuffer(states, self.states.dtype), predictors)
        self.token = written_at

    def replay(self, log: Sequence[bytes], token: bytes) -> None:
        """Process the log since this state; ValueError if it does not lead to `token`."""
        after = self.token
        for part in log:
            after = hash_of(after + part)
        if after != token:
            raise ValueError(
                f"the guards' state must be {token.hex()}, got {after.hex()}: {DAMAGED}"
            )
        for part in log:
            self._advance(np.frombuffer(part, self._entry))
        self.token = token

    def under(self, promise: Promise) -> Self:
        """Return guards of a changed promise that go on with what these learned."""
        after = type(self)(promise)
        states = np.zeros(self.states.size, after.states.dtype)
        states["next"] = self.states["next"]
        states["logged"] = 1  # so that each group gets a snapshot under the new promise
        for place in range(states.size):
            with self.guards.select(np.array([place])) as guard:
                changed = change_rules(guard, self.promise.sensors, promise.rules, promise.sensors)
                states["guard"][place] = changed.rows[0]
        after.hold(states)
        after.token = hash_of(after.token + self.token)
        return after

    def _advance(self, entries: np.ndarray) -> tuple[Rounds, np.ndarray]:
        """Give windows to the guards; the entries are in the order of places and time.

        Returns the rounds with those of gaps, and which of these are entries. An entry has neither
        the number of samples nor their variance.
        """
        self._join(entries)
        windows, skipped, given = self._with_gaps(entries)
        shape = windows.value.shape
        rounds = Rounds(windows, Recovered.empty(shape), np.zeros(shape, np.int64))
        # a turn has one round of each group that still has one, the earliest
        turn = np.arange(windows.key.size) - np.searchsorted(windows.key, windows.key)
        for number in range(turn.max(initial=-1) + 1):
            now = np.flatnonzero(turn == number)
            members = windows.key[now]
            self.guards.skip(skipped[now], members)
            recovered = self.guards.update(windows.value[now], members)
            rounds.recovered.estimate[now] = recovered.estimate
            rounds.recovered.half_width[now] = recovered.half_width
            rounds.recovered.certified[now] = recovered.certified
            rounds.recoverable[now] = self.guards.recoverable[members].cumprod(1).sum(1)
        # of a group's entries, the last one counts
        self.states["next"][entries["place"]] = entries["start"] + self.promise.step
        self.states["logged"] += np.bincount(entries["place"], minlength=self.states.size)
        return rounds, given

    def _join(self, entries: np.ndarray) -> None:
        """Begin the guards of new groups."""
        places, first = np.unique(entries["place"], return_index=True)
        starts = entries["start"][first[places >= self.states.size]]
        if starts.size:
            guards = self.promise.guards(starts.size, starts)
            states = np.zeros(starts.size, self.states.dtype)
            states["next"] = starts
            states["guard"] = guards.rows
            predictors = [*self.guards.predictors, *guards.predictors]
            self.hold(np.concatenate([self.states, states]), predictors)

    def _with_gaps(self, entries: np.ndarray) -> tuple[Arranged, np.ndarray, np.ndarray]:
        """Return the rounds of windows, and of the first H windows of each gap before one.

        Then how many windows of a gap are skipped before each round, and the indices of the given
        windows among the rounds.

        Example of a group with H = 2: window 3 is due and window 7 is given, so windows 3 to 6 are
        a gap. The rounds are 3, 4 and 7; before 7 the windows 5 and 6 are skipped.

        ValueError when a window comes before the due one, because it would be lost silently.
        """
        place = entries["place"]
        start = entries["start"]
        due = np.roll(start, 1) + self.promise.step
        first = np.flatnonzero(np.diff(place, prepend=-1))
        due[first] = self.states["next"][place[first]]
        gap = (start - due) // self.promise.step
        if gap.min(initial=0) < 0:
            early = gap.argmin()
            raise ValueError(
                "a group's windows must come in the order of time, got one that starts at "
                f"{start[early]} µs after {due[early]} µs was due: {DAMAGED}"
            )
        shown = np.minimum(gap, self.promise.horizons)
        given = np.cumsum(shown + 1) - 1
        of_window = np.repeat(np.arange(place.size), shown + 1)
        since_due = np.arange(of_window.size) - (given - shown)[of_window]  # rounds
        starts = due[of_window] + since_due * self.promise.step
        starts[given] = start
        skipped = np.zeros(of_window.size, np.int64)
        skipped[given] = gap - shown
        wide = np.full((3, of_window.size, len(self.promise.sensors)), np.nan)
        wide[0, given] = entries["window"]
        return Arranged(place[of_window], starts, *wide), skipped, given


def hash_of(data: bytes) -> bytes:
    """Return a token, of 16 bytes."""
    return blake2b(data, digest_size=16).digest()
