"""The names that other people's code may import, and the README's links."""

import doctest
import re
from pathlib import Path

import pytest

import aftlib

ROOT = Path(__file__).parents[1]


def _of_the_guard(name):
    return getattr(aftlib, name).__module__.startswith(("aftlib.guard", "aftlib.streaming"))


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


@pytest.mark.parametrize("name", [name for name in aftlib.__all__ if not _of_the_guard(name)])
def test_the_examples_that_help_shows_can_be_pasted(name):
    public = getattr(aftlib, name)
    inside = vars(public).items() if isinstance(public, type) else []
    members = {f"{name}.{key}": getattr(value, "__func__", value) for key, value in inside}
    for title, each in {name: public, **members}.items():
        if "__" not in title and ">>> " in (text := each.__doc__ or ""):
            test = doctest.DocTestParser().get_doctest(text, {}, title, None, None)  # no names
            printed = []
            assert not doctest.DocTestRunner().run(test, out=printed.append).failed, printed


def test_the_readmes_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\((.*?)\)", README) if "://" not in link]
    assert len(links) > 10
    headings = re.findall(r"^#+ (.+)$", README, re.MULTILINE)
    here = {f"#{heading.lower().replace(' ', '-')}" for heading in headings}
    assert [link for link in links if link not in here and not (ROOT / link).exists()] == []
