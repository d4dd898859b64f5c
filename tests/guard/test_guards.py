"""Many guards as one set of arrays, and the same guards one by one: the same bits."""

import numpy as np
import pytest

from aftlib.guard import guards as module
from aftlib.guard.estimator import Rules
from aftlib.guard.guard import Guard
from aftlib.guard.guards import Guards
from tests.guard.test_guard import stream, with_gaps

GUARDS = 5
ROUNDS = 160


def windows_of(n, share):
    """Windows of each guard, (rounds, guards, n); some are wild, and some rounds are empty."""
    windows = np.stack([stream(ROUNDS, n=n, seed=g, noise=0.3 + g / 9) for g in range(GUARDS)], 1)
    windows = with_gaps(windows, share)
    windows[90:93, 2] = np.nan
    windows[120, 3] = 1e90
    windows[140:, 4, 0] = np.nan
    return windows


def members_of(case):
    """The guards that have a window in each round."""
    rng = np.random.default_rng(3)
    for t in range(ROUNDS):
        late = np.arange(GUARDS) * 9 <= t
        yield {
            "all": np.arange(GUARDS),
            "late": np.flatnonzero(late),
            "subsets": np.flatnonzero(late & (rng.random(GUARDS) < 0.7)),
        }[case]


def set_and_singles(rules, warm):
    """A set of guards and each of them alone; `warm` ones begin with what another learned."""
    names = [f"s{i}" for i in range(rules.workers.size)]
    singles = [Guard.of_guards(Guards.begin(rules), names) for _ in range(GUARDS)]
    if warm:
        teacher = Guard.of_guards(Guards.begin(rules), names)
        teacher.update(stream(130, n=len(names), seed=11))
        learned = teacher.learned(names, {})
        singles[1::2] = [Guard.of_guards(learned.begin(rules, names), names) for _ in singles[1::2]]
    rows = np.concatenate([single._guards.rows for single in singles])
    return Guards(rules, rows), singles


@pytest.mark.parametrize(
    ("n", "share", "seasons", "warm", "case", "together"),
    [
        (5, 0.0, [], False, "all", 16),
        (5, 0.0, [], True, "subsets", 16),
        (7, 0.03, [24], False, "late", 3),
        (20, 0.05, [24, 7.5], True, "all", 3),
        (6, 0.3, [], True, "subsets", 16),
        (1, 0.0, [], False, "late", 1),
        (27, 0.0, [], False, "late", 16),  # one fits for the first time as another fits again
    ],
)
def test_a_set_of_guards_has_the_bits_of_single_ones(
    monkeypatch, n, share, seasons, warm, case, together
):
    """All of the state, and all results, after each round."""
    monkeypatch.setattr(module, "TOGETHER", together)
    workers = [list(range(n))[i :: min(n, 3)] for i in range(min(n, 3))]
    guards, singles = set_and_singles(Rules.check(workers, 0.9, 0.05, 4, seasons), warm)
    windows = windows_of(n, share)
    certified = 0
    for t, members in enumerate(members_of(case)):
        if t == 100:
            gap = np.arange(members.size) * 3
            guards.skip(gap, members)
            for g, rounds in zip(members, gap, strict=True):
                singles[g].skip(int(rounds))
        recovered = guards.update(windows[t, members], members)
        for place, g in enumerate(members):
            single = singles[g].update(windows[t, g])
            for name in ("estimate", "half_width", "certified"):
                own = getattr(recovered, name)[place]
                np.testing.assert_array_equal(own, getattr(single, name)[0])
            assert guards.rows[g].tobytes() == singles[g]._guards.rows.tobytes()
        certified += guards.recoverable.sum()
    for g, single in enumerate(singles):
        np.testing.assert_array_equal(guards.recoverable[g], single.recoverable)
        np.testing.assert_array_equal(guards.outcomes[:, g], single.outcomes)
    assert certified > 0 or n == 1


def test_the_bits_are_those_of_single_ones_beyond_150_sensors():
    rules = Rules.check(np.arange(152).reshape(4, -1), 1.2, 0.05, 3)
    guards, singles = set_and_singles(rules, warm=True)
    windows = with_gaps(np.stack([stream(12, n=152, seed=g) for g in range(GUARDS)], 1), 0.02)
    windows[4:9, 3] = np.nan  # longer than the horizons
    for window in windows:
        guards.update(window, np.arange(GUARDS))
    for g, single in enumerate(singles):
        single.update(windows[:, g])
        assert guards.rows[g].tobytes() == single._guards.rows.tobytes()
    assert guards.recoverable[1::2].any()
