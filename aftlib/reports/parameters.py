"""The parameters of a notebook: read from its `parameters` cell, checked before anything runs.

Papermill only warns of an unknown parameter, takes any type, and its own inspection misses
``float | None``; a mistyped name must not cost a long run with default values.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import nbformat
import yaml

TAG = "parameters"
_SCALARS: dict[str, tuple[type, ...]] = {"bool": (bool,), "str": (str,), "dict": (dict,)}


@dataclass(frozen=True)
class Parameter:
    """One parameter: `kind` as annotated (else after the default), `default`, and its comment."""

    name: str
    kind: str
    default: Any
    help: str

    def __str__(self) -> str:
        comment = f"  # {self.help}" if self.help else ""
        return f"{self.name}: {self.kind} = {self.default!r}{comment}"

    def check(self, value: Any) -> Any:
        """Return `value` as the notebook wants it: a text is parsed, 1e6 is fine for an int.

        Raises
        ------
        ValueError
            When the value does not have the parameter's type.
        """
        for candidate in (value, _literal(value)):
            fits, converted = _fit(candidate, self.kind)
            if fits:
                return converted
        raise ValueError(
            f"parameter {self.name} wants {self.kind}, got {value!r}; "
            f"its default is {self.default!r}{f' ({self.help})' if self.help else ''}"
        )


def read_parameters(notebook: nbformat.NotebookNode) -> dict[str, Parameter]:
    """Return the parameters of `notebook` by name; empty when no cell is tagged ``parameters``."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and TAG in cell.metadata.get("tags", []):
            return {p.name: p for p in _parse(cell.source)}
    return {}


def check_parameters(
    known: Mapping[str, Parameter], given: Mapping[str, Any], notebook: str
) -> dict[str, Any]:
    """Return `given` with every value checked and converted.

    Raises
    ------
    ValueError
        For a name that `notebook` does not know (the message lists those it does, with types,
        defaults and comments), or a value of the wrong type.
    """
    for name in given:
        if name not in known:
            raise ValueError(
                f"notebook {notebook} has no parameter {name!r}; {listing(known.values())}"
            )
    return {name: known[name].check(value) for name, value in given.items()}


def listing(parameters: Any) -> str:
    """Return the text that lists known parameters, one a line."""
    lines = [f"  {parameter}" for parameter in parameters]
    return "\n".join(["known are:", *lines]) if lines else "it has none (no cell tagged parameters)"


def _parse(source: str) -> list[Parameter]:
    comments = _comments(source)
    parameters = []
    for statement in ast.parse(source).body:
        target = _target(statement)
        if target is not None:
            parameters.append(_parameter(target, statement, comments, source))
    return parameters


def _target(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target: ast.expr = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


def _parameter(name: str, statement: Any, comments: dict[int, str], source: str) -> Parameter:
    try:
        default = ast.literal_eval(statement.value)
    except ValueError:
        default = ast.get_source_segment(source, statement.value)
    default = list(default) if isinstance(default, tuple) else default
    annotated = isinstance(statement, ast.AnnAssign)
    kind = ast.unparse(statement.annotation) if annotated else _kind(default)
    return Parameter(name, kind, default, _help(statement, comments))


def _comments(source: str) -> dict[int, str]:
    """Return the comments of `source` by line; those that fill a line are marked by a leading #."""
    comments = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            own_line = token.line.strip() == token.string
            comments[token.start[0]] = "#" * own_line + token.string.lstrip("# ")
    return comments


def _help(statement: ast.stmt, comments: dict[int, str]) -> str:
    """Return the comment at a statement's end, else the comment lines right above it."""
    beside = comments.get(statement.end_lineno or 0)
    if beside is not None:
        return beside
    above: list[str] = []
    line = statement.lineno - 1
    while comments.get(line, "").startswith("#"):
        above.insert(0, comments[line][1:])
        line -= 1
    return " ".join(above)


def _kind(default: Any) -> str:
    if default is None:
        return "Any"
    if isinstance(default, list):
        return f"list[{_element(default)}]"
    return type(default).__name__


def _element(values: list[Any]) -> str:
    kinds = {_kind(value) for value in values}
    if kinds and kinds <= {"int", "float"}:
        return "float"  # [1, 2] does not mean that 1.5 is wrong
    return kinds.pop() if len(kinds) == 1 else "Any"


def _literal(value: Any) -> Any:
    """Return what a text stands for: Python or JSON, YAML for lists and mappings, else itself."""
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


def _fit(value: Any, kind: str) -> tuple[bool, Any]:
    """Return whether `value` is a `kind`, and the value converted to it."""
    kind = kind.strip("'\" ")
    if "|" in _outside_brackets(kind):
        tried = [_fit(value, part) for part in _alternatives(kind)]
        return next((answer for answer in tried if answer[0]), (False, value))
    items = re.fullmatch(r"(?:list|List|Sequence|tuple)\[(.*?)(?:, *\.\.\.)?\]", kind)
    if items:
        return _fit_list(value, items[1])
    return _fit_scalar(value, kind)


def _fit_list(value: Any, kind: str) -> tuple[bool, Any]:
    if not isinstance(value, list | tuple):
        return False, value
    answers = [_fit(item, kind) for item in value]
    return all(fits for fits, _ in answers), [converted for _, converted in answers]


def _fit_scalar(value: Any, kind: str) -> tuple[bool, Any]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "None":
        return value is None, value
    if kind == "int":
        whole = number and float(value).is_integer()
        return whole, int(value) if whole else value
    if kind == "float":
        return number, float(value) if number else value
    if kind in ("list", "tuple"):
        return isinstance(value, list), value
    known = _SCALARS.get(kind)
    return known is None or isinstance(value, known), value


def _outside_brackets(kind: str) -> str:
    return re.sub(r"\[.*\]", "", kind)


def _alternatives(kind: str) -> list[str]:
    return re.split(r"\|(?![^\[]*\])", kind)
