"""A notebook as its author wrote it, with its parameters and the key of its runs.

The key is a hash of everything that results depend on: the library's source, the lock file with the
installed versions, the notebook's cells, its parameters, and the contents of the files that
parameters and cells name.
"""

from __future__ import annotations

import ast
import copy
import glob
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import symtable
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

from aftlib.core.checks import require_choice
from aftlib.core.paths import notebooks_dir, project_root
from aftlib.reports.documents import DOCUMENTS
from aftlib.reports.parameter_cell import TAG, Parameter, check_parameters, listing, read_parameters
from aftlib.workbench.parameters import PROFILES, ParameterModel

PACKAGE = Path(__file__).resolve().parents[1]
LOCK = "requirements.lock"
PACKAGES = ("numpy", "pandas", "scipy", "numba", "pyarrow", "pyspark", "plotly")
SETTINGS = ("AFT_MASTER",)  # of the environment: where Spark runs
_NOT_SOURCE = {"templates", "__pycache__"}  # how pages look; what Python and numba compiled


@dataclass(frozen=True)
class Notebook:
    """A notebook file; each property is read once, when it is first used.

    With a `section`, it has only the section's cells and the cells that these need.
    """

    path: Path
    section: str = ""

    @property
    def name(self) -> str:
        """The file's name without ``.ipynb``."""
        return self.path.stem

    @property
    def document(self) -> str | None:
        """The id of the document that the notebook reproduces; None if it reproduces none."""
        return next((d.id for d in DOCUMENTS.values() if d.notebook == self.name), None)

    @cached_property
    def content(self) -> nbformat.NotebookNode:
        """The notebook itself."""
        content = read_notebook(self.path)
        return section_of(content, self.section) if self.section else content

    @cached_property
    def model(self) -> type[ParameterModel] | None:
        """The model of the notebook's parameters; None if the notebook imports none."""
        code = [cell.source for cell in self.content.cells if cell.cell_type == "code"]
        match = re.search(r"^from ([\w.]+) import NotebookParameters$", "\n".join(code), re.M)
        return import_module(match[1]).NotebookParameters if match else None

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The notebook's parameters by name."""
        return read_parameters(self.content)

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return `given` checked against the notebook's parameters; ValueError if one is wrong."""
        return check_parameters(self.parameters, given, self.name)

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of every parameter: the defaults, overlaid by `given`."""
        return {name: p.default for name, p in self.parameters.items()} | dict(given)

    def changed(self, given: Mapping[str, Any], profile: str = "") -> dict[str, Any]:
        """Return the values of `given` that differ from those of `profile` (the defaults)."""
        own = self.values(profile_parameters(profile, self) if profile else {})
        return {name: value for name, value in given.items() if value != own[name]}

    def require_table(self, name: str) -> None:
        """Raise ValueError unless `name` is a variable that a cell assigns, or ``Table N``."""
        cells = [cell for cell in self.content.cells if cell.cell_type == "code"]
        assigned = {known for cell in cells for known in _Names(cell.source).assigned}
        if name not in assigned and not re.fullmatch(r"Table \d+", name):
            near = ", ".join(get_close_matches(name, assigned, 3))
            raise ValueError(
                f"table {name!r} is no variable of notebook {self.name}: give "
                f"{near or 'a name that a cell assigns a data frame to'}"
            )

    @property
    def starts_spark(self) -> bool:
        """Whether a cell imports a module that starts Spark; such notebooks run one at a time."""
        return any("aftlib.spark" in c.source for c in self.content.cells if c.cell_type == "code")

    @property
    def help(self) -> str:
        """A text about each parameter."""
        return self.model.help() if self.model else listing(self.parameters.values())

    def key(self, given: Mapping[str, Any]) -> str:
        """Return the hash of everything that the results of a run with `given` depend on."""
        return run_key(self.content, self.values(given))

    def check_values(self, given: Mapping[str, Any]) -> None:
        """Check the values by the parameters' model, before a kernel or Spark is started."""
        if self.model is not None:
            self.model(**self.values(given))


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Return the content of the notebook at `path`; ValueError when the file is no notebook."""
    try:
        return nbformat.read(path, as_version=4)
    except (OSError, nbformat.reader.NotJSONError, nbformat.ValidationError) as error:
        raise ValueError(f"{str(path)!r} is not a readable notebook: {error}") from error


def all_notebooks() -> list[Notebook]:
    """Return the project's numbered notebooks in order."""
    return [Notebook(path) for path in sorted(notebooks_dir().glob("[0-9][0-9]_*.ipynb"))]


