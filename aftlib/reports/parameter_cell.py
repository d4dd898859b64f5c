"""The parameters of a notebook: read from its `parameters` cell, checked before anything runs.

Papermill only warns of an unknown parameter, takes any type, and its own inspection misses
``float | None``. So a mistyped name would cost a long run with default values.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from types import SimpleNamespace
from typing import Annotated, Any

import nbformat
import yaml
from pydantic import BeforeValidator, ConfigDict, PydanticUserError, TypeAdapter, ValidationError

TAG = "parameters"


@dataclass(frozen=True)
class Parameter:
    """One parameter: its `kind` as annotated (else the default's), its default, its comment."""

    name: str
    kind: str
    default: Any
    help: str

    def __str__(self) -> str:
        comment = f"  # {self.help}" if self.help else ""
        return f"{self.name}: {self.kind} = {self.default!r}{comment}"

    def check(self, value: Any) -> Any:
        """Return `value` in the parameter's type: a text is parsed, an int may be 1e6."""
        read = [literal(value), value]  # a text stays a text if its kind permits one
        for candidate in read if self.kind == "Any" else reversed(read):
            with suppress(ValidationError):
                return _adapter(self.kind).validate_python(candidate)
        raise ValueError(
            f"parameter {self.name} wants {self.kind}, got {value!r}; "
            f"its default is {self.default!r}{f' ({self.help})' if self.help else ''}"
        )


def read_parameters(notebook: nbformat.NotebookNode) -> dict[str, Parameter]:
    """Return the parameters of `notebook` by name; empty when no cell is tagged ``parameters``.

    ValueError when that cell is no Python, such as one with a magic.
    """
    code = (cell for cell in notebook.cells if cell.cell_type == "code")
    source = next((c.source for c in code if TAG in c.metadata.get("tags", [])), "")
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise ValueError(
            f"the cell tagged {TAG} must be plain Python, got {(error.text or '').strip()!r} in "
            f"line {error.lineno} ({error.msg}): put magics into another cell"
        ) from error
    comments: dict[int, str] = {}  # by line; one that fills its line keeps a leading #
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            own_line = token.line.strip() == token.string
            comments[token.start[0]] = "#" * own_line + token.string.lstrip("# ")

    values = {}
    for statement in statements:
        match statement:
            case ast.AnnAssign(ast.Name(name), annotation, ast.expr() as value):
                kind = ast.unparse(annotation)
            case ast.Assign([ast.Name(name)], value):
                kind = ""
            case _:
                continue
        try:
            default = ast.literal_eval(value)
        except ValueError:  # an expression: its value is not known
            default, kind = ast.get_source_segment(source, value), kind or "Any"
        default = list(default) if isinstance(default, tuple) else default

        about = comments.get(statement.end_lineno or 0, "")
        line = statement.lineno - 1
        above: list[str] = []
        while comments.get(line, "").startswith("#"):
            above.insert(0, comments[line][1:])
            line -= 1
        values[name] = Parameter(name, kind or _kind(default), default, about or " ".join(above))
    return values


def check_parameters(
    known: Mapping[str, Parameter], given: Mapping[str, Any], notebook: str
) -> dict[str, Any]:
    """Return `given` with every value checked and converted.

    ValueError for a value of the wrong type, or a name that `notebook` does not know: the message
    lists the known names with types, defaults and comments.
    """
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f", perhaps {near[0]!r}" if near else ""
            raise ValueError(
                f"notebook {notebook} has no parameter {name!r}{meant}; {listing(known.values())}"
            )
    return {name: known[name].check(value) for name, value in given.items()}


def listing(parameters: Any) -> str:
    """Return the text that lists known parameters, one per line."""
    lines = [f"  {parameter}" for parameter in parameters]
    return "\n".join(["known are:", *lines]) if lines else "it has none (no cell tagged parameters)"


def _kind(default: Any) -> str:
    if isinstance(default, list):
        kinds = {_kind(value) for value in default}
        if kinds and kinds <= {"int", "float"}:
            return "list[float]"  # [1, 2] does not mean that 1.5 is wrong
        return f"list[{kinds.pop() if len(kinds) == 1 else 'Any'}]"
    return "Any" if default is None else type(default).__name__


def literal(value: Any) -> Any:
    """Return the value of a text: Python or JSON, YAML for lists and mappings, else the text."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    for read in (ast.literal_eval, json.loads):
        try:
            parsed = read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return list(parsed) if isinstance(parsed, tuple) else parsed
    # YAML only where brackets say so: it would read 12:30 as 750 and `no` as false.
    if text[:1] in ("[", "{"):
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return value
    return value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


_TYPES = {
    **vars(typing),
    **dict.fromkeys(["List", "Sequence", "Tuple", "tuple"], list),
    "typing": typing,
    "int": Annotated[int, BeforeValidator(_whole)],
}
"""Meaning of the names in annotations; JSON has lists only."""


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    """Return the check of values by an annotation; an unknown annotation permits all values."""
    annotation = SimpleNamespace(__annotations__={"value": kind.replace(", ...", "")})
    try:
        wanted = typing.get_type_hints(annotation, _TYPES, include_extras=True)["value"]
        return TypeAdapter(wanted, config=ConfigDict(strict=True))
    except (NameError, TypeError, AttributeError, SyntaxError, PydanticUserError):
        return TypeAdapter(Any)
