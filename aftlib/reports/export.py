"""Figures and tables as files: data always, and drawings where there is a browser."""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click

from aftlib.core.checks import require_choice
from aftlib.core.paths import atomic_file, reports_dir, write_whole
from aftlib.reports.cli import clear_errors
from aftlib.reports.data_out import (
    MOST_SHOWN,
    PLOTLY,
    TABLE,
    Shown,
    shown_in,
    table_csv,
    table_latex,
)
from aftlib.reports.figure_data import at_label, figure_csv, plain_text, with_names
from aftlib.reports.html import in_script, share_plotly, title_of_figure
from aftlib.reports.notebook import find_notebook
from aftlib.reports.runs import Executed, find_run
from aftlib.workbench.pages import asset, values_of

DRAWN = ("svg", "png", "pdf")
FORMATS = {"figure": ("csv", "json", *DRAWN), "table": ("csv", "tex")}
_UNITS = {"mm": 96 / 25.4, "cm": 96 / 2.54, "in": 96.0, "pt": 96 / 72, "px": 1.0}  # CSS pixels
_DOTS = 300 / 96  # pixels of a PNG per CSS pixel, which makes 300 per inch
WIDEST = 1000  # largest width, in CSS pixels, that is tried to find the least readable one
LEAST, MOST = 10, 5000
"""Least and largest width and height of a drawing, in CSS pixels: browsers fail at larger ones."""

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SECONDS = 120
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=10000",
)
_PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8"><style>{style}</style></head>
<body style="margin:0;background:#fff"><div id="figure"></div>
<pre id="answer" style="display:none"></pre>
<script src="plotly.min.js"></script>
<script>{script}</script></body></html>"""
_DRAW = """const figure = {figure};
Plotly.newPlot("figure", figure.data, figure.layout, {{staticPlot: true}});"""
_ANSWER = """const answer = (text) => {{ document.getElementById("answer").textContent = text; }};
{expression}.then((value) => answer("value " + value), (error) => answer("error " + error));"""


def pixels(length: str) -> float:
    """Return a length such as ``84mm`` or ``3.3in`` in CSS pixels, of which an inch has 96.

    >>> round(pixels("84mm"), 1)
    317.5
    """
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+) *(mm|cm|in|pt|px)", length.strip())
    if not match or float(match[1]) <= 0:
        raise ValueError(
            f"length {length!r} must be a number with mm, cm, in, pt or px, such as 84mm"
        )
    size = float(match[1]) * _UNITS[match[2]]
    if not LEAST <= size <= MOST:
        raise ValueError(
            f"length {length!r} must be from {LEAST} to {MOST} px, of which an inch has 96"
        )
    return size


def report_of(wanted: str) -> Executed:
    """Return the report that `aft reproduce` made of a notebook; without one, the stored run."""
    try:
        official = Executed.find(reports_dir() / f"{find_notebook(wanted).name}.ipynb")
    except ValueError:
        official = None
    return official or find_run(wanted).executed()


def find_shown(executed: Executed, kind: str, wanted: str) -> Shown:
    """Return a figure or table of a report by its number or by words that only its title has.

    ValueError when there is none, or several titles have the words.
    """
    shown = [shown for shown in shown_in(executed.content) if shown.kind == kind]
    if not shown:
        raise ValueError(f"{executed.name} shows no {kind}s")
    if wanted.isdecimal():
        if not 1 <= int(wanted) <= len(shown):
            raise ValueError(f"{executed.name} has {kind}s 1 to {len(shown)}, got {wanted}")
        return shown[int(wanted) - 1]
    words = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)", re.IGNORECASE)
    matches = [each for each in shown if words.search(label(each))]
    if len(matches) != 1:
        titles = "; ".join(f"{each.number} {label(each)}" for each in matches or shown)
        raise ValueError(
            f"{kind} must be a number or words of one title, got {wanted!r}: "
            f"{executed.name} has {titles}"
        )
    return matches[0]


def label(shown: Shown) -> str:
    """Return the title of a figure, or the caption or columns of a table."""
    if shown.kind == "figure":
        return title_of_figure(shown) or plain_text(shown.caption)
    table = shown.data.get(TABLE, {"caption": "", "csv": ""})
    return table["caption"] or table["csv"].partition("\n")[0]


def contents(executed: Executed) -> Iterator[str]:
    """Yield a line for each figure and table of a report: its number and label."""
    for shown in shown_in(executed.content):
        yield f"{shown.kind} {shown.number:2}  {label(shown)[:80]}".rstrip()


def export(
    shown: Shown, target: Path, kind: str, series: Sequence[str] = (), **drawing: Any
) -> Path:
    """Write `shown` as `target` in the format `kind`, one of `FORMATS`.

    A figure's CSV has all positions of its slider. If `series` has names, it has only the lines of
    these names. `drawing` are the other arguments of `draw`. ValueError when `shown` has no such
    format, or cannot be drawn.
    """
    require_choice(f"format of a {shown.kind}", kind, FORMATS[shown.kind])
    if shown.kind == "table":
        if TABLE not in shown.data:
            raise ValueError(
                f"no data of table {shown.number} were captured: it is no data frame, or has over "
                f"{MOST_SHOWN:,} cells; show a smaller data frame"
            )
        write = table_csv if kind == "csv" else table_latex
        return write_whole(target, write(shown.data))
    figure = shown.data.get(PLOTLY)
    if figure is None:
        raise ValueError(
            f"figure {shown.number} is a picture, without data: save it from the report"
        )
    if kind in ("csv", "json"):
        text = json.dumps(figure, ensure_ascii=False)
        return write_whole(target, figure_csv(figure, series) if kind == "csv" else text)
    return draw(figure, target, kind=kind, series=series, **drawing)


def draw(
    figure: Any,
    target: str | Path,
    *,
    width: str = "84mm",
    height: str | None = None,
    at: str | None = None,
    series: Sequence[str] = (),
    kind: str = "",
) -> Path:
    """Draw a Plotly figure for paper as the file `target`, and return its path.

    The drawing has no title, because a paper has a caption. The legend below names the position of
    a slider or menu and, if `series` are given, each of them.

    Parameters
    ----------
    figure
        As a notebook shows it, or as JSON.
    target, kind
        The file, and its format: svg, png or pdf, by default the file's ending.
    width, height
        Lengths such as 84mm or 3.3in; by default the height fits plot and legend.
    at
        The label of the slider's or menu's position, by default where it begins.
    series
        The names of the lines to draw, by default all.

    Raises
    ------
    ValueError
        When the figure would not be `readable` at that width, has no such label or line, or no
        browser is installed.
    """
    kind = kind or Path(target).suffix[1:]
    require_choice("format of a drawing", kind, DRAWN)
    size = pixels(width), pixels(height) if height else None
    figure, place = at_label(figure if isinstance(figure, Mapping) else figure.to_plotly_json(), at)
    figure["data"] = [dict(trace) for _, trace in with_names(figure["data"], series)]
    figure["layout"] = legend_of(figure, place, named=bool(series))
    browser = find_browser()
    if browser is None:
        raise ValueError(
            f"format {kind} is drawn by a browser, and none was found: install Chromium or set "
            "AFT_BROWSER. Without one, export csv or json, or save SVG or PNG by the buttons below "
            "the figure in its report"
        )
    drawn = readable(figure, browser, *size)
    if kind == "pdf":
        return print_page(drawn, Path(target), browser)
    options = {name: drawn["layout"][name] for name in ("width", "height")}
    options |= {"format": kind, "scale": _DOTS if kind == "png" else 1}
    return write_whole(Path(target), _image(drawn, browser, options))


def legend_of(figure: Mapping[str, Any], place: str, named: bool) -> dict[str, Any]:
    """Return the layout with a legend entitled `place`; if `named`, a single line has one, too."""
    layout = dict(figure.get("layout") or {})
    if named:
        layout["showlegend"] = True
        shown = set()
        for trace in figure["data"]:  # the line that had the group's entry may be left out
            trace["showlegend"] = trace.get("name") not in shown
            shown.add(trace.get("name"))
    if place:
        title = {"text": place, "side": "left", "font": {"size": 9}}
        layout["legend"] = {**(layout.get("legend") or {}), "title": title}
    return layout


def readable(
    figure: Mapping[str, Any], browser: str, width: float, height: float | None = None
) -> dict[str, Any]:
    """Return a Plotly figure laid out for paper, `width` CSS pixels wide.

    Panels side by side are stacked in a narrow figure. ValueError, with the least width that works,
    if a text is smaller than 6 pt, cut off, or lies on another text or on a panel, or if an axis
    leaves out some of its categories.
    """
    layout = for_paper(figure.get("layout", {}))
    plain = {"data": figure["data"], "layout": layout}
    size = ", ".join([str(round(width)), str(round(height)) if height else "null", str(WIDEST)])
    answer = json.loads(
        evaluate(f"forPaper({in_script(plain)}, {size})", browser, asset("paper.js"))
    )
    if problems := answer["complaints"]:
        least, given = answer.get("least"), f"{width / _UNITS['mm']:.0f} mm"
        fix = (
            f"give --width {math.ceil(least / _UNITS['mm'])}mm or more"
            if least
            else ("leave out --height" if height else "export its data, or show less in it")
        )
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise ValueError(f"at {given} the figure is not readable: {problems[0]}{more}; {fix}")
    return {"data": figure["data"], "layout": answer["layout"]}


def for_paper(layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layout for print: no title, slider or menu, small margins, the legend below."""
    rest = {k: v for k, v in layout.items() if k not in ("title", "sliders", "updatemenus")}
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yanchor": "bottom"}
    return rest | {
        "margin": {"l": 50, "r": 8, "t": 8 + 20 * bool(rest.get("annotations")), "b": 40},
        "legend": {**rest.get("legend", {}), **legend, "yref": "container", "font": {"size": 9}},
        "font": {**rest.get("font", {}), "size": 10},
        "autosize": False,
    }


