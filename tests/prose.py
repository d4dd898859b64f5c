"""Numbers in a notebook's sentences, and the numbers that its run supports."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from html import unescape
from typing import Any

import nbformat

from aftlib.command.data import read_figure
from aftlib.command.pages import PLOTLY, text_kind
from aftlib.notebook.scorecard import MIME

NUMBER = re.compile(
    r"(?<![\w.,/^])[−-]?(?:\d[\d,]*)?\.?\d+(?:e-?\d+)?(?![\w⁰¹²³⁴⁵⁶⁷⁸⁹.]*[A-Za-z⁰¹²³⁴⁵⁶⁷⁸⁹/])"
)
WORDS = ["three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
#: What is no statement on a run: formulas, code, links, and places in a document.
SKIPPED = re.compile(
    r"\$\$.*?\$\$|\$[^$]*\$|```.*?```|`[^`]*`|\]\([^)]*\)"
    r"|\b(?:[Ff]igs?\.|[Tt]ables?|[Ss]ections?|[Ee]quations?|eqs?\.)\s*\(?\d[\d.]*\)?"
    r"(?:(?:\s*,|\s+and|\s+to|–)\s*\(?\d[\d.]*\)?)*"
    r"|\b(?:[Rr]eports?|[Nn]otebooks?) 0\d\b|\bns-3\b|\b1 − δ"
    r"|\(\d+(?:, \d+)*\)|\b[DGP]\d?-?\d+\b|<[^>]*>",
    re.DOTALL,
)


def numbers_in(text: str) -> list[str]:
    """Return the numbers of a text as printed, and those from three to twelve as words."""
    plain = SKIPPED.sub(" ", text)
    words = [word for word in re.findall(r"[a-z]+", plain.lower()) if word in WORDS]
    return NUMBER.findall(plain) + words


def value_of(printed: str) -> float:
    """Return the value of a printed number."""
    if printed in WORDS:
        return 3.0 + WORDS.index(printed)
    return float(printed.replace(",", "").replace("−", "-"))


def is_supported(printed: str, values: Iterable[float]) -> bool:
    """Whether one of the values, or a share as a percentage, is printed like this."""
    mantissa, _, exponent = ("", "", "") if printed in WORDS else printed.partition("e")
    half = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) * (1 + 1e-6)
    wanted = abs(value_of(printed))
    return any(abs(abs(v) * scale - wanted) <= half for v in values for scale in (1, 100))


def typed_texts(content: nbformat.NotebookNode) -> Iterator[str]:
    """Yield the texts that are typed into a notebook: its cells of Markdown and captions."""
    for cell in content.cells:
        if cell.cell_type == "markdown":
            yield cell.source
        else:
            yield from texts_of(cell, "caption", "prose")


def texts_of(cell: nbformat.NotebookNode, *names: str) -> list[str]:
    """Return the texts that a cell of code gives to functions called `names`, with values as "…".

    A text that a function returns is tested with its package.

    >>> texts_of(nbformat.v4.new_code_cell("caption(f'At {m:.2f} it {verb(1, 2)}.')"), "caption")
    ['At … it ….']
    """
    if cell.cell_type != "code":
        return []
    calls = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)]
    texts = [call.args[0] for call in calls if getattr(call.func, "id", "") in names]
    return [typed_part(text) for text in texts if not isinstance(text, ast.Call)]


def typed_part(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(typed_part, node.values))
    return node.value if isinstance(node, ast.Constant) else "…"


def computed(content: nbformat.NotebookNode) -> Iterator[str]:
    """Yield the texts that a run's cells made."""
    for output in outputs(content):
        if text_kind(output):
            yield output["data"]["text/markdown"]


def outputs(content: nbformat.NotebookNode) -> Iterator[nbformat.NotebookNode]:
    for cell in content.cells:
        yield from cell.get("outputs", [])


def shown_values(content: nbformat.NotebookNode, parameters: Mapping[str, Any]) -> list[float]:
    """Return the numbers of parameters, tables, printed lines and claims of a run."""
    values = [*flatten(parameters)]
    for output in outputs(content):
        data = output.get("data", {})
        if MIME in data:
            values += flatten(data[MIME])
        elif not text_kind(output) and PLOTLY not in data:
            text = output.get("text", "") + re.sub(r"<[^>]*>", " ", data.get("text/html", ""))
            values += [value_of(number) for number in NUMBER.findall(unescape(text))]
    return values


def drawn_values(content: nbformat.NotebookNode) -> list[float]:
    """Return the numbers that a run's figures show."""
    values: list[float] = []
    for output in outputs(content):
        if figure := output.get("data", {}).get(PLOTLY):
            frame = read_figure(figure)
            values += flatten([figure["layout"].get("title"), figure["layout"].get("annotations")])
            values += flatten(frame.astype(object).to_numpy().ravel().tolist())
    return values


def flatten(value: Any) -> Iterator[float]:
    """Yield all numbers in a value of JSON, those in its texts included."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        if math.isfinite(value):
            yield float(value)
    elif isinstance(value, str):
        yield from (value_of(number) for number in numbers_in(value))
    else:
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from flatten(part)
