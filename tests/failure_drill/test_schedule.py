"""The schedule: every pattern of faults, the same whenever it is drawn, calm between events."""

from itertools import pairwise

import numpy as np
import pytest

from aftlib.failure_drill.schedule import (
    DIGITS,
    PATTERNS,
    draw_drill,
    draw_schedule,
    pattern_of,
)
from tests.failure_drill.conftest import SMALL

DRAWN = {
    "faults": 12, "workers": 4, "begin": 400, "steps": 4000, "every": 100, "pause_s": 1, "seed": 3,
}  # fmt: skip


def events_of(schedule):
    events = {}
    for fault in schedule:
        events.setdefault(fault.event, []).append(fault)
    return [*events.values()]


def test_a_schedule_has_every_pattern_and_is_seeded():
    schedule = draw_schedule(**DRAWN)
    patterns = [pattern_of(event) for event in events_of(schedule)]
    assert patterns[: len(PATTERNS)] == [*PATTERNS]
    assert schedule == draw_schedule(**DRAWN) != draw_schedule(**DRAWN | {"seed": 4})
    assert len(schedule) >= 12
    assert all(400 <= fault.step < 4000 for fault in schedule)


def test_patterns_are_what_they_are_called():
    for number, event in enumerate(events_of(draw_schedule(**DRAWN))):
        pattern = PATTERNS[number % len(PATTERNS)]
        batches = [fault.step // 100 for fault in event]
        workers, steps = {f.target for f in event}, {f.step for f in event}
        shape = (len(event), len(workers), len(steps))
        assert shape == {"repeated": (2, 1, 2), "simultaneous": (2, 2, 1)}.get(pattern, (1, 1, 1))
        assert batches[-1] - batches[0] == (pattern == "repeated")
        assert {f.lasts_s for f in event} == {0 if event[0].kind == "kill" else 1}


def test_an_undisturbed_micro_batch_follows_each_event():
    schedule = draw_schedule(**DRAWN)
    for before, after in pairwise(schedule):
        if before.event != after.event:
            assert after.step // 100 >= before.step // 100 + 2
    assert schedule[-1].step // 100 < 4000 // 100 - 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": 700}, "faults must fit between step 400 and 700, got 12"),
        ({"workers": 1}, "workers must be at least 2, got 1"),
    ],
)
def test_an_impossible_schedule_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        draw_schedule(**DRAWN | changed)


def test_the_stream_is_stored_and_shows_thousandths(small):
    again = draw_drill(small.log.path.parent, **SMALL)
    assert again.schedule == small.schedule
    np.testing.assert_array_equal(again.samples, small.samples)
    np.testing.assert_allclose(small.samples * DIGITS, np.rint(small.samples * DIGITS), atol=1e-9)
    np.testing.assert_allclose(small.truth[3], small.samples[30:40].mean(axis=0))
    assert small.requirement.epsilon == pytest.approx(0.8 / np.sqrt(10))


def test_d1_estimates_the_first_of_two_kills_at_once(tmp_path):
    drill = draw_drill(tmp_path, **SMALL | {"windows": 150, "faults": 8})
    estimated, kills = drill.estimated_kills, drill.kills
    assert drill.assignment.estimable.all()
    second = [i > 0 and kills[i - 1].step == fault.step for i, fault in enumerate(kills)]
    np.testing.assert_array_equal(estimated, ~np.array(second))
    assert 0 < estimated.sum() < len(estimated)
    assert [last - first for first, last in drill.event_batches][:4] == [0, 1, 0, 0]
