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
"""Least windows between two snapshots of up to 192 sensors; else a third of their number."""
SPREAD = 16
"""From then on, snapshots are written after each micro-batch with the chance 1 / 16."""
TOKEN = 16
"""Bytes of a token."""
DAMAGED = "the checkpoint is damaged; restore it from a copy, or start again in another one"


class KeyedGuards:
    """The guards of a bucket's groups, which follow the starts of their windows.

    A group's place is its index in `rows`, which has the start of the group's next window, its
    number of windows since its snapshot (`logged`), and its guard. `token` identifies the state of
    all, because it is a hash of the promise and of all windows so far. So the rows and the token
    are the whole state, besides the objects of a user's predictor.
    """

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.token = hash_of(f"{VERSION} {promise.content}".encode())
        self._step = promise.step
        window = ("window", float, (len(promise.sensors),))
        self._entry = np.dtype([("group", np.int64), ("start", np.int64), window])
        guards = promise.guards(0)
        row = [("next", np.int64), ("logged", np.int64), ("guard", guards.rows.dtype)]
        self.hold(np.zeros(0, row))

    def hold(self, rows: np.ndarray, predictors: Sequence[Any] = ()) -> None:
        """Go on with the rows of all groups, which may lie in a file, and their predictors."""
        self.rows = rows
        self.guards = Guards(self.promise.rules, rows["guard"], predictors)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, with those that predictors count as their `nbytes`."""
        own = sum(getattr(predictor, "nbytes", 0) for predictor in self.guards.predictors)
        return int(self.rows.nbytes) + own

    def process(self, windows: Arranged, group: np.ndarray) -> tuple[np.ndarray, Rounds, bytes]:
        """Process windows of groups at the places `group`, one for each window.

        A place after the last one is a new group's. Of a gap without any window, only the first H
        windows are rounds. Returns the rounds' groups, the rounds in the order of groups and time,
        and the windows for the log.
        """
        order = np.argsort(group, kind="stable")
        entries = np.zeros(order.size, self._entry)
        entries["group"] = group[order]
        entries["start"] = windows.start[order]
        entries["window"] = used_results(self.promise, windows.value, windows.samples)[order]
        places, rounds, given = self._advance(entries)
        rounds.samples[given] = windows.samples[order]
        rounds.variance[given] = windows.variance[order]
        log = entries.tobytes()
        self.token = hash_of(self.token + log)
        return places, rounds, log

    @property
    def audit(self) -> np.ndarray:
        """Guarantees with known outcome, the wrong ones, and the bound on these, shape (3, G, n).

        All three are summed over the horizons. An account without an outcome has no slack yet.
        """
        number, wrong, slack = self.guards.outcomes
        allowed = self.promise.delta * number + slack * (number > 0)
        return np.stack([number, wrong, allowed]).sum(2)

    @property
    def is_due(self) -> bool:
        """Whether to write snapshots; buckets that began together do not write them together."""
        logged = self.rows["logged"].max(initial=0)
        least = max(LEAST_LOG, len(self.promise.sensors) // 3)
        by_chance = self.token[0] % SPREAD == 0
        return bool(logged >= least and (by_chance or logged >= 2 * least))

    def snapshot(self, group: int) -> bytes:
        """Return the whole state of a group, and begin its log anew."""
        self.rows["logged"][group] = 0
        predictors: Sequence[Any] = self.guards.predictors[group : group + 1]
        content: bytes = self.rows[group].tobytes()
        return content + b"".join(predictor.to_bytes() for predictor in predictors)

    def restore(
        self, snapshots: Sequence[bytes], before: bytes, log: Iterable[bytes], token: bytes
    ) -> None:
        """Continue from all groups' snapshots, written at the token `before`, and the log since.

        ValueError when these do not belong together, or do not lead to `token`.
        """
        size = self.rows.dtype.itemsize
        short = [len(content) for content in snapshots if len(content) < size]
        if short:
            raise ValueError(
                f"a group's snapshot must have at least {size} bytes, got {short[0]}: {DAMAGED}"
            )
        rows = [np.frombuffer(content[:size], self.rows.dtype) for content in snapshots]
        predictors = [self.promise.predictor_of(content[size:]) for content in snapshots]
        if snapshots:
            self.hold(np.concatenate(rows), [each for each in predictors if each is not None])
            self.token = before
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
        rows = np.zeros(self.rows.size, after.rows.dtype)
        rows["next"] = self.rows["next"]
        rows["logged"] = 1  # the snapshot is another promise's
        for group in range(rows.size):
            with self.guards.select(np.array([group])) as guard:
                rows["guard"][group] = promise.follow(guard, self.promise).rows[0]
        after.hold(rows)
        after.token = hash_of(after.token + self.token)
        return after

    def _advance(self, entries: np.ndarray) -> tuple[np.ndarray, Rounds, np.ndarray]:
        """Give windows to the guards; the entries are in the order of groups and time.

        Returns the rounds' groups, the rounds with those of gaps, and which of these are entries.
        """
        self._join(entries)
        group, start, silent, given = self._with_gaps(entries)
        shape = group.size, len(self.promise.sensors)
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
            lasting=np.zeros(shape, np.int64),
        )
        turn = np.arange(group.size) - np.searchsorted(group, group)
        for number in range(turn.max(initial=-1) + 1):
            now = np.flatnonzero(turn == number)
            members = group[now]
            self.guards.skip(silent[now], members)
            recovered = self.guards.update(window[now], members)
            rounds.estimate[now] = recovered.estimate
            rounds.half_width[now] = recovered.half_width
            rounds.certified[now] = recovered.certified
            rounds.lasting[now] = self.guards.recoverable[members].cumprod(1).sum(1)
        self.rows["next"][entries["group"]] = entries["start"] + self._step  # of the last ones
        self.rows["logged"] += np.bincount(entries["group"], minlength=self.rows.size)
        return group, rounds, given

    def _join(self, entries: np.ndarray) -> None:
        """Begin the guards of new groups."""
        groups, first = np.unique(entries["group"], return_index=True)
        starts = entries["start"][first[groups >= self.rows.size]]
        if starts.size:
            guards = self.promise.guards(starts.size, starts)
            rows = np.zeros(starts.size, self.rows.dtype)
            rows["next"] = starts
            rows["guard"] = guards.rows
            predictors = [*self.guards.predictors, *guards.predictors]
            self.hold(np.concatenate([self.rows, rows]), predictors)

    def _with_gaps(
        self, entries: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the rounds of windows, and of the first H windows of each gap before one.

        Of each round: its group, its start, and how many windows of a gap are left out before it.
        Then the places of the given windows among the rounds.
        """
        group = entries["group"]
        start = entries["start"]
        due = np.roll(start, 1) + self._step
        first = np.flatnonzero(np.diff(group, prepend=-1))
        due[first] = self.rows["next"][group[first]]
        gap = (start - due) // self._step
        shown = np.minimum(gap, self.promise.horizons)
        given = np.cumsum(shown + 1) - 1
        of_window = np.repeat(np.arange(group.size), shown + 1)
        ahead = given[of_window] - np.arange(of_window.size)  # rounds before the given window
        in_gap = due[of_window] + (shown[of_window] - ahead) * self._step
        starts = np.where(ahead > 0, in_gap, start[of_window])
        silent = np.where(ahead > 0, 0, (gap - shown)[of_window])
        return group[of_window], starts, silent, given


def hash_of(content: bytes) -> bytes:
    """Return a token."""
    return blake2b(content, digest_size=TOKEN).digest()
