"""Mutants of a package: small mistakes in its code, one at a time, that its tests should notice.

    make mutants PACKAGE=shared_state        ten minutes of them, in a seeded order
    make mutants PACKAGE=core ARGS="--seconds 60 --seed 2 --only gaussian.py"

Works in a copy of the project. First the tests run once to see which of them execute which line. A
mutant is killed by one of these that fails, or that takes far longer than without it; those that
survive are printed. Only tests without Spark and kills are run.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import coverage
import numba.core.config
import pytest

SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax"}
NAMES |= {"argmax": "argmin", "floor": "ceil", "ceil": "floor"}
COPIED = ("aftlib", "tests", "notebooks", "benchmarks", "docs", "reports/pictures")
CALM = "not spark and not crash and not slow"
LARGE = (
    "hypothesis",
    "pandas",
    "plotly.graph_objects",
    "pyspark.sql",
    "scipy.stats",
)
"""Libraries that are imported once, before the tests of each mutant run in a fork."""
LONGEST = 20.0
"""CPU seconds of tests after which a mutant counts as a survivor."""


def changes(source: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield every mutant of `source`: line, old code, new code, the whole text.

    Annotations, error messages and code under `TYPE_CHECKING` are not changed.
    """
    tree = ast.parse(source)
    for node in _code(tree):
        before = ast.unparse(node).partition("\n")[0]
        for undo in _mutated(node):
            yield node.lineno, before, ast.unparse(node).partition("\n")[0], ast.unparse(tree)
            undo()


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below `node` that are worth changing."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Raise):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or "TYPE_CHECKING" in ast.unparse(child)[:20]:
                continue
            yield child
            yield from _code(child)