def find_notebook(wanted: str, section: str = "") -> Notebook:
    """Return the notebook called `wanted`: a name, a number, a document's id, or a file's path.

    With a `section`, return only that part of the notebook, see `section_of`.
    """
    known = all_notebooks()
    for notebook in known:
        number = notebook.name.split("_")[0]
        names = {notebook.name, number, number.lstrip("0"), (notebook.document or "").lower()}
        if wanted.strip().lower().removesuffix(".ipynb") in names - {""}:
            return Notebook(notebook.path, section)
    if Path(wanted).is_file():
        return Notebook(Path(wanted).resolve(), section)
    called = [n.name + (f" ({n.document})" if n.document else "") for n in known]
    raise ValueError(
        f"no notebook {wanted!r}: give a path, or a name, number or document of "
        f"{', '.join(called) or 'none at all'}"
    )


def profile_parameters(profile: str, notebook: Notebook) -> dict[str, Any]:
    """Return the parameters of `notebook` that `profile` sets; none for a notebook without a model.

    ValueError for an unknown profile.
    """
    require_choice("profile", profile, PROFILES)
    return notebook.model.profile(profile) if notebook.model else {}


def section_of(content: nbformat.NotebookNode, wanted: str) -> nbformat.NotebookNode:
    """Return the notebook with one section only, and the cells that the section needs.

    Parameters
    ----------
    content
        A notebook. Its first cell and the cells that check its parameters always stay.
    wanted
        A heading, or words that only one heading has; or a variable, for the cells that make its
        last value. Case does not matter in headings.

    Raises
    ------
    ValueError
        When no heading or variable fits, or several headings do.

    Notes
    -----
    A cell is needed if it assigns or changes a name that a needed cell reads. A statement whose
    value is not used counts as a change of all names in it that are not imported; a change through
    another name of the same object is not seen. A cell that reads ``globals()``, such
    as a scorecard, needs all cells before it.
    """
    cells = content.cells
    names = {i: _Names(cell.source) for i, cell in enumerate(cells) if cell.cell_type == "code"}
    heads = _headings(cells)
    variable = wanted not in heads and any(wanted in used.assigned for used in names.values())
    chosen = set() if variable else _cells_below(wanted, heads, len(cells))
    modules = {name for used in names.values() for name in used.imported}
    always = {i for i in names if TAG in cells[i].metadata.get("tags", [])}
    always |= {i for i, used in names.items() if "NotebookParameters" in used.imported}

    needed, positions, everything = {wanted} if variable else set(), {0, *chosen}, False
    for i in sorted(names, reverse=True):
        used = names[i]
        gives = used.assigned | used.changed | (used.called - modules)
        if i in chosen | always or everything or needed & gives:
            positions.add(i)
            needed = (needed - used.certain) | used.read
            everything |= "globals" in used.read and i not in always
    part = copy.copy(content)
    part.cells = [cells[i] for i in sorted(positions)]
    return part


class _Names:
    """The names that a cell reads before it assigns them, and those that later cells can use."""

    def __init__(self, source: str) -> None:
        self.read, self.assigned, self.changed = set[str](), set[str](), set[str]()
        self.imported, self.certain = set[str](), set[str]()  # certain: assigned in every case
        self.called = set[str]()  # in a statement whose value is not used
        statements = ast.parse(TransformerManager().transform_cell(source)).body
        for statement in statements:
            table = symtable.symtable(ast.unparse(statement), "cell", "exec")
            read = {*_read(table)}
            imported = {name.get_name() for name in table.get_symbols() if name.is_imported()}
            assigned = {name.get_name() for name in table.get_symbols() if name.is_assigned()}
            changed = {name for node in ast.walk(statement) for name in _changed(node)}
            if isinstance(statement, ast.Expr) and statement is not statements[-1]:
                self.called |= read
            self.read |= (read | changed) - self.certain
            self.assigned |= assigned | imported
            self.changed |= changed
            self.imported |= imported
            if not isinstance(statement, ast.If | ast.For | ast.While | ast.Try | ast.Match):
                self.certain |= assigned | imported


