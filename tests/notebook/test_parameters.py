"""A model of parameters: what it refuses and how it says so, its profiles, its texts."""

from __future__ import annotations

import math

import pytest

from aftlib.notebook.parameters import ParameterModel, parameter


class Tiny(ParameterModel):
    """Parameters of a tiny notebook."""

    m: int = parameter(4, "number of workers", least=1, most=9, smoke=3)
    epsilons: list[float] = parameter([0.65, 0.7], "tolerances, °C", above=0)
    path: str | None = parameter(None, "a file of one's own")
    query: str = parameter("mean", "of a window")
    warm: bool = parameter(True, full=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"m": 10}, "m must be at least 1 and at most 9, got 10"),
        (
            {"m": 2.0},
            'm must fit int, got 2.0: give a value of this type for "number of workers", such as '
            "the default 4",
        ),
        ({"m": True}, "m must fit int, got True"),
        ({"epsilons": [1, 0]}, "each of epsilons must be above 0, got 0"),
        ({"epsilons": []}, "epsilons must hold at least one value, got none"),
        ({"epsilons": [math.nan]}, "each of epsilons must fit .*, got nan"),
        ({"epsilons": 0.7}, r"epsilons must fit list\[float\], got 0.7: give .*tolerances, °C"),
        ({"warm": 1}, "warm must fit bool, got 1: give a value of this type, such as the default"),
        ({"query": 1}, "query must fit str, got 1"),
        ({"epsilon": [1]}, "epsilon is no parameter of this notebook, got .*: write 'epsilons'"),
        ({"zz": 1}, "zz is no parameter of this notebook, got 1: known are m, epsilons, path"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(given, message):
    with pytest.raises(ValueError, match=message) as refused:
        Tiny(**given)
    assert "\n" not in str(refused.value)


def test_a_notebooks_names_that_the_model_lacks_do_not_matter():
    known = {"m": 3, "epsilons": [1], "path": None, "query": "sum", "warm": True, "other": 5}
    assert Tiny.of(known).m == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("1e3", 1000.0),
        ("[1, 2.5]", [1, 2.5]),
        ("null", None),
        ("true", True),
        ("a b", "a b"),
    ],
)
def test_values_are_written_as_json(text, value):
    assert Tiny.parse({"m": text}) == {"m": value}


def test_a_text_parameter_stays_a_text():
    assert Tiny.parse({"path": "0042"}) == {"path": "0042"}
    assert Tiny.parse({"path": "null"}) == {"path": None}


def test_profiles_give_what_is_not_the_default():
    assert [Tiny.profile(name) for name in ("smoke", "quick", "full")] == [
        {"m": 3}, {}, {"warm": False},
    ]  # fmt: skip