def find_browser() -> str | None:
    """Return the browser to draw with: ``AFT_BROWSER``, else the first known one on the PATH."""
    named = os.environ.get("AFT_BROWSER")
    if named:
        browser = shutil.which(named)
        if browser is None:
            raise FileNotFoundError(
                f"AFT_BROWSER is {named!r}, which is no program: set it to a Chromium or unset it"
            )
        return browser
    return next(filter(None, map(shutil.which, _NAMES)), None)


def draw_plotly(figure: dict[str, Any], target: Path, browser: str, width: int = 960) -> Path:
    """Draw a Plotly `figure`, `width` pixels wide, as the PNG `target`, or raise RuntimeError."""
    height = int(figure.get("layout", {}).get("height") or 540)
    size = {"width": width, "height": height}
    return write_whole(target, _image(figure, browser, size | {"format": "png", "scale": 1.5}))


def print_page(figure: dict[str, Any], target: Path, browser: str) -> Path:
    """Print a Plotly `figure` as the PDF `target`, one page of the size in the figure's layout.

    RuntimeError when the browser prints nothing.
    """
    width, height = figure["layout"]["width"], figure["layout"]["height"]
    # one pixel more than the figure, so that rounding does not cause a second page
    style = f"@page {{ size: {width}px {height + 1}px; margin: 0 }}"
    with atomic_file(target) as scratch:
        flags = ["--no-pdf-header-footer", f"--print-to-pdf={scratch}"]
        shown = _show(browser, _DRAW.format(figure=in_script(figure)), flags, style)
        if not scratch.exists():
            raise RuntimeError(f"the browser {browser} drew nothing: {shown.stderr.strip()[-500:]}")
    return target


