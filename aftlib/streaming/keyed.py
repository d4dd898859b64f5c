"""The guards of a bucket of groups, and their state in two parts.

A guard is a function of the windows that it received. So the stored state is a snapshot of each
guard, which is written rarely, and the log of the bucket's windows since then. A restart loads the
snapshots and processes the log again, which gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from aftlib.guard.guard import VERSION
from aftlib.guard.guards import Guards
from aftlib.streaming.promise import Promise
from aftlib.streaming.rows import Arranged, Rounds, used_results

LEAST_LOG = 64
"""Least windows between two snapshots of a bucket; a third of the number of sensors if more."""
SPREAD = 16
"""From then on, snapshots are written after a micro-batch with the chance 1 / 16, and surely after
twice as many windows."""
TOKEN = 16
"""Bytes of a token."""
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

    def hold(self, states: np.ndarray, predictors: Sequence[Any] = ()) -> None:
        """Go on with the states of all groups, which may lie in a file, and their predictors."""
        self.states = states
        self.guards = Guards(self.promise.rules, states["guard"], predictors)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, with those that predictors count as their `nbytes`."""
        own = sum(getattr(predictor, "nbytes", 0) for predictor in self.guards.predictors)
        return int(self.states.nbytes) + own

    def process(self, windows: Arranged, places: np.ndarray) -> tuple[np.ndarray, Rounds, bytes]:
        """Process windows of groups; `places` has the place of each window's group.

        A place after the last one is a new group's. Of a gap without any window, only the first H
        windows are rounds. Returns the place of each round's group, the rounds in the order of
        places and time, and the windows for the log.
        """
        order = np.argsort(places, kind="stable")
        entries = np.zeros(order.size, self._entry)
        entries["place"] = places[order]
        entries["start"] = windows.start[order]
        entries["window"] = used_results(self.promise, windows.value, windows.samples)[order]
        place_of_round, rounds, given = self._advance(entries)
        rounds.samples[given] = windows.samples[order]
        rounds.variance[given] = windows.variance[order]
        log = entries.tobytes()
        self.token = hash_of(self.token + log)
        return place_of_round, rounds, log

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

    def restore(
        self, snapshots: Sequence[bytes], written_at: bytes, log: Iterable[bytes], token: bytes
    ) -> None:
        """Continue from all groups' snapshots, written at the token `written_at`, and the log.

        Without snapshots the log begins with a new bucket. ValueError when these do not belong
        together, or do not lead to `token`.
        """
        size = self.states.dtype.itemsize
        short = [len(snapshot) for snapshot in snapshots if len(snapshot) < size]
        if short:
            raise ValueError(
                f"a group's snapshot must have at least {size} bytes, got {short[0]}: {DAMAGED}"
            )
        if snapshots:
            states = [np.frombuffer(each[:size], self.states.dtype) for each in snapshots]
            predictors = [self.promise.predictor_of(each[size:]) for each in snapshots]
            self.hold(np.concatenate(states), [each for each in predictors if each is not None])
            self.token = written_at
        self.replay(log, token)

    def replay(self, log: Iterable[bytes], token: bytes) -> None:
        """Process the log since this state; ValueError if it does not lead to `token`."""
        parts = list(log)
        after = self.token
        for part in parts:
            after = hash_of(after + part)
        if after != token:
            raise ValueError(
                f"the guards' state must be {token.hex()}, got {after.hex()}: {DAMAGED}"
            )
        for part in parts:
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
                states["guard"][place] = promise.follow(guard, self.promise).rows[0]
        after.hold(states)
        after.token = hash_of(after.token + self.token)
        return after

    def _advance(self, entries: np.ndarray) -> tuple[np.ndarray, Rounds, np.ndarray]:
        """Give windows to the guards; the entries are in the order of places and time.

        Returns the place of each round's group, the rounds with those of gaps, and which of these
        are entries.
        """
        self._join(entries)
        place, start, skipped, given = self._with_gaps(entries)
        shape = place.size, len(self.promise.sensors)
        window = np.full(shape, np.nan)
        window[given] = entries["window"]
        rounds = Rounds(
            start=start,
            window=window,
            samples=np.full(shape, np.nan),
            variance=np.full(shape, np.nan),
            estimate=np.full(shape, np.nan),
            half_width=np.full(shape, np.nan),
            certified=np.zeros(shape, bool),
            recoverable=np.zeros(shape, np.int64),
        )
        # a turn has one round of each group that still has one, the earliest
        turn = np.arange(place.size) - np.searchsorted(place, place)
        for number in range(turn.max(initial=-1) + 1):
            now = np.flatnonzero(turn == number)
            members = place[now]
            self.guards.skip(skipped[now], members)
            recovered = self.guards.update(window[now], members)
            rounds.estimate[now] = recovered.estimate
            rounds.half_width[now] = recovered.half_width
            rounds.certified[now] = recovered.certified
            rounds.recoverable[now] = self.guards.recoverable[members].cumprod(1).sum(1)
        # of a group's entries, the last one counts
        self.states["next"][entries["place"]] = entries["start"] + self.promise.step
        self.states["logged"] += np.bincount(entries["place"], minlength=self.states.size)
        return place, rounds, given

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

    def _with_gaps(
        self, entries: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the rounds of windows, and of the first H windows of each gap before one.

        Of each round: the place of its group, its start, and how many windows of a gap are skipped
        before it. Then the indices of the given windows among the rounds.

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
        until_given = given[of_window] - np.arange(of_window.size)  # rounds
        in_gap = due[of_window] + (shown[of_window] - until_given) * self.promise.step
        starts = np.where(until_given > 0, in_gap, start[of_window])
        skipped = np.where(until_given > 0, 0, (gap - shown)[of_window])
        return place[of_window], starts, skipped, given


def hash_of(data: bytes) -> bytes:
    """Return a token."""
    return blake2b(data, digest_size=TOKEN).digest()
