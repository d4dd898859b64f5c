"""The reports of a full run in a light form: pages without a script, and figures as SVG.

``make static`` calls it after ``aft reproduce --profile full``. Plotly draws each figure once, in a
Chromium without a window; who reads the pages needs neither.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from html import escape, unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import yaml

from aftlib.command.batch import collect_claims, read_reports
from aftlib.command.documents import DOCUMENTS
from aftlib.command.front import STORED, describe_runs, is_full_run, render_index
from aftlib.command.pages import (
    PLOTLY,
    Figures,
    Report,
    Texts,
    plotly_script,
    render_report,
    show_title,
    without_title,
)
from aftlib.core.paths import project_root
from aftlib.core.storage import write_whole
from aftlib.notebook.scorecard import ClaimRecord

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTH = 760
"""Pixels of a picture from left to right."""
HEIGHT = 450
"""Pixels from top to bottom; a figure with a height of its own keeps it."""
_DRAW = """
(async () => {
  const pictures = [];
  for (const {data, layout} of FIGURES) {
    const size = {format: "svg", width: WIDTH, height: layout.height || HEIGHT};
    pictures.push(await Plotly.toImage({data, layout}, size));
  }
  document.body.textContent = JSON.stringify(pictures);
})();
"""


class Pictures(Figures):
    """Shows each figure as a stored picture, with its title and its series as alternative text."""

    def draw(self, figure: Mapping[str, Any], number: int, notebook: str) -> str:
        """Return the HTML of a figure."""
        title = escape(without_title(figure)[1])
        names = dict.fromkeys(trace.get("name") or "" for trace in figure.get("data", []))
        series = escape(", ".join(filter(None, names)))
        shows = f"{title}; series: {series}" if series else title
        picture = f'<img src="{picture_name(notebook, number)}" alt="{shows}" loading="lazy">'
        return show_title(number, title) + picture


class LightReport(Report):
    """A report's cells with pictures instead of interactive figures."""

    preprocessors = [Texts, Pictures]


def write_light(folder: Path, target: Path) -> Path:
    """Write the reports in `folder` into `target`, which is emptied first; return the index.

    ValueError unless each notebook has a full run without failure, or when no browser is there.
    """
    reports = read_reports(folder)
    if not is_full_run(reports):
        raise ValueError(
            f"reports must be of one full run, got {len(reports)} notebooks of profile "
            f"{describe_runs(reports)['profile'] or 'none'}: run `aft reproduce --profile full`"
        )
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for document in DOCUMENTS:
        executed = reports[document.notebook]
        drawn = [data[PLOTLY] for data in executed.outputs if PLOTLY in data]
        figures = [without_title(figure)[0] for figure in drawn]
        for number, picture in enumerate(draw_pictures(figures), 1):
            write_whole(target / picture_name(document.notebook, number), picture)
        page = render_report(executed, document, LightReport())
        write_whole(target / f"{document.notebook}.html", deepen_links(page))
    return write_whole(target / "index.html", render_index(reports, collect_claims(reports)))


def deepen_links(page: str) -> str:
    """Return a page whose links to docs start one folder deeper than those of its notebook.

    >>> deepen_links('<a href="../docs/limits.md">')
    '<a href="../../docs/limits.md">'
    """
    return page.replace('href="../docs/', 'href="../../docs/')


def picture_name(notebook: str, number: int) -> str:
    """Return the name of a figure's file: ``01_approximately_once-3.svg``."""
    return f"{notebook}-{number}.svg"


def draw_pictures(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return an SVG text for each Plotly figure, drawn by Plotly in a browser without a window."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise ValueError(
            f"no browser on PATH draws the figures, looked for {', '.join(BROWSERS)}: install "
            "Chromium (Debian, Ubuntu: apt install chromium)"
        )
    data = json.dumps(list(figures), ensure_ascii=False).replace("</", r"<\/")
    script = f"const FIGURES = {data}, WIDTH = {WIDTH}, HEIGHT = {HEIGHT};{_DRAW}"
    page = (
        f'<html><head><meta charset="utf-8"><script src="{plotly_script().as_uri()}"></script>'
        f"</head><body><script>{script}</script></body></html>"
    )
    with TemporaryDirectory() as folder:
        path = write_whole(Path(folder, "figures.html"), page)
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        options += ["--allow-file-access-from-files", f"--user-data-dir={folder}/profile"]
        options += ["--virtual-time-budget=300000", "--timeout=300000"]
        command = [browser, *options, path.as_uri()]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=900).stdout
    body = re.search(r"<body>(\[.*\])</body>", shown, re.DOTALL)
    pictures = json.loads(unescape(body[1])) if body else []
    if len(pictures) != len(figures):
        raise ValueError(f"{browser} drew {len(pictures)} of {len(figures)} figures: run it again")
    return [round_numbers(unquote(picture.partition(",")[2])) for picture in pictures]


def round_numbers(svg: str) -> str:
    """Return an SVG whose coordinates have at most two digits after the point.

    >>> round_numbers('<path d="M10.123456,0.5L3,4.000001">')
    '<path d="M10.12,0.5L3,4.00">'
    """
    return re.sub(r"(\d\.\d\d)\d+(?=[^\d%])", r"\1", svg)


def describe_check(full: Mapping[str, Any]) -> str:
    """Return the file ``codecheck.yml`` of a stored full run (https://codecheck.org.uk/spec).

    Its manifest has the scorecard and a report per notebook, with the verdicts to compare. Who
    checks adds name, time, certificate and report.
    """
    claims = [ClaimRecord(**line) for line in full["claims"]]
    manifest = [
        {"file": "reports/README.md", "comment": f"scorecard, {len(claims)} claims"},
        {"file": "reports/full.json", "comment": "the same for programs"},
    ]
    for document in DOCUMENTS:
        mine = [claim for claim in claims if claim.notebook == document.notebook]
        verdicts = ", ".join(f"{claim.id} {claim.verdict}" for claim in mine)
        file = f"reports/full/{document.notebook}.html"
        manifest.append(
            {"file": file, "comment": f"aft reproduce --only {document.id}: {verdicts}"}
        )
    described = yaml.safe_load((project_root() / "CITATION.cff").read_text(encoding="utf-8"))
    contents = {
        "version": "https://codecheck.org.uk/spec/config/1.0/",
        "paper": {"title": described["title"], "authors": described["authors"]},
        "manifest": manifest,
    }
    return yaml.safe_dump(contents, allow_unicode=True, sort_keys=False, width=120)


def main() -> None:
    """Write reports/full and codecheck.yml, and say what they are of."""
    folder = project_root() / "reports"
    try:
        index = write_light(folder, folder / "full")
    except ValueError as error:
        sys.exit(f"Error: {error}")
    full = json.loads((folder / STORED).read_text(encoding="utf-8"))
    write_whole(project_root() / "codecheck.yml", describe_check(full))
    run = describe_runs(read_reports(folder))
    size = sum(path.stat().st_size for path in index.parent.iterdir()) / 1e6
    sys.stdout.write(f"{index}: full run of {run['date']}, {size:.1f} MB\n")


if __name__ == "__main__":
    main()
