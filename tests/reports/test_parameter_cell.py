from __future__ import annotations

import re

import nbformat
import papermill
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from aftlib.reports.notebook import Notebook, find_notebook
from aftlib.reports.parameter_cell import Parameter, read_parameters
from tests.refusals import refused
from tests.tiny_project import write_notebook


def parse(source: str) -> dict[str, Parameter]:
    cell = new_code_cell(source, metadata={"tags": ["parameters"]})
    return read_parameters(new_notebook(cells=[cell]))


def test_parameters_agree_with_papermills_where_that_can_read_them(tmp_path):
    source = "m = 4  # workers\ndelta: float = 0.05  # share\nnames = ['a', 'b']\nlabel = 'x'"
    content = new_notebook(
        cells=[new_code_cell(source, metadata={"tags": ["parameters"]})],
        metadata={"kernelspec": {"name": "python3", "language": "python", "display_name": "x"}},
    )
    nbformat.write(content, tmp_path / "n.ipynb")
    theirs = papermill.inspect_notebook(tmp_path / "n.ipynb")
    ours = read_parameters(content)
    assert list(ours) == list(theirs)
    assert [p.help for p in ours.values()] == [p["help"] for p in theirs.values()]
    assert [repr(p.default) for p in ours.values()] == [p["default"] for p in theirs.values()]


def test_parameters_that_papermill_misses_are_read():
    known = parse(
        "path: str | None = None  # a file\n"
        "# tolerances,\n# smallest first\neps = [\n  0.65,\n  0.7,\n]\n"
        "root = 2 ** 0.5\nx.y = 3\na, b = 1, 2\npair = (1, 2)\nonly: int\nprint(eps)"
    )
    assert known == {
        "path": Parameter("path", "str | None", None, "a file"),
        "eps": Parameter("eps", "list[float]", [0.65, 0.7], "tolerances, smallest first"),
        "root": Parameter("root", "Any", "2 ** 0.5", ""),
        "pair": Parameter("pair", "list[float]", [1, 2], ""),
    }


def test_a_parameters_cell_with_a_magic_is_refused():
    with pytest.raises(
        ValueError, match=r"plain Python, got '%time m = 2' in line 2 .*: put magic"
    ):
        parse("m = 4\n%time m = 2")


def test_a_notebook_without_a_parameters_cell_has_none():
    assert read_parameters(new_notebook(cells=[new_code_cell("m = 1")])) == {}


READ = {
    "int": [("10", 10), ("1e6", 1_000_000), (3.0, 3)],
    "float": [("1", 1.0), (".05", 0.05)],
    "float | None": [("null", None)],
    "str": [("10", "10"), ("a=b", "a=b")],
    "str | None": [("None", "None")],
    "bool": [("true", True), ("False", False)],
    "list[float]": [("[.65, 1]", [0.65, 1.0]), ("(1, 2)", [1.0, 2.0])],
    "list[str]": [("[D1, D2]", ["D1", "D2"])],
    "list[int | None]": [("[1, null]", [1, None])],
    "tuple[int, ...]": [([1, 2], [1, 2])],
    "list": [("[]", [])],
    "dict": [("{a: 1}", {"a": 1})],
    "dict[str, int]": [("{a: 1}", {"a": 1})],
    "Optional[int]": [("5", 5)],
    "typing.Optional[list[int]]": [("null", None)],
    "Any": [("12:30", "12:30"), ("5", 5), ("null", None), ("[1, 2", "[1, 2")],
    "Path": [("a/b", "a/b")],
}


@pytest.mark.parametrize(
    ("kind", "given", "wanted"), [(kind, *pair) for kind, pairs in READ.items() for pair in pairs]
)
def test_values_are_read_as_the_parameter_wants_them(kind, given, wanted):
    value = Parameter("p", kind, None, "").check(given)
    assert value == wanted
    assert type(value) is type(wanted)


WRONG = {
    **{"int": ["1.5", "true", "ten"], "float": ["[1]"], "list[float]": ["0.65", "[a]"]},
    **{"bool": ["1"], "str": [5], "list": ["x"], "dict": ["[1]"], "int | None": ["x"]},
}

test_a_value_of_another_type_is_an_error = refused(
    lambda kind, given: Parameter("p", kind, 7, "workers").check(given),
    *(
        (kind, value, rf"p wants {re.escape(kind)}, got .*; its default is 7 \(workers\)")
        for kind, values in WRONG.items()
        for value in values
    ),
)


def test_an_unknown_parameter_lists_the_known(home):
    with pytest.raises(
        ValueError, match=r"has no parameter 'mm', perhaps 'm'; known are:\n  m: int = 4  # num"
    ):
        find_notebook("1").check({"mm": 1})
    empty = write_notebook(home / "empty.ipynb", [])
    with pytest.raises(ValueError, match=r"no parameter 'm'; it has none \(no cell tagged"):
        Notebook(empty).check({"m": 1})
