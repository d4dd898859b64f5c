"""A browser found on the machine, for pictures of figures; nothing needs one to be read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

from aftlib.core.paths import atomic_file
from aftlib.reports.html import in_script, share_plotly

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_SECONDS = 120
_MARGIN = 16  # pixels of white around a picture
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1.5",
    "--virtual-time-budget=10000",
)
_PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8"><style>{style}</style></head>
<body style="margin:0;padding:{margin}px;background:#fff"><div id="figure"></div>
<pre id="answer" style="display:none"></pre>
<script src="plotly.min.js"></script>
<script>{script}</script></body></html>"""
_DRAW = """const figure = {figure};
Plotly.newPlot("figure", figure.data, figure.layout, {{staticPlot: true}});"""
_ANSWER = """const answer = (text) => {{ document.getElementById("answer").textContent = text; }};
{expression}.then((value) => answer("value " + value), (error) => answer("error " + error));"""


def find_browser() -> str | None:
    """Return the browser to draw with: ``AFT_BROWSER``, else the first known one on the PATH."""
    named = os.environ.get("AFT_BROWSER")
    if named:
        found = shutil.which(named)
        if found is None:
            raise FileNotFoundError(
                f"AFT_BROWSER is {named!r}, which is no program: set it to a Chromium or unset it"
            )
        return found
    return next(filter(None, map(shutil.which, _NAMES)), None)


def draw_plotly(figure: dict[str, Any], target: Path, browser: str, width: int = 960) -> Path:
    """Draw a Plotly `figure`, `width` pixels wide, as the PNG `target`, or raise RuntimeError."""
    height = int(figure.get("layout", {}).get("height") or 540)
    layout = figure.get("layout", {}) | {"width": width, "height": height}
    size = f"--window-size={width + 2 * _MARGIN},{height + 2 * _MARGIN}"
    figure = figure | {"layout": layout}
    return _drawn(figure, target, browser, "--screenshot", size, margin=_MARGIN)


def print_page(figure: dict[str, Any], target: Path, browser: str) -> Path:
    """Print a Plotly `figure`, whose layout has its size, as the PDF `target`, a page of its size.

    RuntimeError when the browser prints nothing.
    """
    width, height = figure["layout"]["width"], figure["layout"]["height"]
    # a pixel more than the figure: rounding must not give a second page
    style = f"@page {{ size: {width}px {height + 1}px; margin: 0 }}"
    flag = "--no-pdf-header-footer"
    return _drawn(figure, target, browser, "--print-to-pdf", flag, style=style)


def evaluate(expression: str, browser: str) -> str:
    """Return the text that a promise of Plotly's script resolves to, or raise RuntimeError."""
    shown = _show(browser, _ANSWER.format(expression=expression), ["--dump-dom"])
    found = re.search(r'<pre id="answer"[^>]*>(value|error) ([^<]*)', shown.stdout)
    if found is None or found[1] == "error":
        why = found[2] if found else shown.stderr.strip()[-500:]
        raise RuntimeError(f"the browser {browser} drew nothing: {why}")
    return unescape(found[2])


def _drawn(
    figure: dict[str, Any], target: Path, browser: str, act: str, *flags: str, **page: Any
) -> Path:
    """Have the browser make the file `target` by the flag `act`."""
    script = _DRAW.format(figure=in_script(figure))
    with atomic_file(target) as scratch:
        shown = _show(browser, script, [*flags, f"{act}={scratch}"], **page)
        if not scratch.exists():
            raise RuntimeError(f"the browser {browser} drew nothing: {shown.stderr.strip()[-500:]}")
    return target


def _show(
    browser: str, script: str, flags: list[str], margin: int = 0, style: str = ""
) -> subprocess.CompletedProcess[str]:
    """Open a page with Plotly and `script` without a screen, or raise RuntimeError."""
    with tempfile.TemporaryDirectory(prefix="aft-") as folder:
        share_plotly(Path(folder))
        page = Path(folder) / "figure.html"
        page.write_text(_PAGE.format(script=script, margin=margin, style=style), encoding="utf-8")
        profile = f"--user-data-dir={page.parent / 'profile'}"
        command = [browser, *_FLAGS, profile, *flags, page.as_uri()]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RuntimeError(f"the browser {browser} could not draw: {error}") from error