def _image(figure: dict[str, Any], browser: str, options: dict[str, Any]) -> bytes:
    """Content of the SVG or PNG that Plotly makes of a figure, by its options."""
    url = evaluate(f"Plotly.toImage({in_script(figure)}, {in_script(options)})", browser)
    about, _, content = url.partition(",")
    return base64.b64decode(content) if "base64" in about else unquote(content).encode()


def evaluate(expression: str, browser: str, script: str = "") -> str:
    """Return the text that the JavaScript promise `expression` resolves to, or raise RuntimeError.

    The expression may use Plotly and `script`.
    """
    script = f"{asset('narrow.js')}{script}{_ANSWER.format(expression=expression)}"
    shown = _show(browser, script, ["--dump-dom"])
    match = re.search(r'<pre id="answer"[^>]*>(value|error) ([^<]*)', shown.stdout)
    if match is None or match[1] == "error":
        why = match[2] if match else shown.stderr.strip()[-500:]
        raise RuntimeError(f"the browser {browser} drew nothing: {why}")
    return unescape(match[2])


def _show(
    browser: str, script: str, flags: list[str], style: str = ""
) -> subprocess.CompletedProcess[str]:
    """Open a page with Plotly and `script` in a browser without a screen, or raise RuntimeError."""
    with tempfile.TemporaryDirectory(prefix="aft-") as folder:
        share_plotly(Path(folder))
        page = Path(folder) / "figure.html"
        page.write_text(_PAGE.format(script=script, style=style), encoding="utf-8")
        profile = f"--user-data-dir={page.parent / 'profile'}"
        command = [browser, *_FLAGS, profile, *flags, page.as_uri()]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RuntimeError(f"the browser {browser} could not draw: {error}") from error


