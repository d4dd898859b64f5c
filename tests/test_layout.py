"""The rules of the layout and of the style, read from the sources."""

import ast
from pathlib import Path

import pytest

import aftlib

LIBRARY = Path(aftlib.__file__).parent
LIBRARIES = ["core", "guard", "spark", "streaming"]
DOCUMENTS = [
    "approximately_once",
    "checkpoint_planning",
    "shared_state",
    "upstream_backup",
    "exponential_histogram",
]
TOOLS = ["sensor_plans", "recovery_comparison", "command"]
ORDER = [*LIBRARIES, "notebook", "documents", *TOOLS]
TOP = {"__init__.py", "__main__.py"}
FILES = sorted(path.relative_to(LIBRARY).as_posix() for path in LIBRARY.rglob("*.py"))


def imported(file):
    """Modules that a file imports anywhere, those inside functions included."""
    for node in ast.walk(ast.parse((LIBRARY / file).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import hides where it leads"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_folder_is_a_known_package():
    assert {file.split("/")[0] for file in FILES} <= {*TOP, *ORDER}


@pytest.mark.parametrize("file", [file for file in FILES if file not in TOP])
def test_a_package_imports_only_what_stands_above_it(file):
    here = file.split("/")[0]
    for name in imported(file):
        there = (name.split(".") + [""])[1] if name.startswith("aftlib.") else ""
        if there in ORDER and there != here:
            assert ORDER.index(there) < ORDER.index(here), name


def test_no_document_imports_another():
    for file in FILES:
        here = set(file.split("/")) & set(DOCUMENTS)
        for name in imported(file) if here else []:
            assert not set(name.split(".")) & set(DOCUMENTS) - here, f"{file}: {name}"


def test_there_is_no_import_cycle():
    """Counted over all imports, those inside functions included."""
    modules = {
        file.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for file in FILES
    }
    names = {f"aftlib.{module}" for module in modules}
    graph = {}
    for file in FILES:
        here = "aftlib." + file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        graph[here] = {name for name in imported(file) if name in names} - {here}
    while free := [module for module, targets in graph.items() if not targets & graph.keys()]:
        for module in free:
            del graph[module]
    assert graph == {}


def test_core_imports_neither_spark_nor_figures():
    tops = {
        name.split(".")[0] for file in FILES if file.startswith("core/") for name in imported(file)
    }
    assert not tops & {"pyspark", "plotly", "papermill", "nbformat", "pydantic"}


def test_every_module_is_short():
    lines = {file: len((LIBRARY / file).read_text().splitlines()) for file in FILES}
    assert {file for file, count in lines.items() if count > 400} == set()


def is_pair(node):
    """Whether an assignment has a tuple display on both sides, and is no swap."""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)):
        return False
    displays = [target for target in node.targets if isinstance(target, ast.Tuple)]
    values = {ast.unparse(value) for value in node.value.elts}
    return any({ast.unparse(name) for name in display.elts} != values for display in displays)


def find_pairs(text):
    """Lines of the assignments `a, b = x, y` of unrelated values."""
    return [node.lineno for node in ast.walk(ast.parse(text)) if is_pair(node)]


def find_skips(text):
    """Lines with `# fmt: skip` that end no table: a display of a list, a tuple or a dictionary."""
    tables = {
        node.end_lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.List | ast.Tuple | ast.Dict) and node.end_lineno > node.lineno
    }
    lines = enumerate(text.splitlines(), 1)
    return [number for number, line in lines if "# fmt: skip" in line and number not in tables]


def find_percentages(text):
    """Lines of f-strings with a format such as `:.0%`, which leaves no blank before the sign."""
    formats = [
        part.format_spec
        for part in ast.walk(ast.parse(text))
        if isinstance(part, ast.FormattedValue) and part.format_spec
    ]
    return [spec.lineno for spec in formats if ast.unparse(spec).rstrip("'\"").endswith("%")]


@pytest.mark.parametrize(
    ("find", "text", "lines"),
    [
        (find_pairs, "a, b = 1, 2\na, b = b, a\na, b = both()\na = 1, 2", [1]),
        (find_pairs, "A, B = BOTH = 1, 2\nfor a, b in both():\n    a.x, b = 1, 2", [1, 3]),
        (find_skips, "ROWS = [\n    (1, 2), (3, 4),\n]  # fmt: skip", []),
        (find_skips, "ROWS = [(1, 2), (3, 4)]  # fmt: skip", [1]),
        (find_skips, "draw(\n    1, 2,\n)  # fmt: skip", [3]),
        (find_percentages, 'f"{share:.0%} of"\nf"{percent(share)} of"\nf"{a:.2f}% of"', [1]),
    ],
)
def test_a_breach_of_the_style_is_seen(find, text, lines):
    assert find(text) == lines


@pytest.mark.parametrize("file", FILES)
def test_a_statement_does_one_thing_and_the_formatter_lays_it_out(file):
    text = (LIBRARY / file).read_text()
    assert find_pairs(text) == [], "one statement per value"
    assert find_skips(text) == [], "only a table may be laid out by hand"
    assert find_percentages(text) == [], "`percent` writes shares"
