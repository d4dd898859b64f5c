"""The light form of a full run's reports, drawn by a browser that only prints what it gets."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import nbformat
import pytest
from nbformat.v4 import new_notebook

from aftlib.command import light
from aftlib.command.light import draw_pictures, write_light
from tests.command.conftest import aft

SVG = "data:image/svg+xml,%3Csvg%3E%3Cpath%20d%3D%22M1.23456%2C2%22%2F%3E%3C%2Fsvg%3E"
"""What Plotly returns for a figure."""


@pytest.fixture
def browser(tmp_path, monkeypatch):
    """A program in the place of the browser, which prints a page with one picture."""
    program = tmp_path / "chromium"
    program.write_text(f"#!/bin/sh\necho '<html><body>[\"{SVG}\"]</body></html>'\n")
    program.chmod(0o755)
    monkeypatch.setattr(light, "BROWSERS", [str(program)])


def test_pages_of_a_full_run_have_pictures_and_no_script(home, browser):
    assert aft("reproduce", "--profile", "full").exit_code == 0
    index = write_light(home / "reports", home / "reports" / "full")
    page = (index.parent / "01_tiny.html").read_text()
    assert "<script" not in page
    assert '<img alt="&lt;/script&gt; squares" loading="lazy" src="01_tiny-1.svg"/>' in page
    assert "Figure 1.</a> &lt;/script&gt; squares</p>" in page
    assert "There are" in page
    picture = ET.parse(index.parent / "01_tiny-1.svg").getroot()
    assert picture[0].attrib == {"d": "M1.23,2"}
    links = re.findall(r'href="([^"#]+)"', page + index.read_text())
    assert [link for link in links if not (index.parent / link).exists()] == []


def test_another_profile_is_refused(home, browser):
    smoke = home / "reports" / "01_tiny.ipynb"
    smoke.parent.mkdir()
    about = {"aft": {"profile": "smoke", "started": "2026-01-31", "machine": "", "commit": ""}}
    nbformat.write(new_notebook(metadata=about), smoke)
    with pytest.raises(ValueError, match="must be of one full run, got 1 notebooks of profile smo"):
        write_light(home / "reports", home / "reports" / "full")
    assert not (home / "reports" / "full").exists()


def test_a_missing_browser_and_a_missing_picture_are_named(monkeypatch, browser):
    with pytest.raises(ValueError, match="drew 1 of 2 figures"):
        draw_pictures([{}, {}])
    monkeypatch.setattr(light, "BROWSERS", ["no-such-browser"])
    with pytest.raises(ValueError, match="looked for no-such-browser: install Chromium"):
        draw_pictures([{}])
