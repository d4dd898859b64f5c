"""Pages agree with the code: examples run, and the names and files that pages give exist."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {page.relative_to(DOCS).as_posix(): page.read_text() for page in DOCS.rglob("*.md")}
PAGES["README.md"] = (ROOT / "README.md").read_text()
WITH_CODE = [
    pytest.param(name, marks=[pytest.mark.spark] if "from aftlib.spark" in text else [])
    for name, text in PAGES.items()
    if "```python\n" in text and name != "any_stream.md"  # its stream has a test of its own
]


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


def test_a_reports_link_to_docs_leads_to_the_sites_page():
    pytest.importorskip("sphinx")
    link_site = runpy.run_path(str(DOCS / "conf.py"))["link_site"]
    stored = '<a href="../../docs/documents/p.md#flink">'
    assert link_site(stored) == '<a href="../documents/p.html#flink">'


@pytest.mark.parametrize("name", PAGES)
def test_names_tests_and_files_of_a_page_exist(name):
    text = PAGES[name]
    assert all(resolve(dotted) for dotted in re.findall(r"`(aftlib\.[\w.]+)`", text))
    for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert f"def {test}(" in (ROOT / file).read_text(), test
    paths = re.findall(r"`((?:aftlib|tests|notebooks|benchmarks)/[\w/.]+)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
