"""A user's predictor in the guard: what it receives, its state, and the errors for wrong ones."""

import copy

import numpy as np
import pandas as pd
import pytest

from aftlib import GaussianModel, Promise
from aftlib.guard.guard import Guard
from aftlib.streaming.keyed import KeyedGuards
from tests.guard.test_guard import WORKERS, stream, with_gaps
from tests.streaming.test_keyed import TERMS, long, processed, windows_of


class Others:
    """The sensor's own mean, moved as far as the other sensors are from theirs."""

    def __init__(self, total=0.0, number=0.0):
        self.total = total
        self.number = number

    def learn(self, window):
        self.total = self.total + np.nan_to_num(window)
        self.number = self.number + np.isfinite(window)

    def predict(self, windows):
        if not np.all(self.number):
            return np.full(windows.shape[1], np.nan)
        mean = self.total / self.number
        off = windows[-1] - mean
        return mean + (np.nanmean(off) if np.isfinite(off).any() else np.nan)

    def to_bytes(self):
        return np.append(self.total, self.number).tobytes() if np.any(self.number) else b""

    def from_bytes(self, data):
        return Others(*np.frombuffer(data).reshape(2, -1)) if data else Others()


class Spy(Others):
    """The same, which stores what it was given."""

    def __init__(self):
        super().__init__()
        self.given = []
        self.learned = []

    def learn(self, window):
        super().learn(window)
        self.learned.append(window)

    def predict(self, windows):
        self.given.append((windows.copy(), len(self.learned)))
        values = super().predict(windows)
        windows[:] = 0  # which must harm nobody
        return values


def test_the_guard_certifies_a_users_predictions():
    windows = stream(700)
    guard = Guard(WORKERS, 1.5, 0.05, predictor=Others())
    history = guard.replay(windows[:-1])
    own = Others()
    for window in windows[:-6]:
        own.learn(window)
    mean = own.total / own.number
    for worker in WORKERS:
        others = np.setdiff1d(np.arange(6), worker)
        expected = mean + (windows[-1] - mean)[others].mean()
        lost = windows[-1].copy()
        lost[worker] = np.nan
        recovered = copy.copy(guard).update(lost)
        np.testing.assert_allclose(recovered.estimate[0, worker], expected[worker], rtol=1e-12)
        assert recovered.certified[0, worker].all()
    assert (history.decisions == 2).sum() > 5000


def test_a_predictor_sees_what_an_outage_of_that_length_would_leave():
    windows = with_gaps(stream(40), 0.1)
    spy = Spy()
    Guard(WORKERS, 1.0, 0.05, horizons=3, predictor=spy).update(windows)
    assert len(spy.given) == (1 + 2 + 3 * 37) * len(WORKERS)
    np.testing.assert_array_equal(spy.learned, windows[:37])
    last = iter(spy.given[-9:])
    for worker in WORKERS:
        for h in (1, 2, 3):
            expected = windows[-4:].copy()
            expected[-h:, worker] = np.nan
            given, learned = next(last)
            np.testing.assert_array_equal(given, expected)
            assert learned == 36  # nothing of the last H + 1 windows


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_an_outage_gets_the_shadow_predictions_and_a_restart_changes_nothing(share):
    windows = with_gaps(stream(405), share)
    windows[400:, 1] = 1.0  # the first worker is [0, 3]
    guard = Guard(WORKERS, 1.5, 0.05, predictor=Others())
    guard.update(windows[:400])
    real = Guard.from_bytes(guard.to_bytes(), Others())
    history = guard.replay(windows[400:])
    outage = windows[400:].copy()
    outage[:, WORKERS[0]] = np.nan
    recovered = real.update(outage)
    shadow = history.estimate[np.arange(5), np.arange(5)][:, WORKERS[0]]
    np.testing.assert_array_equal(recovered.estimate[:, WORKERS[0]], shadow)
    again = Guard.from_bytes(real.to_bytes(), Others())
    assert again.to_bytes() == real.to_bytes()
    skipped = Guard.from_bytes(real.to_bytes(), Others())
    again.update(np.full((9, 6), np.nan))
    skipped.skip(9)
    assert again.to_bytes() == skipped.to_bytes()


