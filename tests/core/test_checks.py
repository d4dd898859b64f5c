"""Checks name what they refuse, and let pass what is within the bounds, ends included."""

import math

import numpy as np
import pytest

from aftlib.core.checks import require_number, require_numbers, with_value


@pytest.mark.parametrize(
    ("value", "bounds", "message"),
    [
        (2, {"above": 0, "below": 1}, "x must be above 0 and below 1, got 2"),
        (0, {"above": 0}, "x must be above 0, got 0"),
        (1, {"below": 1}, "x must be below 1, got 1"),
        (math.nan, {"least": 0}, "x must be at least 0, got nan"),
        (math.inf, {}, "x must be a finite number, got inf"),
        (1.5, {"least": 1, "whole": True}, "x must be a whole number at least 1, got 1.5"),
        (True, {"most": 3}, "x must be at most 3, got True"),
        ("3", {"most": 3}, "x must be at most 3, got '3'"),
    ],
)
def test_refusals_name_value_and_bounds(value, bounds, message):
    with pytest.raises(ValueError) as error:
        require_number("x", value, **bounds)
    assert str(error.value) == message


def test_bounds_that_may_be_reached_are():
    require_number("x", 3, least=3, most=3, whole=True)
    require_number("x", -1e300)
    require_number("x", np.int64(3), least=3, whole=True)
    require_numbers("xs", [1, 2.0], above=0.5)


def test_lists_are_refused_by_their_values():
    with pytest.raises(ValueError, match="xs must hold at least one value, got none"):
        require_numbers("xs", [])
    for no_list in (3, None, "x"):
        with pytest.raises(ValueError, match=f"xs must be a list of numbers, got {no_list!r}"):
            require_numbers("xs", no_list)
    with pytest.raises(ValueError, match="each of xs must be above 0, got -1"):
        require_numbers("xs", [1, -1], above=0)


def test_a_value_joins_its_grid_once():
    assert with_value([0.2, 0.1], 0.1, 0.15) == [0.1, 0.15, 0.2]
