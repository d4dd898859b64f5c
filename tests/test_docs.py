"""Pages agree with the code: names, tests and verdicts exist, and examples run."""

from __future__ import annotations

import contextlib
import io
import re
from importlib import import_module
from pathlib import Path

import pytest

from aftlib.reports.documents import DOCUMENTS, all_claims, with_all_claims
from aftlib.reports.notebook import find_notebook, profile_parameters
from aftlib.workbench.parameters import PROFILES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Examples that need a running stream or a cluster have tests of their own.
PAGES = {
    page.relative_to(DOCS).as_posix(): page.read_text()
    for page in DOCS.rglob("*.md")
    if page.name not in ("any_stream.md", "cluster.md", "security.md")
}
WITH_CODE = [
    pytest.param(name, marks=[pytest.mark.spark] if "from aftlib.spark" in text else [])
    for name, text in PAGES.items()
    if "```python\n" in text
]
OF_DOCUMENTS = {
    id: "documents/guard.md" if id == "G" else f"documents/{id.lower()}.md" for id in DOCUMENTS
}


def resolve(name):
    """Return the module, or the attribute of a module at any depth, of a dotted name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            thing = import_module(".".join(parts[:cut]))
            for part in parts[cut:]:
                thing = getattr(thing, part)
            return thing
    raise AssertionError(f"{name} is nowhere")


@pytest.mark.parametrize("name", WITH_CODE)
def test_examples_run_and_print_what_the_page_says(name, tmp_path, monkeypatch, request):
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    names = {}
    for code, output in re.findall(
        r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", PAGES[name], re.MULTILINE | re.DOTALL
    ):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        assert printed.getvalue() == output


@pytest.mark.parametrize("id", DOCUMENTS)
def test_a_documents_page_leads_from_equation_to_function_test_and_figure(id):
    text = PAGES[OF_DOCUMENTS[id]]
    functions = re.findall(r"`(aftlib\.[\w.]+)`", text)
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    least = min(5, sum(claim.document == id for claim in all_claims().values()))
    assert len(functions) >= least and len(tests) >= least
    assert any(".figures." in name or ".experiments." in name for name in functions)
    assert all(resolve(name) for name in functions)
    assert [test for file, test in tests if f"def {test}(" not in (ROOT / file).read_text()] == []


@pytest.mark.parametrize("id", DOCUMENTS)
def test_a_documents_page_gives_claims_their_recorded_verdict(id):
    line = r"^\| (\w+-\d+)(?:, ours)? \| (\w+) \|"
    rows = dict(re.findall(line, PAGES[OF_DOCUMENTS[id]], re.MULTILINE))
    recorded = {c.id: c.recorded for c in all_claims().values() if c.document == id}
    assert rows and rows.items() <= recorded.items()  # a claim without a row gets one on the page


@pytest.mark.parametrize("id", DOCUMENTS)
def test_a_claim_without_a_row_on_its_documents_page_gets_one(id):
    page = with_all_claims(PAGES[OF_DOCUMENTS[id]], DOCUMENTS[id])
    claim = next(claim for claim in all_claims().values() if claim.document == id)
    cut = re.sub(rf"^\| {claim.id}\b.*\n", "", page, flags=re.MULTILINE)
    again = with_all_claims(cut, DOCUMENTS[id])
    assert f"\n| {claim.id} | {claim.recorded} | {claim.statement} |\n" in again
    assert again.count("\n") == page.count("\n") == cut.count("\n") + 1


def test_the_page_about_profiles_has_their_values():
    rows = re.findall(
        r"^\| (\d\d) \| `(\w+)`.* \| (\d+) \| (\d+) \| (\d+) \|$",
        PAGES["howto/profiles.md"],
        re.MULTILINE,
    )
    assert {number for number, *_ in rows} >= {f"0{n}" for n in range(1, 9)}
    for number, name, *values in rows:
        notebook = find_notebook(number)
        default = notebook.parameters[name].default
        actual = [profile_parameters(profile, notebook).get(name, default) for profile in PROFILES]
        assert actual == [int(value) for value in values], (number, name)


def test_files_and_commands_that_pages_name_are_there():
    named = {
        path
        for text in PAGES.values()
        for path in re.findall(r"`((?:aftlib|tests|notebooks)/[\w/.]+)`", text)
    }
    assert len(named) > 10
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
