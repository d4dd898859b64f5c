"""Every notebook is thin, clean and known to the profiles; the smoke profile runs them."""

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from typing import get_type_hints

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from aftlib import Requirement, assign_greedy
from aftlib.core.generators import block_model
from aftlib.reports.data_out import is_caption
from aftlib.reports.documents import DOCUMENTS
from aftlib.reports.notebook import all_notebooks, profile_parameters
from aftlib.reports.parameter_cell import Parameter
from aftlib.workbench.parameters import PROFILES, kind_of

NOTEBOOKS = {notebook.name: notebook for notebook in all_notebooks()}


def code(notebook):
    return [c for c in notebook.content.cells if c.cell_type == "code"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_thin_and_clean(name):
    cells = code(NOTEBOOKS[name])
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    assert sum(cell.source.count("\n") + 1 for cell in cells) <= 150
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in cells) == 1
    assert sum("picture" in cell.metadata.get("tags", []) for cell in cells) == 1
    for node in ast.walk(ast.parse("\n".join(cell.source for cell in cells))):
        assert not isinstance(node, ast.ClassDef)
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno <= 5


def drawing(name):
    """The module that draws a notebook's figures: a small document's `experiments` may."""
    package = next(f"aftlib.{d.package}" for d in DOCUMENTS.values() if d.notebook == name)
    module = "figures" if find_spec(f"{package}.figures") else "experiments"
    return import_module(f"{package}.{module}")


def makes_figure(cell, figures) -> bool:
    """Whether a cell calls a function of its module `figures` that returns a figure."""
    calls = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)]
    prefix = figures.__name__.rpartition(".")[2] + "."
    named = [c.func.attr for c in calls if ast.unparse(c.func).startswith(prefix)]
    kinds = [get_type_hints(getattr(figures, name))["return"] for name in named]
    return go.Figure in kinds or "explore" in named  # a widget only in JupyterLab


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_figure_says_what_to_see_in_it(name):
    figures = drawing(name)
    cells = NOTEBOOKS[name].content.cells
    plots = [i for i, c in enumerate(cells) if c.cell_type == "code" and makes_figure(c, figures)]
    captions = [i for i, cell in enumerate(cells) if is_caption(cell)]
    assert plots and captions == [i + 1 for i in plots]
    for caption in captions:
        sentences = re.split(r"(?<=[.?!]) (?=[A-ZΣ])", cells[caption].source)
        assert 1 <= len(sentences) <= 2 and sentences[-1].endswith("."), sentences
        assert "$" not in cells[caption].source  # a screen reader reads it out as it stands


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_words_of_headings_are_no_names_of_code(name):
    headings = drawing(name).HEADINGS
    assert [
        words for words in headings.values() if re.search(r"\w_(?!SLA|re[cps]|est)", words)
    ] == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_prose_is_short_and_names_no_column_of_a_table(name):
    headings = drawing(name).HEADINGS
    texts = [c.source for c in NOTEBOOKS[name].content.cells if c.cell_type == "markdown"]
    prose = re.sub(r"\$\$.*?\$\$", "", "\n".join(texts), flags=re.DOTALL)
    words = re.sub(r"\$[^$]*\$", "formula", prose).split()
    assert sum(any(map(str.isalnum, word)) for word in words) <= 900
    columns = headings.keys() - NOTEBOOKS[name].parameters.keys()
    assert not {f"`{column}`" for column in columns} & set(words)


def test_the_ten_lines_of_notebook_01_are_the_documents_greedy_assignment():
    cells = {cell.id: cell.source for cell in NOTEBOOKS["01_approximately_once"].content.cells}
    names = {"block_model": block_model, "Requirement": Requirement, "np": np, "pd": pd}
    exec(cells["greedy"], names)
    expected = assign_greedy(names["model"], 3, names["demand"])
    assert [tuple(keys) for keys in (*names["filling"], names["reserve"])] == [*expected.workers]
    assert list(names["greedy"].values()) == pytest.approx(expected.reliability)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_begins_with_title_and_summary(name):
    first = NOTEBOOKS[name].content.cells[0]
    title, _, summary = first.source.partition("\n\n")
    assert first.cell_type == "markdown"
    assert title.startswith("# ")
    assert len(summary) > 100


def test_every_document_has_its_notebook():
    assert {document.notebook for document in DOCUMENTS.values()} <= set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_parameters_are_checked_before_spark_starts(name):
    parameters, first = code(NOTEBOOKS[name])[:2]
    assert "parameters" in parameters.metadata.get("tags", [])
    assert "session(" not in parameters.source
    assert "NotebookParameters.of(globals())" in first.source and "session" not in first.source


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_parameters_cell_says_what_the_model_declares(name):
    notebook = NOTEBOOKS[name]
    expected = [
        Parameter(field, kind_of(info.annotation), info.default, info.description)
        for field, info in notebook.model.model_fields.items()
    ]
    assert list(notebook.parameters.values()) == expected
    for profile in PROFILES:
        notebook.check_values(profile_parameters(profile, notebook))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_can_be_run_again(name):
    source = "\n".join(cell.source for cell in code(NOTEBOOKS[name]))
    assert not re.search(r"tempfile|\bscratch\b(?!=| / | = FreshFolders\(\))", source)
