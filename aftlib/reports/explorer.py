"""A page of sliders for ε, δ, m, T_SLA and the sensors, which computes in the browser.

The arithmetic is in ``templates/explorer.js``; the tests hold it equal to the library's.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

import click

from aftlib.core.paths import reports_dir, require_writable, write_whole

PAGE = "explorer.html"


# Its id, name, least and largest value, step and where it begins; m counts the sensors' divisors.
SLIDERS = [
    ("epsilon", "tolerance ε", 0.05, 2.5, 0.01, 0.8),
    ("delta", "permitted failure probability δ", 0.005, 0.3, 0.005, 0.05),
    ("m", "workers m", 1, 15, 1, 7),
    ("tSla", "longest recovery T_SLA", 30, 300, 1, 50),
    ("groups", "sensors", 1, 20, 1, 10),
    ("rho", "correlation inside a group", 0, 0.99, 0.01, 0.9),
    ("relative", "a histogram's relative error ε", 0.01, 0.5, 0.01, 0.1),
]
FIGURES = {
    "workers": "Estimable workers (D1)",
    "coverage": "Share within ε (D1)",
    "plan": "Checkpoint plan (D2)",
    "histogram": "Histogram error (D5)",
}


class Explorer:
    """The explorer in a notebook: its page in a frame, `height` pixels high.

    Examples
    --------
    >>> from aftlib.reports.explorer import Explorer
    >>> Explorer(height=600)
    Explorer(height=600)
    """

    def __init__(self, height: int = 1500) -> None:
        self.height = height

    def __repr__(self) -> str:
        return f"Explorer(height={self.height})"

    def _repr_html_(self) -> str:
        page = escape(render_explorer())
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f'<iframe srcdoc="{page}" style="{style}" title="Explorer"></iframe>'


def render_explorer() -> str:
    """Return the page, which needs nothing beside it and no network."""
    from aftlib.reports.html import asset, render

    script = asset("explorer.js")
    return render("explorer.html.j2", sliders=SLIDERS, figures=FIGURES.items(), script=script)


def write_explorer(target: Path) -> Path:
    """Write the page to `target`, and return it."""
    return write_whole(target, render_explorer())


@click.command("explorer")
def command() -> None:
    """Write reports/explorer.html: sliders for ε, δ, m, T_SLA and the sensors."""
    try:
        click.echo(write_explorer(require_writable(reports_dir()) / PAGE))
    except OSError as error:
        raise click.ClickException(str(error)) from error
