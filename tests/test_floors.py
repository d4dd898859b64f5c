"""Lines that tests reach are counted per package, and a fall below the floor is reported."""

import json

import pytest

from tests import floors


def counted(reached, lines):
    return {"summary": {"covered_lines": reached, "num_statements": lines}}


def test_a_package_below_its_floor_is_an_error(tmp_path, monkeypatch, capsys):
    files = {
        "aftlib/core/a.py": counted(1, 2),
        "aftlib/core/deep/b.py": counted(9, 10),
        "aftlib/core/figures.py": counted(0, 3),
        "aftlib/none/x.py": counted(0, 0),
    }
    (tmp_path / "found.json").write_text(json.dumps({"files": files}))
    assert floors.shares({"files": files}) == {"core": 83, "core/figures": 0}
    monkeypatch.setattr(floors, "FLOORS", tmp_path / "floors.json")
    floors.main(str(tmp_path / "found.json"), "--raise")
    floors.main(str(tmp_path / "found.json"))
    assert "  83 %  (floor 83 %)  core\n" in capsys.readouterr().out
    floors.FLOORS.write_text(json.dumps({"core": 84, "gone": 1}))
    with pytest.raises(SystemExit, match="core: 83 % .* its floor is 84 %\ngone: 0 %"):
        floors.main(str(tmp_path / "found.json"))