@click.command("export")
@click.argument("run")
@click.option("--figure", metavar="N", help="A figure's number, or words of its title: 'fig. 13'.")
@click.option("--table", metavar="N", help="A table's number, or words of its caption.")
@click.option(
    "--format", "kind", help="csv, json, svg, png or pdf of a figure; csv or tex of a table."
)
@click.option("--width", default="640px", show_default=True, help="Width, such as 84mm or 3.3in.")
@click.option("--height", help="Height, such as 60mm; by default it fits plot and legend.")
@click.option("--at", metavar="VALUE", help="Slider's value; by default the first shown.")
@click.option("--series", metavar="NAME", multiple=True, help="Only this line; may be repeated.")
@click.option("--output", metavar="FILE", help="Default: named after report and number.")
def command(
    run: str,
    figure: str | None,
    table: str | None,
    kind: str | None,
    width: str,
    height: str | None,
    at: str | None,
    series: tuple[str, ...],
    output: str | None,
) -> None:
    """Write a figure or table of a RUN, or of a notebook's report, as a file.

    Without --figure and --table it lists them. Drawings (svg, png, pdf) need a Chromium; csv, json
    and tex do not.
    """
    with clear_errors():
        executed = report_of(run)
        values = values_of(executed.record) or "all values the defaults"
        click.echo(f"From {executed.path}: {values}", err=True)
        if figure is None and table is None:
            click.echo("\n".join(contents(executed)))
            return
        if figure is not None and table is not None:
            raise ValueError("give either --figure N or --table N")
        what = "table" if figure is None else "figure"
        shown = find_shown(executed, what, (table if figure is None else figure) or "")
        kind = kind or (Path(output).suffix[1:] if output else "") or "csv"
        name = f"{executed.record['name']}-{what}-{shown.number}.{kind}"
        for length in (width, height or width):
            pixels(length)  # wrong lengths are refused where there is nothing to draw, too
        if series and (what == "table" or kind == "json"):
            raise ValueError("--series is only for a figure's csv or drawing: leave it out")
        size = {"width": width, "height": height}
        try:
            click.echo(export(shown, Path(output or name), kind, series, **size, at=at))
            if kind in DRAWN and (where := at_label(shown.data[PLOTLY], at)[1]):
                click.echo(f"It is drawn at {where}; --at chooses another value.", err=True)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
