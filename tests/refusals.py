"""Tables of arguments that are refused, each with the message that the user reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest


def refused(call: Callable[..., Any], *rows: tuple[Any, ...]) -> Callable[..., None]:
    """Return a test: with the values of each row but the last, `call` raises a ValueError.

    The last value of a row is a pattern that the error's message contains. Further parameters of
    `call` without a default are the names of fixtures.
    """
    needed = [
        parameter.name
        for parameter in inspect.signature(call).parameters.values()
        if parameter.default is parameter.empty and parameter.kind != parameter.VAR_POSITIONAL
    ]

    @pytest.mark.parametrize("row", rows)
    def test(row: tuple[Any, ...], request: pytest.FixtureRequest) -> None:
        *given, message = row
        fixtures = [request.getfixturevalue(name) for name in needed[len(given) :]]
        with pytest.raises(ValueError, match=message):
            call(*given, *fixtures)

    return test
