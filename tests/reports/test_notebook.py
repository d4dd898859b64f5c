from __future__ import annotations

import random
import shutil

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from aftlib.reports import notebook
from aftlib.reports.notebook import Notebook, find_notebook, profile_parameters, section_of
from aftlib.reports.runs import Executed
from tests.tiny_project import FIRST, PARAMETERS, write_notebook


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


def test_a_profile_gives_a_notebook_its_parameters(home):
    assert profile_parameters("smoke", find_notebook("1")) == {"m": 3}
    assert profile_parameters("quick", find_notebook("1")) == {}
    with pytest.raises(ValueError, match="profile must be one of smoke, quick, full, got 'tiny'"):
        profile_parameters("tiny", find_notebook("1"))


def test_the_projects_own_profiles_fit_its_notebooks(monkeypatch):
    monkeypatch.delenv("AFT_HOME", raising=False)
    for profile in ("smoke", "quick", "full"):
        for known in notebook.all_notebooks():
            assert profile_parameters(profile, known).keys() <= known.parameters.keys()


SECTIONS = new_notebook(
    cells=[
        new_markdown_cell("# A title"),
        new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        new_code_cell("from random import shuffle\nrows = [m, 1]\nother = 0"),
        new_markdown_cell("## Sorted rows"),
        new_code_cell("shuffle(rows)\nlen(rows)"),
        new_code_cell("other = 5\nrows"),
        new_markdown_cell("### The least"),
        new_code_cell("least = min(row for row in rows)\n%time least"),
        new_code_cell("unread = 1"),
        new_markdown_cell("## The rest of the rows"),
        new_code_cell("if other:\n    least = 0"),
        new_code_cell("table = {}\ntable['least'] = least"),
        new_code_cell("Scorecard([], globals())"),
    ]
)


@pytest.mark.parametrize(
    ("wanted", "cells"),
    [
        ("the least", [0, 1, 2, 4, 6, 7, 8]),  # another cell shuffles the rows
        ("Sorted rows", [0, 1, 2, 3, 4, 5, 6, 7, 8]),  # with the headings below it
        ("rows", [0, 1, 2, 4]),  # as it is in the end
        ("table", [0, 1, 2, 4, 5, 7, 10, 11]),  # a branch may leave the first value
        ("the rest", [0, 1, 2, 4, 5, 7, 8, 9, 10, 11, 12]),  # a scorecard may read everything
    ],
)
def test_a_section_has_the_cells_that_it_needs(wanted, cells):
    remaining = section_of(SECTIONS, wanted).cells
    assert [SECTIONS.cells.index(cell) for cell in remaining] == cells


def test_a_section_has_the_cells_that_change_what_is_imported():
    added = "grids.ASSIGN['mine'] = sorted"
    sources = ["from aftlib import grids", added, "grids.clear()\n0", "table = grids.ASSIGN"]
    content = new_notebook(cells=[new_code_cell(source) for source in sources])
    remaining = [cell.source for cell in section_of(content, "table").cells]
    assert remaining == [sources[0], added, sources[3]]


@pytest.mark.parametrize(
    ("wanted", "known"),
    [
        ("leest", "'Sorted rows', 'The least', 'The rest of the rows'"),
        ("rows ", "'Sorted rows', 'The rest of the rows'"),
    ],
)
def test_a_section_that_is_not_there_lists_the_known(wanted, known):
    message = f"section '{wanted}' must be a variable or one heading .*: give one of {known}$"
    with pytest.raises(ValueError, match=message):
        section_of(SECTIONS, wanted)


def test_a_section_is_a_run_of_its_own(home):
    whole, part = find_notebook("1"), find_notebook("1", "a figure")
    assert whole.key({}) != part.key({}) and part.model is whole.model
    assert part.parameters == whole.parameters


