"""What a key holds: changes that matter change it, and changes that do not leave it."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell

from aftlib.reports import dependencies
from aftlib.reports.dependencies import PACKAGE, closure, code_hash, content_hashes, package_data
from aftlib.reports.notebook import Notebook, find_notebook
from tests.tiny_project import write_notebook


@pytest.fixture
def package(tmp_path):
    """A library of two rooms on one floor, of which the first is imported."""
    files = {
        "__init__.py": "from house.core.base import Base\nfrom house.other.deep import Deep",
        "core/__init__.py": "",
        "core/base.py": "import scipy.linalg, math",
        "core/paths.py": "import yaml",
        "room/__init__.py": "import pandas",
        "room/experiments.py": "def f():\n    from house.core import base, paths",
        "other/__init__.py": "import torch",
        "other/deep.py": "Deep = 1",
    }
    for name, text in files.items():
        path = tmp_path / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "house"


def names(found, package):
    return [path.relative_to(package).as_posix() for path in found.files]


def test_the_closure_is_what_is_imported_and_nothing_of_other_rooms(package):
    found = closure(["%matplotlib inline\nfrom house.room import experiments"], package)
    assert names(found, package) == [
        *("core/__init__.py", "core/base.py", "room/__init__.py", "room/experiments.py")
    ]
    assert found.packages == ("pandas", "scipy")


def test_a_public_name_leads_to_its_module_only(package):
    found = closure(["from house import Base"], package)
    assert names(found, package) == ["core/__init__.py", "core/base.py"]


@pytest.mark.parametrize(
    "source", ["import house", "import house as h", "import house.room", "from house import *"]
)
def test_the_library_by_its_name_is_all_of_its_public_names(package, source):
    assert {"core/base.py", "other/deep.py"} <= {*names(closure([source], package), package)}
    (package.parent / "mine.py").write_text(source)
    found = closure(["import mine"], package, package.parent)
    assert {package / "core/base.py", package / "other/deep.py"} <= {*found.files}


def test_a_module_by_its_own_name_is_that_alone(package):
    found = closure(["import house.room as room"], package)
    assert names(found, package) == ["room/__init__.py"]


def test_a_package_beside_the_notebook_is_followed(package, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("import numpy")
    (tmp_path / "own" / "part.py").write_text("import scipy")
    found = closure(["import own"], package, tmp_path)
    assert found.files == (tmp_path / "own" / "__init__.py",) and found.packages == ("numpy",)
    assert closure(["from own import part"], package, tmp_path).packages == ("numpy", "scipy")


def test_modules_beside_the_notebook_are_followed(package, tmp_path):
    (tmp_path / "mine.py").write_text("import numpy")
    found = closure(["import mine, os\n1 not"], package, tmp_path)
    assert found == closure([], package)
    found = closure(["import mine, os"], package, tmp_path)
    assert found.files == (tmp_path / "mine.py",) and found.packages == ("numpy",)


def test_a_package_of_ones_own_is_followed_by_its_relative_imports(package, tmp_path):
    (tmp_path / "own" / "deep").mkdir(parents=True)
    (tmp_path / "own" / "__init__.py").write_text("from .part import f")
    (tmp_path / "own" / "part.py").write_text("from . import other")
    (tmp_path / "own" / "other.py").write_text("import scipy")
    (tmp_path / "own" / "deep" / "low.py").write_text("from ..other import f")
    found = closure(["import own"], package, tmp_path)
    assert [path.name for path in found.files] == ["__init__.py", "other.py", "part.py"]
    assert "scipy" in found.packages
    found = closure(["import own.deep.low"], package, tmp_path)
    assert tmp_path / "own" / "other.py" in found.files


def test_modules_on_pythonpath_or_installed_to_be_edited_are_ones_own(
    package, tmp_path, monkeypatch
):
    for folder in ("path", "edited"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"of_{folder}.py").write_text("import scipy")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'path'}")
    monkeypatch.syspath_prepend(tmp_path / "edited")
    found = closure(["import of_path, of_edited, numpy"], package, tmp_path)
    assert [path.stem for path in found.files] == ["of_edited", "of_path"]
    assert found.packages == ("numpy", "scipy")


def test_files_that_code_of_ones_own_names_count_but_folders_do_not(package, tmp_path):
    for name in ("read.csv", "run.py", "late.py", "of_mine.json", "other.csv"):
        (tmp_path / name).write_text("1")
    (tmp_path / "mine.py").write_text("open('of_mine.json')")
    (tmp_path / "folder").mkdir()
    cells = ["%run run.py", "import mine\nopen('read.csv')", "import_module('late'), 'folder', ''"]
    found = closure(cells, package, tmp_path)
    names = {path.name for path in found.named}
    assert names == {"run.py", "read.csv", "of_mine.json", "late.py"}


def test_a_module_that_is_no_python_counts_as_it_is(package, tmp_path):
    (tmp_path / "broken.py").write_text("1 not")
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nimport numpy\nx = '\xe9'")
    found = closure(["import broken, latin"], package, tmp_path)
    assert len(found.files) == 2 and found.packages == ("numpy",)
    before = code_hash(found.files, tmp_path)
    (tmp_path / "broken.py").write_text("2 nots")
    assert code_hash(found.files, tmp_path) != before


def test_where_spark_runs_is_part_of_the_key_of_what_starts_it(home, monkeypatch):
    with_it = write_notebook(home / "a.ipynb", [new_code_cell("import pyspark")])
    without = write_notebook(home / "b.ipynb", [new_code_cell("import numpy")])
    monkeypatch.setenv("AFT_MASTER", "local[1]")
    before = [Notebook(path).key({}) for path in (with_it, without)]
    monkeypatch.setenv("AFT_MASTER", "spark://host:7077")
    after = [Notebook(path).key({}) for path in (with_it, without)]
    assert after[0] != before[0] and after[1] == before[1]


def test_what_is_run_by_its_name_is_imported_too():
    found = closure(["run('-m', 'aftlib.checkpoint_planning.driver')"])
    assert PACKAGE / "checkpoint_planning" / "driver.py" in found.files
    found = closure(["opened('aftlib.shared_state.stores.rocksdb:RocksTable', 'numpy.linalg')"])
    assert PACKAGE / "shared_state" / "stores" / "rocksdb.py" in found.files
    assert "numpy.linalg" not in found.packages


def test_comments_and_docstrings_do_not_count_but_code_does(package):
    path = package / "core" / "base.py"
    path.write_text('"""One."""\ndef f():\n    """Two."""\n    return 1\n')
    before = code_hash([path], package)
    path.write_text('"""Another."""\n\n\n# why\ndef f():\n    return 1  # one\n')
    assert code_hash([path], package) == before
    path.write_text('"""Another."""\n\n\n# why\ndef f():\n    return 2  # one\n')
    assert code_hash([path], package) != before


def test_tables_beside_the_modules_count_as_data_but_not_what_runs_leave(tmp_path, monkeypatch):
    (tmp_path / "room" / "__pycache__").mkdir(parents=True)
    for name in ("room/model.py", "room/table.csv", "room/__pycache__/model.nbi"):
        (tmp_path / name).touch()
    with monkeypatch.context() as patch:
        patch.setattr(dependencies, "PACKAGE", tmp_path)
        assert package_data([tmp_path / "room/model.py"]) == [tmp_path / "room/table.csv"]
    (csv,) = PACKAGE.glob("upstream_backup/ns3/traffic.csv")
    assert csv in package_data([PACKAGE / "upstream_backup" / "recursion.py"])
    assert csv not in package_data([PACKAGE / "core" / "windows.py"])
    assert package_data([PACKAGE / "reports" / "claims.py"]) == []


def test_contents_count_also_of_folders_and_lists(tmp_path):
    (tmp_path / "log").mkdir()
    for name in ("log/a", "b"):
        (tmp_path / name).write_text("1")
    value = [str(tmp_path / "log"), [str(tmp_path / "b")], 3, "no file", ""]
    before = content_hashes(value)
    assert len(before) == 2
    (tmp_path / "log" / "a").write_text("2")
    assert content_hashes(value)[0] != before[0] and content_hashes(value)[1] == before[1]
    (tmp_path / "linked").symlink_to(tmp_path / "log")
    assert content_hashes({"log": [str(tmp_path)]}) == [
        f"{name} {content_hashes(str(tmp_path / name))[0][2:]}"
        for name in ("b", "linked/a", "log/a")
    ]


def test_a_renewed_package_that_is_imported_changes_the_key(home, monkeypatch):
    path = write_notebook(home / "mine.ipynb", [new_code_cell("import numpy")])
    real, key = dependencies.importlib.metadata.version, Notebook(path).key({})

    def renewed(package):
        monkeypatch.setattr(
            dependencies.importlib.metadata,
            "version",
            lambda name: "99" if name == package else real(name),
        )
        return Notebook(path).key({})

    assert renewed("scipy") == key
    assert renewed("numpy") != key
    assert dependencies.versions(["no_such_package"])["no_such_package"] == "none"


def test_a_package_that_is_installed_meanwhile_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    assert dependencies.versions(["brought_later"])["brought_later"] == "none"
    about = tmp_path / "some_distribution-1.5.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: some-distribution\nVersion: 1.5\n"
    )
    (about / "top_level.txt").write_text("brought_later\n")
    found = dependencies.versions(["brought_later"])
    assert found == {"Python": found["Python"], "some-distribution": "1.5"}


def test_who_brings_what_is_found_out_once_while_nothing_is_installed(monkeypatch):
    asked = []
    monkeypatch.setattr(
        dependencies.importlib.metadata, "packages_distributions", lambda: asked.append(1) or {}
    )
    monkeypatch.syspath_prepend("no such folder")
    assert dependencies.versions(["a"]) == dependencies.versions(["a"])
    assert len(asked) == 1


def test_a_change_in_one_room_leaves_the_keys_of_the_others(home, monkeypatch, tmp_path):
    real, changed = dependencies._meaning, "exponential_histogram"
    cells = {
        "d1": "from aftlib.approximately_once import verdicts",
        "d5": f"import aftlib.{changed}",
    }
    paths = {n: write_notebook(home / f"{n}.ipynb", [new_code_cell(c)]) for n, c in cells.items()}
    before = {name: Notebook(path).key({}) for name, path in paths.items()}
    monkeypatch.setattr(
        dependencies,
        "_meaning",
        lambda path, *state: b"new" if changed in path.parts else real(path, *state),
    )
    assert Notebook(paths["d1"]).key({}) == before["d1"]
    assert Notebook(paths["d5"]).key({}) != before["d5"]


def test_the_rooms_own_check_refuses_values_without_a_kernel(home):
    check = "from aftlib.upstream_backup import experiments\nexperiments.check_parameters(rates=m)"
    cells = [new_code_cell("m = [5]", metadata={"tags": ["parameters"]}), new_code_cell(check)]
    path = write_notebook(home / "mine.ipynb", cells)
    with pytest.raises(TypeError):  # the notebook would have to name them all
        Notebook(path).check_values({})
    find_notebook("1").check_values({"m": 0})  # calls no such check
