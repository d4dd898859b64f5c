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
from difflib import get_close_matches
from typing import Any

import nbformat
import yaml

TAG = "parameters"


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
        """Return `value` as the notebook wants it: a text is parsed, 1e6 is fine for an int."""
        read = [literal(value), value]  # a text stays one where it may be one
        for candidate in read if self.kind == "Any" else reversed(read):
            fits, converted = _fit(candidate, self.kind)
            if fits:
                return converted
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

    found = {}
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
        found[name] = Parameter(name, kind or _kind(default), default, about or " ".join(above))
    return found


def check_parameters(
    known: Mapping[str, Parameter], given: Mapping[str, Any], notebook: str
) -> dict[str, Any]:
    """Return `given` with every value checked and converted.

    ValueError for a value of the wrong type, or a name that `notebook` does not know: the message
    lists those it does, with types, defaults and comments.
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
    """Return the text that lists known parameters, one a line."""
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
    """Return the value of a text: Python or JSON, YAML for lists and mappings, else itself."""
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
    kind = re.sub(r"^(?:typing\.)?Optional\[(.*)\]$", r"\1 | None", kind.strip("'\" "))
    alternatives = re.split(r"\|(?![^\[]*\])", kind)  # at each bar outside of brackets
    if len(alternatives) > 1:
        tried = [_fit(value, part) for part in alternatives]
        return next((answer for answer in tried if answer[0]), (False, value))

    items = re.fullmatch(r"(?:list|List|Sequence|tuple)\[(.*?)(?:, *\.\.\.)?\]", kind)
    if items:
        if not isinstance(value, list | tuple):
            return False, value
        answers = [_fit(item, items[1]) for item in value]
        return all(fits for fits, _ in answers), [converted for _, converted in answers]

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
    known = {"bool": bool, "str": str, "dict": dict}.get(kind.partition("[")[0])
    return known is None or isinstance(value, known), value