def test_the_guards_own_prediction_replaces_what_a_predictor_does_not_know():
    windows = with_gaps(stream(300), 0.1)
    nothing = type("Nothing", (Others,), {"predict": lambda self, windows: windows[0] * np.inf})
    own = Guard(WORKERS, 0.8, 0.05).replay(windows)
    replaced = Guard(WORKERS, 0.8, 0.05, predictor=nothing()).replay(windows)
    np.testing.assert_array_equal(replaced.estimate, own.estimate)
    np.testing.assert_array_equal(replaced.decisions, own.decisions)


def test_a_copy_has_a_predictor_of_its_own():
    guard = Guard(WORKERS, 0.8, 0.05, predictor=Others())
    guard.update(stream(50))
    before = guard.to_bytes()
    copy.copy(guard).update(stream(50))
    assert guard.to_bytes() == before


class Stateless:
    """A predictor that cannot be stored."""

    def learn(self, window):
        """Learn nothing."""

    def predict(self, windows):
        return windows[-1, 0]


def test_what_a_predictor_lacks_is_named():
    with pytest.raises(ValueError, match="predictor must have .* got dict without predict, learn:"):
        Guard(WORKERS, 0.8, 0.05, predictor={})
    guard = Guard(WORKERS, 0.8, 0.05, predictor=Stateless())
    with pytest.raises(ValueError, match="got Stateless without to_bytes, from_bytes: add them"):
        guard.to_bytes()
    with pytest.raises(
        ValueError, match=r"predict must return an array of shape \(6,\), got .*\(\)"
    ):
        guard.update(stream(2))
    stored = Guard(WORKERS, 0.8, 0.05, predictor=Others()).to_bytes()
    with pytest.raises(ValueError, match="predictor must be given if and only if .* got None"):
        Guard.from_bytes(stored)
    with pytest.raises(ValueError, match="predictor must be given if and only if"):
        Guard.from_bytes(Guard(WORKERS, 0.8, 0.05).to_bytes(), Others())
    with pytest.raises(ValueError, match="got Stateless without to_bytes, from_bytes: add them"):
        Guard.from_bytes(stored, Stateless())


def test_a_stream_has_a_predictor_by_its_name_and_goes_on_after_a_restart():
    """Without a predictor the same windows have other estimates."""
    values = windows_of()
    promise = Promise(**TERMS, predictor="tests.guard.test_predictor:Others")
    promise = Promise.from_content(promise.content)
    whole, _ = processed(KeyedGuards(promise), long(values))
    first = KeyedGuards(promise)
    one, _ = processed(first, long(values[:300]))
    second = KeyedGuards(promise)
    second.restore([first.snapshot(0)], first.token)
    other, _ = processed(second, long(values[300:], 300))
    pd.testing.assert_frame_equal(pd.concat([one, other], ignore_index=True), whole)
    without, _ = processed(KeyedGuards(Promise(**TERMS)), long(values))
    estimated = (without["state"] == "estimated") & (whole["state"] == "estimated")
    assert estimated.any()
    assert (without["value"] != whole["value"])[estimated].all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predictor": "nowhere:Class"}, "predictor must name a class .* got 'nowhere:Class' .No"),
        ({"predictor": "tests.guard.test_predictor:Other"}, "has no attribute 'Other'"),
        ({"predictor": "Others"}, "predictor must name a class .* got 'Others'"),
        ({"predictor": 7}, "predictor must name a class .* got 7"),
        (
            {"predictor": "tests.guard.test_predictor:Stateless"},
            "got Stateless without to_bytes, from_bytes: add them",
        ),
        (
            {
                "predictor": "tests.guard.test_predictor:Others",
                "model": GaussianModel(np.zeros(4), np.eye(4), ["a", "b", "c", "d"]),
            },
            "predictor must be None beside a known model",
        ),
    ],
)
def test_a_promise_refuses_a_predictor_that_a_stream_cannot_use(change, message):
    with pytest.raises(ValueError, match=message):
        Promise(**TERMS | change)
