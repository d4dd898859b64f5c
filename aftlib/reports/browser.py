"""A browser found on the machine, for pictures of figures; nothing needs one to be read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from aftlib.core.paths import atomic_file
from aftlib.reports.html import share_plotly

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
_PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8"></head>
<body style="margin:0;padding:{margin}px;background:#fff"><div id="figure"></div>
<script src="plotly.min.js"></script>
<script>const figure = {figure};
Plotly.newPlot("figure", figure.data, figure.layout, {{staticPlot: true}});
</script></body></html>"""


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
    drawn = json.dumps(figure | {"layout": layout}).replace("</", "<\\/")
    with tempfile.TemporaryDirectory(prefix="aft-") as folder, atomic_file(target) as scratch:
        share_plotly(Path(folder))
        page = Path(folder) / "figure.html"
        page.write_text(_PAGE.format(figure=drawn, margin=_MARGIN), encoding="utf-8")
        command = [
            browser,
            *_FLAGS,
            f"--user-data-dir={page.parent / 'profile'}",
            f"--window-size={width + 2 * _MARGIN},{height + 2 * _MARGIN}",
            f"--screenshot={scratch}",
            page.as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RuntimeError(f"the browser {browser} could not draw: {error}") from error
        if not scratch.exists():
            raise RuntimeError(f"the browser {browser} drew nothing: {done.stderr.strip()[-500:]}")
    return target