@pytest.mark.parametrize("seed", range(100))
def test_a_section_computes_what_the_whole_notebook_does(seed):
    draw = random.Random(seed)
    forms = [
        "{} = {} + {}",
        "{} += {} + {}",
        "{}.extend({}[:2] + {}[:1])\n0",
        "{}[0] = {}[0] + {}[-1]",
    ]
    forms += ["if {}[0] > 3:\n    {} = {} + [4]", "{} = [i for i in {}] + (lambda a: a)({})"]
    sources = ["a, b, c, d = [1], [2], [3], [4]"]
    for _ in range(12):
        lines = [draw.choice(forms).format(*draw.choices("abcd", k=3)) for _ in range(2)]
        sources.append("\n".join(lines))
    content = new_notebook(cells=[new_code_cell(source) for source in sources])
    for name in "abcd":
        remaining = [cell.source for cell in section_of(content, name).cells]
        values = [{}, {}]
        exec("\n".join(sources), values[0])
        exec("\n".join(remaining), values[1])
        assert values[0][name] == values[1][name], (name, remaining)


LIBRARY_HASH = notebook.library_hash  # the others' tests replace it
CELLS = [
    new_code_cell("m = 4\ndata = ''", metadata={"tags": ["parameters"]}),
    new_code_cell("import mine\nopen('read.csv')\n%run other.txt"),
]


@pytest.fixture
def key(home, tmp_path, monkeypatch):
    """The key of a run in a working directory of its own, computed anew by each call."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(notebook.PACKAGE, tmp_path / "library", ignore=shutil.ignore_patterns("*.pyc"))
    monkeypatch.setattr(notebook, "library_hash", lambda: LIBRARY_HASH(tmp_path / "library"))
    path = write_notebook(tmp_path / "own.ipynb", CELLS)
    return lambda **given: Notebook(path).key(given)


@pytest.mark.parametrize(
    "changed",
    [
        *("library/core/windows.py", "library/upstream_backup/ns3/traffic.csv"),
        *("read.csv", "other.txt", "mine.py"),
    ],
)
def test_a_changed_file_changes_the_key(key, tmp_path, changed):
    path = tmp_path / changed
    path.parent.mkdir(exist_ok=True)
    path.touch()
    before = key()
    assert key() == before
    path.write_text("# changed")
    assert key() != before


@pytest.mark.parametrize("changed", ["library/reports/templates/report.css", "not_named.csv"])
def test_files_that_no_result_depends_on_leave_the_key(key, tmp_path, changed):
    before = key()
    (tmp_path / changed).write_text("changed")
    (tmp_path / "library" / "core" / "__pycache__").mkdir(exist_ok=True)
    (tmp_path / "library" / "core" / "__pycache__" / "loops.nbi").touch()
    assert key() == before


def test_parameters_cells_lock_versions_and_spark_master_change_the_key(
    key, home, tmp_path, monkeypatch
):
    keys = [key(), key(m=5)]
    assert key(m=4) == keys[0]  # the default, spelled out
    write_notebook(tmp_path / "own.ipynb", CELLS[:1])
    keys.append(key())
    (home / "requirements.lock").write_text("numpy==2.3.0")
    keys.append(key())
    with monkeypatch.context() as patch:
        patch.setattr(notebook, "versions", lambda: {"numpy": "99"})
        keys.append(key())
    monkeypatch.setenv("AFT_MASTER", "spark://host:7077")
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_contents_of_data_count_also_in_folders_and_lists(key, tmp_path):
    (tmp_path / "log").mkdir()
    for name in ("log/a", "b"):
        (tmp_path / name).write_text("1")
    data = [{"files": [str(tmp_path / "log"), str(tmp_path / "b")]}, 3, "no file", ""]
    keys = [key(data=data)]
    for name in ("log/a", "b"):
        (tmp_path / name).write_text("2")
        keys.append(key(data=data))
    (tmp_path / "linked").symlink_to(tmp_path / "log")
    before = key(data=str(tmp_path))
    (tmp_path / "log" / "a").write_text("3")
    assert len(set(keys)) == 3 and key(data=str(tmp_path)) != before


def test_a_package_that_is_not_installed_is_recorded_as_none(monkeypatch):
    monkeypatch.setattr(notebook, "PACKAGES", ("no_such_package",))
    assert notebook.versions()["no_such_package"] == "none"
