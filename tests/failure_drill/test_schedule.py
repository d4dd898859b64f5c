"""The schedule: every form of failure, the same whenever it is drawn, calm between events."""

import signal

import pytest

from aftlib.failure_drill.schedule import FORMS, drawn

DRAWN = {"strikes": 12, "workers": 4, "begin": 400, "steps": 4000, "every": 100, "seed": 3}


def test_a_schedule_has_every_form_and_is_seeded():
    found = drawn(**DRAWN)
    assert {s.form for s in found} == set(FORMS)
    assert found == drawn(**DRAWN)
    assert found != drawn(**DRAWN | {"seed": 4})
    assert len(found) >= 12
    assert all(400 <= s.step < 4000 for s in found)


def test_forms_are_what_they_are_called():
    events = {}
    for strike in drawn(**DRAWN):
        events.setdefault(strike.number, []).append(strike)
    for mine in events.values():
        form, batches = mine[0].form, [s.step // 100 for s in mine]
        workers, steps = {s.worker for s in mine}, {s.step for s in mine}
        if form == "repeated":
            assert batches[1] == batches[0] + 1 and len(workers) == 1
        elif form == "simultaneous":
            assert len(workers) == 2 and len(steps) == 1
        else:
            assert len(mine) == 1
        wanted = signal.SIGSTOP if form == "stall" else signal.SIGKILL
        assert {s.signal for s in mine} == {wanted}


def test_an_undisturbed_micro_batch_follows_each_event():
    found = drawn(**DRAWN)
    for before, after in zip(found, found[1:], strict=False):
        if before.number != after.number:
            assert after.step // 100 >= before.step // 100 + 2
    assert found[-1].step // 100 < 4000 // 100 - 1


def test_a_stream_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="strikes must fit between step 400 and 700, got 12"):
        drawn(**DRAWN | {"steps": 700})


def test_one_worker_is_refused():
    with pytest.raises(ValueError, match="workers must be at least 2 for one to die.* got 1"):
        drawn(**DRAWN | {"workers": 1})
