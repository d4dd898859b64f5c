"""Checks name what they refuse, and let pass what is within the bounds, ends included."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from aftlib.core.checks import (
    items_in_order,
    names_in_order,
    require_number,
    require_numbers,
    with_value,
)


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
        (10**400, {"least": 0}, f"x must be at least 0, got 1{'0' * 99}"),
        (10**400, {"whole": True}, f"x must be a whole number, got 1{'0' * 99}"),
        (np.timedelta64(2, "h"), {"above": 0}, "x must be above 0, got np.timedelta64(2,'h')"),
        (np.timedelta64(2), {"whole": True}, "x must be a whole number, got np.timedelta64(2)"),
    ],
)
def test_refusals_name_value_and_bounds(value, bounds, message):
    with pytest.raises(ValueError) as error:
        require_number("x", value, **bounds)
    assert str(error.value) == message


def test_a_number_is_within_the_bounds_as_a_float_too():
    with pytest.raises(ValueError, match="x must be above 0, got Fraction"):
        require_number("x", Fraction(1, 10**400), above=0)
    require_number("x", Fraction(1, 20), above=0)
    require_number("x", 2**62 - 1, below=2**62, whole=True)


@pytest.mark.parametrize(
    "values",
    [["b", "a"], ("b", "a"), pd.Series(["b", "a"]), pd.Index(["b", "a"]), np.array([*"ba"])],
)
def test_names_keep_their_order(values):
    assert names_in_order(values) == ["b", "a"]
    assert names_in_order(range(2)) == ["0", "1"]


@pytest.mark.parametrize(
    "values",
    [
        *({"a", "b"}, frozenset("ab"), {"a": 1, "b": 2}, {"a": 1}.keys(), "ab", b"ab", 5, None),
        *(np.array("ab"), np.array([["a", "b"]]), pd.DataFrame(columns=["a"]), list, pd.Series),
    ],
)
def test_what_has_no_order_is_no_list(values):
    with pytest.raises(ValueError, match=r"xs must be a list such as \[1\], got "):
        items_in_order("xs", values, "[1]")


@pytest.mark.parametrize("name", [b"a", None, 1.5, True])
def test_names_are_texts_or_whole_numbers(name):
    with pytest.raises(ValueError, match="names must be texts or whole numbers, got .*give texts"):
        names_in_order(["a", name])


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
