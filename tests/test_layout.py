"""The layout's rules, read from the imports: which package may import which, and where Spark is."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import aftlib
from aftlib.reports.documents import DOCUMENTS

LIBRARY = Path(aftlib.__file__).parent
PACKAGES = [document.package for id, document in DOCUMENTS.items() if id.startswith("D")]
BELOW = {"core", "workbench", "spark", "guard"}
MAY_IMPORT = {
    "core": set(),
    "workbench": {"core"},
    "spark": {"core"},
    "guard": {"core"},
    "reports": {"core", "workbench", "spark"},
} | {package: BELOW for package in PACKAGES}
# It uses the documents' packages, but only their algorithms.
MAY_IMPORT["sensor_plans"] = {
    *BELOW,
    "reports",
    *("approximately_once", "checkpoint_planning"),
}
# It runs one drill on the documents' packages, their processes and pipelines included.
MAY_IMPORT["failure_drill"] = {*BELOW, "reports", *PACKAGES}
# It measures pipelines of two documents.
MAY_IMPORT["does_it_pay"] = {
    *BELOW,
    "reports",
    *("approximately_once", "checkpoint_planning"),
}
ALGORITHMS = {
    "approximately_once": {"assignment"},
    "checkpoint_planning": {"plan", "replay", "recovery_time"},
}
# Files (or folders) of these names, and these files, may need pyspark to be imported.
ON_SPARK = {"pipeline", "operator", "parallel", "source", "strategies", "pipelined", "driver"}
AT_THE_EDGE = {"spark", "reports/execute.py", "reports/doctor.py"}
# Every package may have these; any other file name occurs in one package only.
REPEATED = {
    *("__init__", "__main__", "experiments", "claims", "figures", "parameters"),
    *("pipeline", "operator", "source", "parallel"),
}
TOP = {"__init__.py", "__main__.py"}
FILES = sorted(path.relative_to(LIBRARY).as_posix() for path in LIBRARY.rglob("*.py"))


def imported(file, everywhere=True):
    """Modules that a file imports: anywhere in it, or only while it is imported itself."""
    pending = [ast.parse((LIBRARY / file).read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import hides where it leads"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        )
        if everywhere or not later:
            pending += ast.iter_child_nodes(node)


def test_every_folder_is_a_known_package():
    assert {file.split("/")[0] for file in FILES} == {*TOP, *MAY_IMPORT}


@pytest.mark.parametrize("file", [file for file in FILES if file not in TOP])
def test_a_package_imports_only_what_lies_below_it(file):
    package = file.split("/")[0]
    known = {name.split(".")[1] for name in imported(file) if name.startswith("aftlib.")}
    assert known <= MAY_IMPORT[package] | {package}


def test_packages_above_the_documents_import_their_algorithms_only():
    imports = [
        name.split(".")
        for file in FILES
        if file.startswith("sensor_plans/")
        for name in imported(file)
        if name.startswith("aftlib.") and name.count(".") >= 2
    ]
    assert {(p[1], p[2]) for p in imports if p[1] in ALGORITHMS} <= {
        (package, module) for package, modules in ALGORITHMS.items() for module in modules
    }


def test_core_imports_neither_spark_nor_figures():
    tops = {
        name.split(".")[0] for file in FILES if file.startswith("core/") for name in imported(file)
    }
    assert not tops & {"pyspark", "plotly", "papermill", "nbformat"}


def test_modules_that_import_spark_say_so_by_their_names():
    users = {
        file for file in FILES if "pyspark" in {n.split(".")[0] for n in imported(file, False)}
    }
    may = {
        file
        for file in FILES
        if file in AT_THE_EDGE
        or file.split("/")[0] in AT_THE_EDGE
        or ON_SPARK & set(file.removesuffix(".py").split("/"))
    }
    assert users - may == set()


def test_a_files_name_says_where_it_is():
    stems = Counter(Path(file).stem for file in FILES if "/experiments/" not in file)
    twice = {stem for stem, count in stems.items() if count > 1}
    assert twice - REPEATED == set()


def test_every_module_is_short():
    lines = {file: len((LIBRARY / file).read_text().splitlines()) for file in FILES}
    assert {file for file, count in lines.items() if count >= 400} == set()


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_the_tests_of_a_package_have_its_folders(package):
    tests = LIBRARY.parent / "tests" / package
    files = [path.relative_to(tests) for path in tests.rglob("test_*.py")]
    assert files
    assert all((LIBRARY / package / file.parent).is_dir() for file in files)
