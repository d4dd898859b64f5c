from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME, RecoveryTime


def test_document_constants():
    assert RecoveryTime(28.33, 9.332e-4) == DOCUMENT_RECOVERY_TIME
    assert DOCUMENT_RECOVERY_TIME(0) == 28.33
    assert DOCUMENT_RECOVERY_TIME(100_000) == pytest.approx(121.65)


@given(
    st.floats(0, 1e4),
    st.floats(1e-6, 1e3),
    st.one_of(st.integers(0, 10**6).map(float), st.floats(0, 1e6)),
)
def test_most_tuples_meet_t_sla_and_one_more_does_not(fixed, per_tuple, extra):
    recovery_time = RecoveryTime(fixed, per_tuple)
    t_sla_ms = fixed + extra
    most = recovery_time.max_tuples(t_sla_ms)
    assert recovery_time(most) <= t_sla_ms < recovery_time(most + 1)


def test_a_quotient_rounded_up_is_corrected():
    recovery_time = RecoveryTime(46.33, 0.8324)
    assert int((60757.424 - 46.33) / 0.8324) == 72_935
    assert recovery_time(72_935) > 60757.424
    assert recovery_time.max_tuples(60757.424) == 72_934


def test_endless_t_sla_is_bounded():
    assert RecoveryTime(1, 1e-300).max_tuples(math.inf) == 2**53


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_impossible_numbers_are_refused(bad):
    for call, message in (
        (lambda: DOCUMENT_RECOVERY_TIME.max_tuples(bad), r"t_sla_ms must be at least .*28\.33"),
        (lambda: DOCUMENT_RECOVERY_TIME(bad), "tuples must be at least 0"),
        (lambda: RecoveryTime(bad, 1), "fixed_ms must be at least 0"),
        (lambda: RecoveryTime(1, bad), "per_tuple_ms must be above 0"),
        (lambda: RecoveryTime(math.inf, bad), "fixed_ms must be at least 0, got inf"),
        (lambda: RecoveryTime(1, 0.0), "per_tuple_ms must be above 0, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
