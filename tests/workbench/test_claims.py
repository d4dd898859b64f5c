"""A claim's verdict from value, interval and threshold, and findings that do not fit."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from functools import partial

import numpy as np
import pytest

from aftlib.workbench.claims import Claim, Finding, Threshold, nothing
from tests.refusals import refused

OURS = partial(Threshold, "ours: a test")
CLAIM = Claim("D1-1", "It is so.", lambda grid, delta, more=1: Finding(grid + delta + more))


@pytest.mark.parametrize(
    ("threshold", "finding", "verdict"),
    [
        (OURS(high=1), Finding(1.0), "holds"),
        (OURS(high=1), Finding(1.1), "deviates"),
        (OURS(high=1, strict=True), Finding(1.0), "deviates"),
        (OURS(low=1), Finding(1), "holds"),
        (OURS(low=1, strict=True), Finding(1), "deviates"),
        (OURS(16, 36), Finding(24), "holds"),
        (OURS(high=1), Finding(0.8, (0.7, 1.0)), "holds"),
        (OURS(high=1), Finding(0.9, (0.8, 1.1)), "undecided"),
        (OURS(high=1), Finding(1.2, (1.1, 1.3)), "deviates"),
        (OURS(high=1), Finding(1.2, (1.0, 1.3)), "undecided"),
        (OURS(high=1, strict=True), Finding(1.2, (1.0, 1.3)), "deviates"),
        (OURS(high=1, strict=True), Finding(0.8, (0.7, 1.0)), "undecided"),
        (OURS(low=1), Finding(0.8, (0.7, 1.1)), "undecided"),
        (OURS(low=1), Finding(0.8, (0.7, 0.9)), "deviates"),
        (OURS(high=1, margin=0.25), Finding(1, (0.75, 1.25)), "holds"),
        (OURS(high=1, margin=0.125), Finding(1, (0.75, 1.25)), "undecided"),
        (OURS(high=1, margin=0.125), Finding(1.2, (1.1, 1.3)), "deviates"),
        (OURS(low=1, margin=0.25), Finding(1, (0.75, 1.25)), "holds"),
        (OURS(high=1), Finding(0.5, control=False), "undecided"),
        (OURS(high=1), Finding(1.5, control=False), "deviates"),
        (OURS(high=1), Finding(0.5, readings={"other": Finding(1.6)}), "undecided"),
        (OURS(high=1), Finding(1.5, readings={"other": Finding(1.6)}), "deviates"),
        (OURS(high=1), Finding(0.5, readings={"other": nothing("No rows.")}), "holds"),
        (OURS(high=1), Finding(0.5, parts={"air": Finding(0.6)}), "holds"),
        (OURS(high=1), Finding(0.5, parts={"air": Finding(1.6)}), "deviates"),
        (OURS(high=1), Finding(0.5, parts={"air": Finding(0.9, (0.8, 1.1))}), "undecided"),
        (OURS(high=1), Finding(0.9, (0.8, 1.1), parts={"air": Finding(0.6)}), "undecided"),
        (OURS(high=1), Finding(0.9, (0.8, 1.1), parts={"air": Finding(1.6)}), "deviates"),
        (OURS(high=1), Finding(0.5, conditions=False, control=False), "deviates"),
        (OURS(high=1), Finding("infinite"), "deviates"),
        (OURS(high=1), Finding(2, threshold=OURS(high=3)), "holds"),
        (OURS(high=1), nothing("No rows."), "not run"),
        (None, Finding("some / 0"), "holds"),
        (None, Finding("some / 0", conditions=np.bool_(False)), "deviates"),
    ],
)
def test_the_verdict_follows_from_value_interval_and_threshold(threshold, finding, verdict):
    assert replace(CLAIM, threshold=threshold).decide(finding) == verdict


def test_a_reading_has_its_own_unit_and_shows_its_interval():
    claim = replace(CLAIM, threshold=OURS(high=1), unit="of the axis")
    other = Finding(0.5, (0.25, 1.25), unit="of its own count")
    assert claim.reading(other) == "0.5 of its own count [0.25, 1.25], undecided"
    assert claim.reading(Finding(2)) == "2 of the axis, deviates"
    assert claim.unit_of(Finding("none")) == ""


def test_a_judge_gets_the_frames_that_it_names():
    frames = {"grid": 1, "delta": 2, "more": 100, "other": 3}
    assert CLAIM.find(frames).value == 4  # a parameter with a default gets no frame
    with pytest.raises(ValueError, match="claim D1-1 is judged by grid, delta, but there is no 'd"):
        CLAIM.find({"grid": 1})


test_a_claim_must_fit = refused(
    lambda change: replace(CLAIM, **change),
    ({"id": "D1"}, "id must be a document, a hyphen and a number such as D4-5, got 'D1'"),
    ({"recorded": "maybe"}, "recorded of D1-1 must be one of .* got 'maybe'"),
    ({"recorded": "not run"}, "recorded of D1-1 must be"),
    ({"basis": "guessed"}, "basis of D1-1 must be one of .* got 'guessed'"),
)


test_a_finding_must_fit = refused(
    lambda fields: Finding(**fields),
    ({"value": np.inf}, "value must be a finite number, a text or None, got inf"),
    ({"value": True}, "value must be a finite number, a text or None, got True"),
    ({"value": [1, 2]}, "value must be a finite number"),
    ({"value": 1, "expected": float("nan")}, "expected must be a finite number"),
    ({"value": 1, "interval": (0.2, 0.1)}, "interval must run from low to high"),
    ({"value": 1, "interval": (0.1,)}, r"interval must be \(low, high\) or None"),
    ({"value": 1, "interval": (None, 0.1)}, r"interval must be \(low, high\) or None"),
    ({"value": 1, "interval": (0.1, float("nan"))}, "interval must be a finite number"),
    ({"value": 1, "conditions": 1}, "conditions must be True or False, got 1"),
    ({"value": 1, "conditions": None}, "conditions must be True or False"),
    ({"value": 1, "control": 0}, "control must be True or False, got 0"),
)


def test_values_of_numpy_become_python_values():
    finding = Finding(np.float32(0.5), np.array([0.25, 0.75]), expected=np.int64(3))
    values = [finding.value, finding.interval, finding.expected]
    assert json.loads(json.dumps(values)) == [0.5, [0.25, 0.75], 3]
    with pytest.raises(FrozenInstanceError):
        finding.value = 1


test_a_threshold_must_have_a_source_and_bounds_in_order = refused(
    Threshold,
    ("", 0, 1, "source must say where the threshold comes from, got ''"),
    ("ours", 2, 1, "low must be at most high and margin at least 0, got Th"),
    ("ours", 0, 1, False, -0.1, "margin at least 0"),
)


def test_the_detectable_deviation_is_excluded_by_four_intervals_of_five():
    rng, half = np.random.default_rng(0), 1.96
    detectable = Finding(0, (-half, half)).detectable
    centres = rng.normal(1 + detectable, 1, size=100_000)  # the threshold is 1
    assert np.mean(centres - half > 1) == pytest.approx(0.8, abs=0.005)
    assert Finding(0).detectable is None
