"""The names that other people's code may import, and the README's examples of them."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import aftlib
from aftlib.reports.documents import DOCUMENTS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_public_names_are_sorted_and_there():
    assert aftlib.__all__ == sorted(aftlib.__all__)
    assert all(getattr(aftlib, name) for name in aftlib.__all__)


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="module 'aftlib' has no attribute 'assign_luckily'"):
        aftlib.assign_luckily  # noqa: B018


@pytest.mark.parametrize("name", aftlib.__all__)
def test_a_public_names_docstring_ends_with_an_example(name):
    assert ">>> " in getattr(aftlib, name).__doc__.split("Examples\n")[1]


def test_the_readmes_code_prints_what_it_says():
    pairs = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL
    )
    assert len(pairs) == README.count("```python\n") == 3
    names = {}
    for code, shown in pairs:  # one after the other, as a reader would
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        assert printed.getvalue() == shown


@pytest.mark.parametrize("id", DOCUMENTS)
def test_the_readmes_table_leads_from_document_to_notebook_room_and_claims(id):
    (row,) = re.findall(rf"^\| {id} \|.*$", README, re.MULTILINE)
    links = re.findall(r"\]\((.*?)\)", row)
    package = f"aftlib/{DOCUMENTS[id].package}"
    notebook = f"notebooks/{DOCUMENTS[id].notebook}.ipynb"
    assert links == [f"{package}/claims.py", notebook, f"{package}/__init__.py"]
    assert all((ROOT / link).is_file() for link in links)


def test_the_readmes_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\((.*?)\)", README) if "://" not in link]
    assert len(links) > 20
    headings = re.findall(r"^#+ (.+)$", README, re.MULTILINE)
    here = {f"#{heading.lower().replace(' ', '-')}" for heading in headings}
    assert [link for link in links if link not in here and not (ROOT / link).exists()] == []