def _mutated(node: ast.AST) -> Iterator:
    """Make each possible change to `node` in place; call the yielded function to undo it."""

    def changed(owner: ast.AST, name: str, value: object):
        old = getattr(owner, name)
        setattr(owner, name, value)
        return lambda: setattr(owner, name, old)

    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield changed(node, "ops", [SWAPS[type(op)]()])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPS:
            yield changed(node, "op", SWAPS[type(op)]())
        case ast.UnaryOp(op=ast.USub()):
            yield changed(node, "op", ast.UAdd())
        case ast.UnaryOp(op=ast.Not()):
            yield changed(node, "operand", ast.UnaryOp(ast.Not(), node.operand))
        case ast.Constant(value=bool() as value):
            yield changed(node, "value", not value)
        case ast.Constant(value=int() | float() as value):
            yield changed(node, "value", value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            yield changed(node.func, "id", NAMES[name])
        case ast.Call(func=ast.Attribute(attr=name)) if name in NAMES:
            yield changed(node.func, "attr", NAMES[name])
        case ast.If() | ast.IfExp() | ast.While():
            yield changed(node, "test", ast.UnaryOp(ast.Not(), node.test))


def tests_of(package: str, root: Path) -> list[str]:
    """The package's own tests, and those elsewhere that import it."""
    own = root / "tests" / package
    named = f"aftlib.{package}"
    others = (p for p in (root / "tests").rglob("test_*.py") if not p.is_relative_to(own))
    files = [p for p in others if named in p.read_text(encoding="utf-8")]
    return [str(p.relative_to(root)) for p in ([own] if own.exists() else []) + sorted(files)]


class Reached:
    """Plugin of pytest that records the tests that execute each line, and each test's duration.

    Lines that run in the set-up of a shared fixture count for all tests of that file.
    """

    def __init__(self, package: Path) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.trace = coverage.Coverage(data_file=None, source=[str(package)], config_file=False)
        self.trace.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator:
        start = time.process_time()
        self.trace.switch_context(item.nodeid)
        result = yield
        self.trace.switch_context("")
        self.seconds[item.nodeid] = time.process_time() - start
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(f"{report.nodeid}: {report.longreprtext}")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef, request: Any) -> Iterator:
        if fixturedef.scope == "function":
            return (yield)
        test = request._pyfuncitem.nodeid
        self.trace.switch_context(test.partition("::")[0])
        result = yield
        self.trace.switch_context(test)
        return result

    def result(self, root: Path) -> dict:
        """Seconds of each test, failures; of each file and line, the tests or files reaching it."""
        self.trace.stop()
        data = self.trace.get_data()
        lines = {
            str(Path(file).relative_to(root)): {
                str(line): [each for each in contexts if each]
                for line, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        return {"seconds": self.seconds, "failed": self.failed, "lines": lines}


class Chosen:
    """Plugin of pytest that selects these tests, in this order; all, if their names changed."""

    def __init__(self, tests: list[str]) -> None:
        self.turns = {test: turn for turn, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self.turns]
        items[:] = sorted(chosen, key=lambda item: self.turns[item.nodeid]) or items


def run_tests(
    root: Path,
    tests: list[str],
    cpu_seconds: float,
    kernels: str = ".numba",
    reached: Path | None = None,
) -> int:
    """Run tests in a fork of this process, which has the large libraries; pytest's exit code.

    -1 if they take more CPU seconds, or ten times as long by the clock. numba stores
    compiled code in the folder `kernels`. `reached` is a file for the records of `Reached`.
    """
    child = os.fork()
    if not child:
        os.setsid()
        os.chdir(root)
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        limit = int(cpu_seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        for name in [name for name in sys.modules if name.split(".")[0] in ("aftlib", "tests")]:
            del sys.modules[name]
        sys.path.insert(0, str(root))
        os.environ |= {"PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(root / kernels)}
        numba.core.config.reload_config()
        plugin = Reached(reached.parent) if reached else Chosen(tests)
        options = ["-q", "-n0", "-p", "no:cacheprovider", "-m", CALM, *["-x"] * (not reached)]
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        code = pytest.main([*options, *files], [plugin])
        if reached:
            reached.write_text(json.dumps(plugin.result(root)))
        os._exit(code)
    until = time.monotonic() + 10 * cpu_seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid or time.monotonic() > until:
            break
        time.sleep(0.01)
    with suppress(ProcessLookupError):  # itself, and processes that its tests left behind
        os.killpg(child, signal.SIGKILL)
    if not pid:
        os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if pid and os.WIFEXITED(status) else -1


def tests_for(line: int, lines: dict[str, list[str]], seconds: dict[str, float]) -> list[str]:
    """Tests that may notice a mutant in this line, the fastest first.

    For a line that no test is known to execute, these are all tests that reach its module, or else
    all. Such a line runs in another process, is compiled by numba, or lies outside functions, where
    it runs before any test.
    """
    named = {*lines.get(str(line), ())} or {name for line in lines.values() for name in line}
    tests = {test for test in seconds if test in named or test.partition("::")[0] in named}
    return sorted(tests or seconds, key=lambda test: (seconds[test], test))


def survivors(
    package: str, root: Path, seconds: float, seed: int, only: str = "", most: int | None = None
) -> tuple[int, list[str]]:
    """Return the number of mutants tried within about `seconds`, and those that survived.

    The tests that reach a mutant's line are run on it, up to `LONGEST` CPU seconds of them.
    """
    modules = sorted((root / "aftlib" / package).rglob("*.py"))
    modules = [m for m in modules if m.name != "figures.py" and only in m.name]
    pool = [(m, *change) for m in modules for change in changes(m.read_text(encoding="utf-8"))]
    random.Random(seed).shuffle(pool)
    start, reached = time.monotonic(), root / "aftlib" / package / "reached.json"
    code = run_tests(root, tests_of(package, root), 3600, reached=reached)
    report = json.loads(reached.read_text()) if reached.exists() else {"failed": []}
    if code:
        failed = "\n\n".join(report["failed"]) or f"pytest ended with {code}"
        sys.exit(f"the tests of {package} fail without any mutant:\n\n{failed}")
    count, alive = 0, []
    for module, line, before, after, text in pool[:most]:
        if time.monotonic() - start > seconds:
            break
        original, name = module.read_text(encoding="utf-8"), str(module.relative_to(root))
        module.write_text(text, encoding="utf-8")
        # Python does not recompile a file with the same second and size, and numba stores
        # kernels of other files together with the functions that they call in this file
        os.utime(module, (count, count))
        kernels = ".numba" + f"-{count}" * ("jit(" in text)
        chosen, total = [], 0.0
        for test in tests_for(line, report["lines"].get(name, {}), report["seconds"]):
            total += report["seconds"][test]
            if chosen and total > LONGEST:
                break
            chosen.append(test)
        survived = run_tests(root, chosen, 60 + 3 * total, kernels) == 0
        module.write_text(original, encoding="utf-8")
        count += 1
        if survived:
            alive.append(f"{name}:{line}: {before}  →  {after}")
            print(alive[-1], flush=True)
    return count, alive


def copy_project(here: Path, root: Path) -> None:
    """Copy to the folder `root` the files that the tests read of the project in `here`."""
    ignore = shutil.ignore_patterns("_build", "__pycache__")
    for name in COPIED:
        shutil.copytree(here / name, root / name, ignore=ignore)
    (root / "data").mkdir()
    for path in [*here.iterdir(), *(here / "data").iterdir(), here / "reports" / "README.md"]:
        if path.is_file():
            shutil.copy2(path, root / path.relative_to(here))


def main(arguments: list[str]) -> None:
    """Try mutants of a package of this project in a copy of it."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("package")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, help="mutants to try")
    parser.add_argument("--only", default="", help="modules whose file name holds this")
    options = parser.parse_args(arguments)
    here = Path(__file__).parents[1]
    if not list((here / "aftlib" / options.package).glob("*.py")):
        parser.error(f"no package {options.package!r} in aftlib")
    with tempfile.TemporaryDirectory(prefix="aft-mutants-") as scratch:
        root = Path(scratch)
        copy_project(here, root)
        for library in LARGE:
            import_module(library)
        count, alive = survivors(
            options.package, root, options.seconds, options.seed, options.only, options.most
        )
    print(f"{options.package}: {len(alive)} of {count} mutants survived")


if __name__ == "__main__":
    main(sys.argv[1:])
