"""A project of one or two tiny notebooks in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner, Result
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from aftlib.command import batch, cli
from aftlib.command.documents import DOCUMENTS, Document
from tests import tiny_package

ROOT = Path(__file__).parents[2]
PARAMETERS = """\
m = 4  # number of workers
epsilons = [0.65, 0.7]  # tolerances
path: str | None = None  # a file of your own"""
CHECK = """\
from tests.tiny_package import CLAIMS, NotebookParameters
from aftlib.notebook.scorecard import Scorecard
p = NotebookParameters.of(globals())"""
FIGURE = """\
import plotly.graph_objects as go
go.Figure(go.Scatter(x=[1, 2, m], y=[1, 4, 9]), layout={"title": "</script> squares"})"""
COMPUTED = """\
from IPython.display import display
from aftlib.notebook.style import caption, prose
display(prose(f"There are *{m}* workers."))
print("between")
caption(f"At $m = {m}$, `m * m` is {m * m}.")"""
GOOD = [
    new_markdown_cell("# A tiny run of $\\varepsilon$\n\nThe *first* paragraph, $x<1$."),
    new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
    new_code_cell(CHECK),
    new_code_cell(FIGURE),
    new_markdown_cell("Squares.", metadata={"tags": ["caption"]}),
    new_code_cell(COMPUTED),
    new_markdown_cell("$$\\frac{1}{2} \\tag{7}$$"),
    new_code_cell("import sys\nprint('a warning', file=sys.stderr)"),
    new_code_cell("Scorecard(CLAIMS, globals())"),
]
BAD = [
    new_markdown_cell("# A failure"),
    new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
    new_code_cell("print('before')"),
    new_code_cell("m / 0"),
    new_code_cell("print('after')"),
]


@pytest.fixture
def home(tmp_path):
    """Make a project of one notebook, whose document is the only one."""
    with project(tmp_path) as root:
        yield root


@contextmanager
def project(folder: Path) -> Iterator[Path]:
    """Make the project of `home` in a folder, and leave it as the only one while it is open."""
    root = folder / "home of x"
    (root / "notebooks").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    write_notebook(root, GOOD)
    known = list(DOCUMENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AFT_HOME", str(root))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.setattr(batch, "library_hash", lambda: "the library")
        patch.setitem(vars(tiny_package), "CLAIMS", list(tiny_package.CLAIMS))
        DOCUMENTS[:] = [Document("D1", "Tiny", "nobody", "01_tiny", tiny_package)]
        yield root
        DOCUMENTS[:] = known


def write_notebook(root: Path, cells: list[nbformat.NotebookNode]) -> Path:
    path = root / "notebooks" / "01_tiny.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return path


def aft(*arguments: object) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(cli.main, [*map(str, arguments)])