def _read(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the global names that a scope, and the scopes inside it, read."""
    top = table.get_type() == "module"
    for name in table.get_symbols():
        if name.is_referenced() and (top or name.is_global()):
            yield name.get_name()
    for inner in table.get_children():
        yield from _read(inner)


def _changed(node: ast.AST) -> Iterator[str]:
    """Yield the names whose values a node changes in place."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        inner = node.value
        while isinstance(inner, ast.Subscript | ast.Attribute):
            inner = inner.value
        if isinstance(inner, ast.Name):
            yield inner.id


def _headings(cells: list) -> dict[str, tuple[int, int]]:
    """Return the position and the level of each heading but the title."""
    return {
        text: (i, len(mark))
        for i, cell in enumerate(cells)
        if cell.cell_type == "markdown"
        for mark, text in re.findall(r"^(##+) +(.+?) *#*$", cell.source, re.MULTILINE)
    }


def _cells_below(wanted: str, heads: Mapping[str, tuple[int, int]], count: int) -> set[int]:
    """Return the positions of the cells below a heading, of `count` in all."""
    words = wanted.strip().casefold()
    matches = [text for text in heads if words in text.casefold()]
    matches = [text for text in matches if text.casefold() == words] or matches
    if len(matches) != 1:
        raise ValueError(
            f"section {wanted!r} must be a variable or one heading of the notebook: give one of "
            f"{', '.join(map(repr, matches or heads)) or 'none, because it has no headings'}"
        )
    begin, level = heads[matches[0]]
    later = (i for i, depth in heads.values() if i > begin and depth <= level)
    return {*range(begin, next(later, count))}


def title_of(content: nbformat.NotebookNode, otherwise: str) -> str:
    """Return the first heading of a notebook, `otherwise` when it has none."""
    heading = re.search(r"^# +(.+?) *#*$", _prose(content), re.MULTILINE)
    return heading[1] if heading else otherwise


def summary_of(content: nbformat.NotebookNode) -> str:
    """Return the first paragraph of a notebook as Markdown, empty when it has none."""
    paragraphs = re.split(r"\n\s*\n", re.sub(r"^#.*$", "\n", _prose(content), flags=re.MULTILINE))
    return next((p.strip() for p in paragraphs if p.strip()), "")


def _prose(content: nbformat.NotebookNode) -> str:
    return "\n\n".join(cell.source for cell in content.cells if cell.cell_type == "markdown")


def run_key(content: nbformat.NotebookNode, values: Mapping[str, Any]) -> str:
    """Return the key of a run of the notebook `content` with the parameters `values`.

    Files that a cell names by a relative path, and Python files that it may import, count if they
    lie in the working directory, because kernels run there.
    """
    cells = [(c.cell_type, c.source, c.metadata.get("tags", [])) for c in content.cells]
    code = [cell.source for cell in content.cells if cell.cell_type == "code"]
    data = [*Path.cwd().glob("*.py"), *_named_files(code), *values.values()]
    settings = [os.environ.get(name) or None for name in SETTINGS]
    lock = content_hashes(project_root() / LOCK)
    parts = (cells, values, library_hash(), lock, versions(), content_hashes(data), settings)
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def library_hash(package: Path = PACKAGE) -> str:
    """Return the hash of the library's modules and of the data tables in their folders."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package)
        if not _NOT_SOURCE & {*name.parts} and path.is_file():
            state = path.stat()
            digest.update(f"{name} {_content(path, state.st_mtime_ns, state.st_size)}\n".encode())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of Python and of `PACKAGES`; "none" for one that is not installed."""
    by_package = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            by_package[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            by_package[name] = "none"
    return by_package


def content_hashes(value: Any) -> list[str]:
    """Return the hashes of the contents of the files and folders that `value` names.

    `value` is a parameter's value, a list or a mapping of values; texts that name no file give
    nothing. A folder counts with everything in it, also through links.
    """
    if isinstance(value, Mapping):
        return content_hashes([*value.values()])
    if isinstance(value, list | tuple):
        return [digest for part in value for digest in content_hashes(part)]
    if not isinstance(value, str | os.PathLike) or not 0 < len(os.fspath(value)) < 4096:
        return []
    path = Path(value)
    inside = glob.glob("**", root_dir=path, recursive=True, include_hidden=True)
    files = sorted(path / name for name in inside) if path.is_dir() else [path]
    states = {part: part.stat() for part in files if part.is_file()}
    return [
        f"{part.relative_to(path)} {_content(part, state.st_mtime_ns, state.st_size)}"
        for part, state in states.items()
    ]


def _named_files(code: Iterable[str]) -> list[Path]:
    """Return the files that cells name in a text or a magic; runs may change folders."""
    words = {word for cell in code for word in [*re.split(r"[\"'\n]", cell), *cell.split()]}
    short = (word for word in sorted(words) if 0 < len(word) < 1000 and "\0" not in word)
    return [Path(word) for word in short if os.path.isfile(word)]


@lru_cache(maxsize=4096)
def _content(path: Path, *state: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
