"""A project of tiny notebooks in a folder of its own, for the tests of reports and command line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner, Result
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from aftlib.reports import cli
from aftlib.reports.documents import all_claims
from aftlib.reports.runs import Executed
from aftlib.workbench.claims import Finding
from aftlib.workbench.scorecard import ClaimRecord

PARAMETERS = """\
m = 4  # number of workers
epsilons = [0.65, 0.7]  # tolerances
path: str | None = None  # a file of one's own
from tests.tiny_parameters import NotebookParameters"""

FIGURE = """\
import plotly.graph_objects as go
go.Figure(go.Scatter(x=[1, 2, m], y=[1, 4, 9]), layout={"title": "</script> <!-- squares"})"""

CLAIMS = """\
from aftlib.workbench.claims import Claim, Finding
from aftlib.workbench.scorecard import Scorecard
SAYS = ["Greedy assignment works.", "The number of workers rises.", *"abc"]
CLAIMS = [Claim(f"D1-{i}", said, lambda m: Finding(m), expected="a < b", unit="of h-best's lead")
          for i, said in enumerate(SAYS, 1)]
Scorecard(CLAIMS, globals())"""

FIRST = [
    new_markdown_cell(
        "# A *tiny* run of $\\varepsilon$\n\nThe first paragraph, $x<1$, sums it up.\n\n## A figure"
    ),
    new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
    new_code_cell(FIGURE, metadata={"tags": ["picture"]}),
    new_markdown_cell("## Formulas\n\n$$\\frac{1}{2} \\tag{7}$$\n\n## Verdicts"),
    new_code_cell(CLAIMS),
]
SEEDS = "m = 4\nseed = 1\nfrom tests.tiny_parameters import NotebookParameters"
SEEDED = [FIRST[0], new_code_cell(SEEDS, metadata={"tags": ["parameters"]})]
FAILING = [
    new_markdown_cell("# A failure\n\nIt divides by zero."),
    new_code_cell("workers = 2  # workers", metadata={"tags": ["parameters"]}),
    new_code_cell("print('before')"),
    new_code_cell("workers / 0"),
    new_code_cell("print('after')"),
]


def only_tiny_claims(patch: pytest.MonkeyPatch) -> None:
    """Reduce the project's claims to the first five of D1, all recorded as holding."""
    known = all_claims()
    for id, claim in reversed(dict(known).items()):  # put back in the opposite order
        if id in {f"D1-{number}" for number in range(1, 6)}:
            patch.setitem(known, id, replace(claim, recorded="holds"))
        else:
            patch.delitem(known, id)


def settled(id: str, value=1, holds: bool = True, interval=None, note: str = "", **about):
    """Return the record of a finding about the claim `id`, whose other fields `about` replaces."""
    usual = {"expected": 1, "threshold": None, "basis": "measured"}
    claim = replace(all_claims()[id], **usual | about)
    return ClaimRecord.of(claim, Finding(value, interval, note, conditions=holds))


def write_notebook(path: Path, cells: list[nbformat.NotebookNode]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


def make_project(root: Path, **notebooks: list[nbformat.NotebookNode]) -> Path:
    """Make a project folder with `notebooks` by name (n01_x becomes 01_x); return it."""
    (root / "notebooks").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    chosen = notebooks or {"n01_approximately_once": FIRST, "n02_failing": FAILING}
    for name, cells in chosen.items():
        write_notebook(root / "notebooks" / f"{name[1:]}.ipynb", cells)
    return root


def executed(cells, **record) -> Executed:
    """Return an executed notebook made by hand."""
    content = new_notebook(cells=cells)
    content.metadata["aft"] = {
        "name": "01_approximately_once",
        "profile": "quick",
        "parameters": {},
        "given": {},
        "changed": {},
        "key": "",
        "started": "2026-03-01T14:05:00+00:00",
        "versions": {"Python": "3.11"},
        "error": None,
        "seconds": 3725.0,
    } | record
    return Executed(Path("reports/01_approximately_once.ipynb"), content)


def shows(data) -> nbformat.NotebookNode:
    """Return a code cell with one output."""
    return new_code_cell("show()", outputs=[new_output("display_data", data)])


def aft(*arguments: object) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(cli.main, [*map(str, arguments)])


def broken_links(page: Path) -> list[str]:
    """Return the links of a page that lead to no file."""
    links = re.findall(r'(?:src|href)="([^"#]+)', page.read_text())
    assert links, page
    return [to for to in links if not (to.startswith("data:") or (page.parent / to).exists())]
