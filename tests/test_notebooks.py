"""Every notebook is thin, clean and known to the profiles; the smoke profile runs them."""

import ast

import pytest

from aftlib.reports.documents import DOCUMENTS, PROFILES
from aftlib.reports.notebook import all_notebooks, profile_parameters

NOTEBOOKS = {notebook.name: notebook for notebook in all_notebooks()}
# Notebooks that do not check their parameters yet: to be emptied, never added to.


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


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_begins_with_title_and_summary(name):
    first = NOTEBOOKS[name].content.cells[0]
    title, _, summary = first.source.partition("\n\n")
    assert first.cell_type == "markdown"
    assert title.startswith("# ")
    assert len(summary) > 100


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_profiles_name_parameters_that_exist(name, profile):
    assert isinstance(profile_parameters(profile, NOTEBOOKS[name]), dict)


def test_every_document_has_its_notebook():
    assert {document.notebook for document in DOCUMENTS.values()} <= set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_parameters_are_checked_before_spark_starts(name):
    parameters, first = code(NOTEBOOKS[name])[:2]
    assert "parameters" in parameters.metadata.get("tags", [])
    assert "session(" not in parameters.source
    calls = [node for node in ast.walk(ast.parse(first.source)) if isinstance(node, ast.Call)]
    called = {ast.unparse(call.func): call for call in calls}
    check = called.get("experiments.check_parameters")
    assert check is not None and check.keywords and not check.args
    assert {keyword.arg for keyword in check.keywords} <= set(NOTEBOOKS[name].parameters)
    assert "session" not in called or check.lineno < called["session"].lineno
