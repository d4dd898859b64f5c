"""Checks name what they refuse, and let pass what is within the bounds, ends included."""

import math
import re
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from aftlib.core.checks import (
    items_in_order,
    names_in_order,
    require_number,
    require_numbers,
)
from tests.refusals import refused

FLOAT = "x must be of type float, got"
UNIT = "give a number in its unit, such as x / pd.Timedelta('1ms') for milliseconds"


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
        (Fraction(1, 20), {"above": 0}, f"{FLOAT} Fraction(1, 20); give float(x)"),
        (Decimal("0.6"), {}, f"{FLOAT} Decimal('0.6'); give float(x)"),
        (Decimal(3), {"whole": True}, "x must be of type int, got Decimal('3'); give int(x)"),
        (pd.Timedelta("50ms"), {}, f"{FLOAT} Timedelta('0 days 00:00:00.050000'); {UNIT}"),
        (timedelta(2), {}, f"{FLOAT} datetime.timedelta(days=2); {UNIT}"),
        (np.timedelta64(2, "h"), {}, f"{FLOAT} np.timedelta64(2,'h'); {UNIT}"),
    ],
)
def test_refusals_name_value_and_bounds(value, bounds, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        require_number("x", value, **bounds)


def test_numbers_within_the_bounds_pass():
    require_number("x", float(Fraction(1, 20)), above=0)
    require_number("x", float(Decimal("0.6")), above=0)
    require_number("x", pd.Timedelta("50ms") / pd.Timedelta("1ms"), least=50, most=50)
    require_number("x", np.float32(0.5), above=0)
    require_number("x", 2**62 - 1, below=2**62, whole=True)
    require_number("x", np.int64(3), least=3, most=3, whole=True)
    require_number("x", -1e300)
    require_numbers("xs", [1, 2.0], above=0.5)


@pytest.mark.parametrize(
    "values",
    [["b", "a"], ("b", "a"), pd.Series(["b", "a"]), pd.Index(["b", "a"]), np.array([*"ba"])],
)
def test_names_keep_their_order(values):
    assert names_in_order(values) == ["b", "a"]
    assert names_in_order(range(2)) == ["0", "1"]


UNORDERED = [
    *({"a", "b"}, frozenset("ab"), {"a": 1, "b": 2}, {"a": 1}.keys(), "ab", b"ab", 5, None),
    *(np.array("ab"), np.array([["a", "b"]]), pd.DataFrame(columns=["a"]), list, pd.Series),
]

test_lists_that_are_none_are_refused = refused(
    lambda check, values: check(values),
    *(
        (lambda v: items_in_order("xs", v, "[1]"), values, r"xs must be a list such as \[1\], got ")
        for values in UNORDERED
    ),
    *(
        (names_in_order, ["a", name], "names must be texts or whole numbers, got .*give texts")
        for name in (b"a", None, 1.5)
    ),
    *(
        (lambda v: require_numbers("xs", v, above=0), values, message)
        for values, message in (
            ([], "xs must hold at least one value, got none"),
            (3, "xs must be a list of numbers, got 3"),
            (None, "xs must be a list of numbers, got None"),
            ("x", "xs must be a list of numbers, got 'x'"),
            ([1, -1], "each of xs must be above 0, got -1"),
        )
    ),
)
