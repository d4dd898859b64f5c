"""A claim's verdict from value, interval and limit, and findings that do not fit."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from aftlib.core.claims import Claim, Finding, Limit, nothing

CLAIM = Claim("D1-1", "It is so.", lambda grid, delta, more=1: Finding(grid + delta + more))


@pytest.mark.parametrize(
    ("limit", "finding", "verdict"),
    [
        (Limit(high=1), Finding(1.0), "holds"),
        (Limit(high=1), Finding(1.1), "deviates"),
        (Limit(high=1, strict=True), Finding(1.0), "deviates"),
        (Limit(low=1), Finding(1), "holds"),
        (Limit(low=1, strict=True), Finding(1), "deviates"),
        (Limit(16, 36), Finding(24), "holds"),
        (Limit(16, 36), Finding(37), "deviates"),
        (Limit(high=1), Finding(1.1, (0.9, 1.3)), "deviates"),
        (Limit(high=1, by_interval=True), Finding(1.1, (0.9, 1.3)), "holds"),
        (Limit(high=1, by_interval=True), Finding(1.2, (1.1, 1.3)), "deviates"),
        (Limit(low=1, by_interval=True), Finding(0.8, (0.7, 1.0)), "holds"),
        (Limit(low=1, by_interval=True), Finding(0.8), "deviates"),
        (Limit(high=1), Finding(0.5, conditions=False), "deviates"),
        (Limit(high=1), Finding("infinite"), "deviates"),
        (Limit(high=1), Finding(2, limit=Limit(high=3)), "holds"),
        (Limit(high=1), nothing("No rows."), "not run"),
        (None, Finding("some / 0"), "holds"),
        (None, Finding("some / 0", conditions=np.bool_(False)), "deviates"),
    ],
)
def test_the_verdict_follows_from_value_interval_and_limit(limit, finding, verdict):
    assert replace(CLAIM, limit=limit).decide(finding) == verdict


def test_a_judge_gets_the_frames_that_it_names():
    frames = {"grid": 1, "delta": 2, "more": 100, "other": 3}
    assert CLAIM.find(frames).value == 4  # what has a default is the judge's own
    with pytest.raises(ValueError, match="claim D1-1 is judged by grid, delta, but there is no 'd"):
        CLAIM.find({"grid": 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "D1"}, "id must be a document's, a hyphen and a number, got 'D1'"),
        ({"recorded": "maybe"}, "recorded of D1-1 must be one of .* got 'maybe'"),
        ({"recorded": "not run"}, "recorded of D1-1 must be"),
        ({"basis": "guessed"}, "basis of D1-1 must be one of .* got 'guessed'"),
    ],
)
def test_a_claim_must_fit(change, message):
    with pytest.raises(ValueError, match=message):
        replace(CLAIM, **change)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
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
    ],
)
def test_a_finding_must_fit(fields, message):
    with pytest.raises(ValueError, match=message):
        Finding(**fields)


def test_values_of_numpy_become_plain():
    finding = Finding(np.float32(0.5), np.array([0.25, 0.75]), expected=np.int64(3))
    plain = [finding.value, finding.interval, finding.expected]
    assert json.loads(json.dumps(plain)) == [0.5, [0.25, 0.75], 3]
    with pytest.raises(FrozenInstanceError):
        finding.value = 1
