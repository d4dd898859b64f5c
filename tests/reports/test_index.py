from __future__ import annotations

import stat
from pathlib import Path

import pytest

from aftlib.reports import export
from aftlib.reports.index import draw_pictures, write_readme
from aftlib.reports.runs import Executed, gather
from tests.reports.chromium import needs_browser
from tests.tiny_project import FIRST, executed, shows


def test_the_readme_holds_scorecard_and_failures(done):
    text = (done[0] / "README.md").read_text()
    assert "(profile smoke)" in text
    assert "✔ 5 holds" in text
    assert (
        "| D1-1 | Greedy assignment" in text
        and "| a < b | 3 of h-best's lead | – | ✔ holds (measured; as recorded) |" in text
    )
    assert "**This notebook failed:** `ZeroDivisionError: division by zero`" in text


def test_a_row_of_the_readme_shows_what_its_verdict_follows_from(tmp_path):
    name = "01_approximately_once"
    shows = {"threshold": "fig. 1: fewer", "source": "section 2", "detectable": 0.25, "n": 3}
    shows |= {"readings": {"of all": "0.5 × [0.4, 0.6], holds"}, "counted": "turns"}
    shows |= {"parts": {"the other set": "2 ×, deviates"}, "note": "Few. The rest is folded."}
    theirs = gather([], {})[0].model_copy(update=shows | {"notebook": name})
    ours = theirs.model_copy(update={"id": "D1-99", "project": True})
    text = write_readme({name: executed(FIRST)}, [ours, theirs], tmp_path / "README.md").read_text()
    row = text[text.index(f"| {theirs.id} |") :].partition("\n")[0]
    for part in ("(section 2)", "threshold (fig. 1: fewer)", "n = 3 turns", "detects ± 0.25"):
        assert part in row
    assert "<sub>Few.</sub><details><summary>More</summary><sub>The rest is folded.</sub>" in row
    assert "Parts: 1 deviates</summary><sub>the other set: 2 ×, deviates</sub>" in row
    assert "Other readings: 1 holds</summary><sub>of all: 0.5 × [0.4, 0.6], holds</sub>" in row
    assert text.index(row) < text.index("| claim | the project's own claims") < text.index("D1-99")


def test_bars_in_a_table_of_the_readme_are_escaped(tmp_path):
    name = "01_approximately_once"
    claims = gather([], {})
    claims = [claims[0].model_copy(update={"note": "P(Y|o)", "notebook": name})]
    text = write_readme({name: executed(FIRST)}, claims, tmp_path / "README.md").read_text()
    assert r"P(Y\|o)" in text


def test_without_a_browser_the_old_pictures_stay(done, tmp_path, monkeypatch):
    reports, outcome = done
    assert outcome.problems == [
        "picture of 01_approximately_once: no browser found: install Chromium or set AFT_BROWSER"
    ]
    (tmp_path / "pictures").mkdir()
    old = tmp_path / "pictures" / "01_approximately_once.png"
    old.write_bytes(b"old")
    monkeypatch.setenv("AFT_BROWSER", "no-such-browser")
    run = Executed.read(reports / "01_approximately_once.ipynb")
    problems = draw_pictures({run.name: run}, tmp_path)
    assert "AFT_BROWSER is 'no-such-browser', which is no program" in problems[0]
    assert old.read_bytes() == b"old"
    text = write_readme({run.name: run}, [], tmp_path / "README.md").read_text()
    assert "](pictures/01_approximately_once.png)" in text and "No claims yet." in text


def test_a_picture_that_is_one_already_is_taken_as_it_is(tmp_path):
    cell = shows({"image/png": "aGk="})
    cell.metadata["tags"] = ["picture"]
    other = executed([cell])
    assert draw_pictures({"x": other, "y": executed([])}, tmp_path) == []
    assert (tmp_path / "pictures" / "x.png").read_bytes() == b"hi"
    assert not (tmp_path / "pictures" / "y.png").exists()


def fake_browser(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_browser_that_draws_nothing_is_an_error(tmp_path, monkeypatch):
    broken = fake_browser(tmp_path / "broken", "echo no display >&2")
    with pytest.raises(RuntimeError, match="drew nothing: no display"):
        export.draw_plotly({"data": []}, tmp_path / "a.png", broken)
    slow = fake_browser(tmp_path / "slow", "exec sleep 60")
    monkeypatch.setattr(export, "_SECONDS", 0.1)
    with pytest.raises(RuntimeError, match="slow could not draw"):
        export.draw_plotly({"data": []}, tmp_path / "a.png", slow)
    assert not (tmp_path / "a.png").exists()


@needs_browser
@pytest.mark.slow
def test_a_real_browser_draws_the_picture(done, tmp_path):
    run = Executed.read(done[0] / "01_approximately_once.ipynb")
    assert draw_pictures({run.name: run}, tmp_path) == []
    picture = (tmp_path / "pictures" / "01_approximately_once.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000
