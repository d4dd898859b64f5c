"""Mutants of a package: small mistakes in its code, one at a time, that its tests should notice.

    make mutants PACKAGE=shared_state        ten minutes of them, in a seeded order
    make mutants PACKAGE=core ARGS="--seconds 60 --seed 2 --only gaussian.py"

Works in a copy of the project. A mutant is killed by a test that fails, or that takes far longer
than without it; those that survive are printed. Only tests without Spark and kills are run.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax"}
NAMES |= {"argmax": "argmin", "floor": "ceil", "ceil": "floor"}
COPIED = ("aftlib", "tests", "notebooks", "benchmarks", "docs")
CALM = "not spark and not crash and not slow"


def changes(source: str) -> Iterator[tuple[int, str, str, str]]:
    """Every mutant of `source`: line, what stood there, what stands there now, the whole text.

    Left alone are annotations, messages of errors, and what a `TYPE_CHECKING` guards.
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
    """Change `node` in place in each way there is; call what is yielded to undo it."""

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
    found = [p for p in others if named in p.read_text(encoding="utf-8")]
    return [str(p.relative_to(root)) for p in ([own] if own.exists() else []) + sorted(found)]


def survivors(
    package: str, root: Path, seconds: float, seed: int, only: str = ""
) -> tuple[int, list[str]]:
    """Number of mutants that were tried within about `seconds`, and those that nobody noticed."""
    modules = sorted((root / "aftlib" / package).rglob("*.py"))
    modules = [m for m in modules if m.name != "figures.py" and only in m.name]
    pool = [(m, *change) for m in modules for change in changes(m.read_text(encoding="utf-8"))]
    random.Random(seed).shuffle(pool)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider"]
    command += ["-m", CALM, *tests_of(package, root)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": root}
    quiet["env"] = os.environ | {"PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(root / ".numba")}
    begun = time.monotonic()
    if subprocess.run(command, **quiet).returncode:
        sys.exit(f"the tests of {package} fail without any mutant: {' '.join(command[2:])}")
    patience = 10 + 3 * (time.monotonic() - begun)
    tried, alive = 0, []
    for module, line, before, after, text in pool:
        if time.monotonic() - begun > seconds:
            break
        kept = module.read_text(encoding="utf-8")
        module.write_text(text, encoding="utf-8")
        # Python takes a file of the same second and size for the one that it has compiled, and
        # numba keeps kernels of other files with what they call in this one
        os.utime(module, (tried, tried))
        place = quiet["env"]["NUMBA_CACHE_DIR"] + f"-{tried}" * ("jit(" in text)
        try:
            own = quiet | {"env": quiet["env"] | {"NUMBA_CACHE_DIR": place}}
            survived = subprocess.run(command, timeout=patience, **own).returncode == 0
        except subprocess.TimeoutExpired:
            survived = False
        module.write_text(kept, encoding="utf-8")
        tried += 1
        if survived:
            alive.append(f"{module.relative_to(root)}:{line}: {before}  →  {after}")
            print(alive[-1], flush=True)
    return tried, alive


def main(arguments: list[str]) -> None:
    """Try mutants of a package of this project in a copy of it."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("package")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="modules whose file name holds this")
    asked = parser.parse_args(arguments)
    here = Path(__file__).parents[1]
    if not list((here / "aftlib" / asked.package).glob("*.py")):
        parser.error(f"no package {asked.package!r} in aftlib")
    with tempfile.TemporaryDirectory(prefix="aft-mutants-") as scratch:
        root = Path(scratch)
        made = shutil.ignore_patterns("_build", "__pycache__")
        for name in COPIED:
            shutil.copytree(here / name, root / name, ignore=made)
        (root / "data").mkdir()
        for path in [*here.iterdir(), *(here / "data").iterdir()]:
            if path.is_file():
                shutil.copy2(path, root / path.relative_to(here))
        tried, alive = survivors(asked.package, root, asked.seconds, asked.seed, asked.only)
    print(f"{asked.package}: {len(alive)} of {tried} mutants survived")


if __name__ == "__main__":
    main(sys.argv[1:])
