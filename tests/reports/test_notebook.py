from __future__ import annotations

import pytest
from nbformat.v4 import new_notebook

from aftlib.reports import notebook
from aftlib.reports.notebook import Notebook, find_notebook, profile_parameters
from aftlib.reports.runs import Executed
from tests.tiny_project import FIRST, write_notebook


@pytest.mark.parametrize("wanted", ["1", "01", "d1", "D1", "01_approximately_once"])
def test_a_notebook_is_found_by_any_of_its_names(home, wanted):
    assert find_notebook(wanted).name == "01_approximately_once"


def test_a_notebook_is_found_by_its_path(home, tmp_path):
    path = write_notebook(tmp_path / "mine.ipynb", FIRST)
    assert find_notebook(str(path)) == Notebook(path)


def test_a_notebook_that_is_not_there_lists_the_known(home):
    with pytest.raises(ValueError, match=r"no notebook 'D7': .*01_approximately_once \(D1\), 02_"):
        find_notebook("D7")


@pytest.mark.parametrize("text", ["not json", "{}"])
def test_a_file_that_is_no_notebook_is_an_error(tmp_path, text):
    (tmp_path / "x.ipynb").write_text(text)
    with pytest.raises(ValueError, match="is not a readable notebook"):
        _ = Notebook(tmp_path / "x.ipynb").content
    with pytest.raises(ValueError, match="is not a readable notebook"):
        Executed.read(tmp_path / "x.ipynb")


def test_titles_and_summaries_come_from_the_prose():
    content = new_notebook(cells=FIRST)
    assert notebook.title_of(content, "x") == "A *tiny* run of $\\varepsilon$"
    assert notebook.summary_of(content) == "The first paragraph, $x<1$, sums it up."
    assert notebook.title_of(new_notebook(), "x") == "x"
    assert notebook.summary_of(new_notebook()) == ""


def test_the_key_changes_with_all_that_results_depend_on(home, tmp_path, monkeypatch):
    first = find_notebook("1")
    key = first.key({})
    assert first.key({"m": 4}) == key  # the default, spelled out
    assert first.key({"m": 5}) != key
    data = tmp_path / "data.csv"
    data.write_text("1")
    with_file = first.key({"path": str(data)})
    data.write_text("22")
    assert first.key({"path": str(data)}) != with_file
    with monkeypatch.context() as patch:
        patch.setattr(notebook, "library_hash", lambda: "other sources")
        assert first.key({}) != key
    changed = write_notebook(home / "notebooks" / "01_approximately_once.ipynb", FIRST[:-1])
    assert Notebook(changed).key({}) != key


def test_a_profile_gives_a_notebook_its_parameters(home):
    assert profile_parameters("smoke", find_notebook("1")) == {"m": 3}
    assert profile_parameters("quick", find_notebook("1")) == {}


def test_a_profile_must_be_known(home):
    with pytest.raises(ValueError, match="profile must be one of smoke, quick, full, got 'tiny'"):
        profile_parameters("tiny", find_notebook("1"))


def test_the_projects_own_profiles_fit_its_notebooks(monkeypatch):
    monkeypatch.delenv("AFT_HOME", raising=False)
    for profile in ("smoke", "quick", "full"):
        for known in notebook.all_notebooks():
            assert profile_parameters(profile, known).keys() <= known.parameters.keys()
