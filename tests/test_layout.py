"""The layout's rules, read from the imports: a package imports only packages above it."""

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
