"""The model of a notebook's parameters, which declares each once.

A notebook's package has one, `NotebookParameters` in its `experiments`. The notebook's `parameters`
cell holds the same names, defaults and comments, because papermill and readers need literals. A
test compares them. The line after that cell builds the model, which refuses values with which the
notebook cannot run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from aftlib.core.checks import require_number, require_numbers

PROFILES = ("smoke", "quick", "full")  # how large the notebooks' experiments are


def parameter(default: Any, about: str = "", **options: Any) -> Any:
    """Declare a parameter: its default and its meaning, with its unit.

    The `options` ``smoke``, ``quick`` and ``full`` are its values in those profiles, if they differ
    from the default. ``least``, ``most``, ``above`` and ``below`` bound it, or each of its items.
    """
    profiles = {name: options.pop(name) for name in PROFILES if name in options}
    extra: Any = {"profiles": profiles, "bounds": options}
    return Field(default, description=about, json_schema_extra=extra)


class ParameterModel(BaseModel):
    """Base of the models; ValueError, in one line, for values that do not fit."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise ValueError(_explain(type(self), error)) from None

    @field_validator("*")
    @classmethod
    def _check_bounds(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        if (bounds := _read_extra(cls, name, "bounds")) and value is not None:
            check = require_numbers if isinstance(value, list) else require_number
            check(name, value, **bounds)
        return value

    @classmethod
    def of(cls, namespace: Mapping[str, Any]) -> Self:
        """Return the model of a notebook's ``globals()``."""
        return cls(**{name: namespace[name] for name in cls.model_fields if name in namespace})

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> dict[str, Any]:
        """Return values written as JSON, such as ``[1, 2]``, ``1e3`` or ``null``, by name.

        A text that is no JSON, or the value of a text parameter, stays a text.
        """
        values: dict[str, Any] = {}
        for name, text in texts.items():
            values[name] = text
            field = cls.model_fields.get(name)
            is_text = field is not None and field.annotation in (str, str | None)
            with suppress(json.JSONDecodeError):
                values[name] = text if is_text and text != "null" else json.loads(text)
        return values

    @classmethod
    def profile(cls, profile: str) -> dict[str, Any]:
        """Return the values of a profile that are not the defaults."""
        profiles = {name: _read_extra(cls, name, "profiles") for name in cls.model_fields}
        return {name: values[profile] for name, values in profiles.items() if profile in values}


def kind_of(annotation: Any) -> str:
    """Return a type as a notebook writes it.

    >>> kind_of(float), kind_of(list[int]), kind_of(int | None)
    ('float', 'list[int]', 'int | None')
    """
    return annotation.__name__ if type(annotation) is type else str(annotation)


def _read_extra(model: type[ParameterModel], name: str, what: str) -> dict[str, Any]:
    extra: Any = model.model_fields[name].json_schema_extra
    values: dict[str, Any] = extra[what]
    return values


def _explain(model: type[ParameterModel], error: ValidationError) -> str:
    """Return the first error as one line that names the parameter, its value and the fix."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":  # one of our own
        return str(first["ctx"]["error"])
    name = str(first["loc"][0])
    value = first["input"]
    if first["type"] == "extra_forbidden":
        near = get_close_matches(name, model.model_fields, 1)
        fix = f"write {near[0]!r}" if near else f"known are {', '.join(model.model_fields)}"
        return f"{name} is no parameter of this notebook, got {value!r}: {fix}"
    info = model.model_fields[name]
    item = "each of " if isinstance(first["loc"][-1], int) else ""
    meant = f' for "{info.description}"' if info.description else ""
    fix = f"give a value of this type{meant}, such as the default {info.default!r}"
    return f"{item}{name} must fit {kind_of(info.annotation)}, got {value!r}: {fix}"
