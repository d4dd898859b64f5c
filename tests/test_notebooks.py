"""Every notebook is thin, clean and short; its parameters are those of its model."""

import ast
import io
import re
import tokenize
from pathlib import Path

import nbformat
import pytest

from aftlib.command.documents import DOCUMENTS
from aftlib.notebook.parameters import PROFILES, kind_of
from tests.prose import texts_of

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = {path.stem: nbformat.read(path, 4).cells for path in sorted(FOLDER.glob("*.ipynb"))}
MODELS = {document.notebook: document.parameters for document in DOCUMENTS}


def code(name):
    return [cell for cell in NOTEBOOKS[name] if cell.cell_type == "code"]


def test_every_document_has_its_notebook():
    assert set(MODELS) == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_thin_and_clean(name):
    cells = code(name)
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    assert sum(cell.source.count("\n") + 1 for cell in cells) <= 150
    for node in ast.walk(ast.parse("\n".join(cell.source for cell in cells))):
        assert not isinstance(node, ast.ClassDef)
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno <= 5


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_begins_with_title_and_summary(name):
    title, _, summary = NOTEBOOKS[name][0].source.partition("\n\n")
    assert title.startswith("# ") and len(summary) > 100


def captions(name):
    """The cell before each caption, and the caption's text."""
    for before, cell in zip(NOTEBOOKS[name], NOTEBOOKS[name][1:], strict=False):
        texts = [cell.source] if "caption" in cell.metadata.get("tags", []) else []
        for text in texts + texts_of(cell, "caption"):
            yield before, text


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_caption_says_in_two_sentences_what_to_see(name):
    for before, text in captions(name):
        assert before.cell_type == "code"
        sentences = re.split(r"(?<=[.?!]) (?=[A-ZΣ])", text)
        assert 1 <= len(sentences) <= 2 and sentences[-1].endswith("."), sentences
        assert "$" not in text  # a screen reader reads it out as it stands


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_has_at_most_800_words(name):
    texts = [cell.source for cell in NOTEBOOKS[name] if cell.cell_type == "markdown"]
    texts += [text for cell in code(name) for text in texts_of(cell, "caption", "prose")]
    assert len(re.sub(r"\$[^$]*\$", "x", " ".join(texts)).split()) <= 800


def read_parameters(source):
    """Name, annotation, default and comment of each line of a cell of parameters."""
    comments, own_lines = {}, {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines = own_lines if token.line.lstrip().startswith("#") else comments
            lines[token.start[0]] = token.string.lstrip("# ")
    for statement in ast.parse(source).body:
        annotated = isinstance(statement, ast.AnnAssign)
        target = statement.target if annotated else statement.targets[0]
        kind = ast.unparse(statement.annotation) if annotated else None
        default = ast.literal_eval(statement.value)
        above = own_lines.get(statement.lineno - 1, "")  # a comment that does not fit beside
        yield target.id, kind, default, comments.get(statement.end_lineno, above)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_parameters_cell_says_what_the_model_declares(name):
    cell, check = code(name)[:2]
    assert "parameters" in cell.metadata.get("tags", [])
    assert "NotebookParameters.of(globals())" in check.source and "session" not in check.source
    fields = MODELS[name].model_fields
    read = {field: values for field, *values in read_parameters(cell.source)}
    assert list(read) == list(fields)
    for field, info in fields.items():
        kind, default, comment = read[field]
        assert kind in (None, kind_of(info.annotation)), field
        assert (default, comment) == (info.default, info.description), field
    for profile in PROFILES:
        MODELS[name](**MODELS[name].profile(profile))
